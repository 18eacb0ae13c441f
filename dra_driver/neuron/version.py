"""The kernel driver's version (`2.30.2.0`, four parts) as the semantic version an attribute must be.

One value that isn't SemVer makes the API server refuse the whole ResourceSlice, and an attribute that one
device lacks stops pods on every node (BC-014, BC-015): so there is always a value, and always a valid one.
"""

import re

UNKNOWN = "0.0.0-unknown"  # orders before every release, so no sensible minimum matches it

# Ten digits keep a part inside the 64-bit integers that the API server's parser uses.
_PART = r"(?:0|[1-9][0-9]{0,9})"
_KERNEL_DRIVER = re.compile(rf"({_PART}\.{_PART}\.{_PART})(?:\.([0-9]{{1,10}}))?")


def semver(text: str) -> str:
    """`a.b.c.d` as `a.b.c+d`, `a.b.c` as it is, anything else as `UNKNOWN`."""
    match = _KERNEL_DRIVER.fullmatch(text)
    if match is None:
        return UNKNOWN
    release, build = match.groups()
    return f"{release}+{build}" if build else release


def parts(text: str) -> tuple[int, ...]:
    """The numbers of a version for comparison, empty when it is no version."""
    return tuple(int(part) for part in text.split(".")) if semver(text) != UNKNOWN else ()
