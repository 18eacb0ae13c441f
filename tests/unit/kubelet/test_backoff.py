"""When a new pair of sockets may be tried."""

import pytest

from dra_driver.kubelet import plugin
from dra_driver.kubelet.plugin import Backoff, Timing


class Clock:
    """Time stands still, so that what remains is exact."""

    def monotonic(self) -> float:
        return 1000.0


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "time", Clock())


def backoff() -> Backoff:
    timing = Timing()
    return Backoff(first=timing.backoff_first, limit=timing.backoff_limit)


def test_the_first_attempt_is_due_at_once() -> None:
    assert backoff().remaining() <= 0


def test_it_doubles_from_half_a_second_to_a_minute_with_jitter() -> None:
    tried, waits = backoff(), []
    for _ in range(10):
        tried.tried()
        waits.append(tried.remaining())
    full = [min(0.5 * 2**n, 60.0) for n in range(10)]
    assert full[-1] == 60.0
    for wait, longest in zip(waits, full, strict=True):
        assert longest / 2 <= wait <= longest


def test_many_attempts_don_t_overflow() -> None:
    tried = backoff()
    for _ in range(5000):
        tried.tried()
    assert 30 <= tried.remaining() <= 60


def test_a_confirmation_starts_afresh() -> None:
    tried = backoff()
    for _ in range(8):
        tried.tried()
    tried.confirmed()
    assert tried.remaining() <= 0
    tried.tried()
    assert tried.remaining() <= 0.5


def test_a_refusal_long_after_the_last_attempt_waits_a_little() -> None:
    tried = backoff()
    tried.confirmed()
    tried.refused()
    assert tried.remaining() == 0.5


def test_a_refusal_shortens_no_wait() -> None:
    tried = backoff()
    for _ in range(8):
        tried.tried()
    before = tried.remaining()
    tried.refused()
    assert tried.remaining() == before
