"""The real allocators, one process for each build that a run asks for.

The newest minor's tests are part of every run; those of other minors, each of which is a build of minutes, are
marked `full`.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from testbed import allocator, validation
from testbed.allocator import FEATURES, MINORS, Allocator

Real = Callable[..., Allocator]
EVERY_MINOR = [*(pytest.param(minor, marks=pytest.mark.full) for minor in MINORS[:-1]), MINORS[-1]]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test, whose time is limited."""
    wanted = [item for item in session.items if item.path.parent == Path(__file__).parent]
    if wanted and shutil.which("go") and not session.config.option.collectonly:
        full = any(item.get_closest_marker("full") for item in wanted)
        for minor in MINORS if full else MINORS[-1:]:
            allocator.program(minor)
            validation.program(minor)


@pytest.fixture(scope="session")
def real() -> Iterator[Real]:
    """The allocator of a minor with features, started once."""
    running: dict[tuple[int, tuple[str, ...]], Allocator] = {}
    with ExitStack() as stack:

        def real(minor: int = 37, features: tuple[str, ...] | None = None) -> Allocator:
            key = minor, tuple(FEATURES[minor] if features is None else features)
            if key not in running:
                running[key] = stack.enter_context(Allocator(*key))
            return running[key]

        yield real
