"""The real allocators, one process for each build that a run asks for."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from testbed.allocator import FEATURES, Allocator

Real = Callable[..., Allocator]


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
