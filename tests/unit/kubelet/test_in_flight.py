"""Calls that are running are counted, so that a stop can wait for them."""

import threading

import pytest

from dra_driver.kubelet.dra_service import InFlight


def test_nothing_in_flight_is_idle_at_once() -> None:
    assert InFlight().wait_idle(0)


def test_a_running_call_is_not_idle() -> None:
    calls = InFlight()
    with calls.call():
        assert not calls.wait_idle(0)
    assert calls.wait_idle(0)


def test_a_call_that_raises_is_over() -> None:
    calls = InFlight()
    with pytest.raises(KeyError), calls.call():
        raise KeyError
    assert calls.wait_idle(0)


def test_waiting_ends_with_the_last_call() -> None:
    calls, entered, leave = InFlight(), threading.Barrier(3), threading.Event()

    def run() -> None:
        with calls.call():
            entered.wait(10)
            leave.wait(10)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(10)
    assert not calls.wait_idle(0.01)
    leave.set()
    assert calls.wait_idle(10)
    for thread in threads:
        thread.join()
