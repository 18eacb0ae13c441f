"""Waits between tries."""

from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cluster.backoff import Backoff


@given(st.integers(0, 2000))
def test_waits_double_up_to_the_limit_and_keep_half_of_it(tries: int) -> None:
    full = min(10.0, 0.2 * 2 ** min(tries, 30))
    assert full / 2 <= Backoff(tries=tries).next() <= full


def test_a_reset_starts_over() -> None:
    backoff = Backoff(tries=9)
    assert backoff.next() >= 5.0
    backoff.reset()
    assert backoff.next() <= 0.2


def test_the_server_may_ask_for_more_but_not_beyond_the_limit() -> None:
    assert Backoff().next(at_least=3.0) == 3.0
    assert Backoff().next(at_least=3600.0) == 10.0


def test_a_fleet_does_not_wait_in_step() -> None:
    assert len({Backoff(tries=5).next() for _ in range(50)}) > 40


def test_full_once_the_longest_wait_was_given() -> None:
    backoff = Backoff(first=1, limit=4)
    seen = []
    for _ in range(4):
        backoff.next()
        seen.append(backoff.full)
    assert seen == [False, False, True, True]
    backoff.reset()
    assert not backoff.full
