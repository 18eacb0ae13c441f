"""Conditions with deadlines: the test bed's only way to wait.

Nothing in the test bed sleeps for a guessed time. A condition is asked again and
again until it holds; when it does not hold in time the error says what was waited
for and what was seen last.
"""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

INTERVAL_SECONDS = 0.05


class NotInTimeError(AssertionError):
    """A condition did not come to hold before its deadline. An assertion: a test fails by it."""


def until(
    condition: Callable[[], T | None],
    *,
    what: str,
    timeout: float,
    seen: Callable[[], object] | None = None,
    ignore: tuple[type[Exception], ...] = (OSError,),
) -> T:
    """Ask ``condition`` until it gives something true, and return that.

    ``timeout`` in seconds. Exceptions of the kinds in ``ignore`` count as "not yet"
    (servers refuse connections while they start); others pass through. ``seen`` gives
    whatever should stand in the error text.
    """
    deadline = time.monotonic() + timeout
    last: object = None
    while True:
        try:
            value = condition()
        except ignore as error:
            last = error
        else:
            if value:
                return value
            last = value
        if time.monotonic() >= deadline:
            detail = seen() if seen else last
            raise NotInTimeError(f"{what}: not within {timeout:g} s; last seen: {detail!r}")
        time.sleep(INTERVAL_SECONDS)  # between looks at the condition, which alone decides
