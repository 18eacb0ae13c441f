"""How long to wait before the next try: exponential, jittered, bounded."""

import random
from dataclasses import dataclass


@dataclass
class Backoff:
    """Seconds between tries, from `first` to `limit`. Not thread-safe: one owner.

    The jitter takes up to half of a wait away, so that a fleet doesn't return in step after an outage.
    """

    first: float = 0.2
    limit: float = 10.0
    tries: int = 0

    def next(self, at_least: float | None = None) -> float:
        """The wait before the next try; `at_least` is what the server asked for, within the limit."""
        full = min(self.limit, self.first * 2.0 ** min(self.tries, 30))
        self.tries += 1
        wait = full * random.uniform(0.5, 1.0)  # noqa: S311 jitter
        return max(wait, min(at_least or 0.0, self.limit))

    @property
    def full(self) -> bool:
        """Whether the last wait was of the longest kind."""
        return self.first * 2.0 ** min(self.tries - 1, 30) >= self.limit

    def reset(self) -> None:
        """Something worked: start from `first` again."""
        self.tries = 0
