"""Settings of all rungs."""

from hypothesis import settings

# A deadline per example measures the machine's load, not the code.
settings.register_profile("coreslice", deadline=None, print_blob=True)
settings.load_profile("coreslice")
