"""What a stop waits for: handlers that run, and calls whose answer isn't out yet."""

import threading
from collections.abc import Callable

import grpc
import pytest

from dra_driver.kubelet.in_flight import InFlight


class Rpc(grpc.RpcContext):
    """A call that ends when the test says so, as far as it is looked at."""

    def __init__(self, *, ended: bool = False) -> None:
        self._ended = ended
        self._callbacks: list[Callable[[], None]] = []

    def add_callback(self, callback: Callable[[], None]) -> bool:
        if not self._ended:
            self._callbacks.append(callback)
        return not self._ended

    def end(self) -> None:
        self._ended = True
        for callback in self._callbacks:
            callback()

    def is_active(self) -> bool:
        return not self._ended

    def time_remaining(self) -> float:
        return 1.0

    def cancel(self) -> bool:
        self.end()
        return True


def test_nothing_in_flight_is_idle_at_once() -> None:
    assert InFlight().wait_idle(0)


def test_a_handler_that_runs_is_not_idle() -> None:
    calls, rpc = InFlight(), Rpc()
    with calls.call(rpc):
        rpc.end()
        assert not calls.wait_idle(0), "at the deadline the call ends and the handler runs on"
    assert calls.wait_idle(0)


def test_an_answer_that_is_not_sent_is_not_idle() -> None:
    calls, rpc = InFlight(), Rpc()
    with calls.call(rpc):
        pass
    assert not calls.wait_idle(0)
    rpc.end()
    assert calls.wait_idle(0)


def test_a_call_that_ended_before_its_handler_ran_is_counted_once() -> None:
    calls = InFlight()
    with calls.call(Rpc(ended=True)):
        assert not calls.wait_idle(0)
    assert calls.wait_idle(0)


def test_a_handler_that_raises_is_over() -> None:
    calls, rpc = InFlight(), Rpc()
    with pytest.raises(KeyError), calls.call(rpc):
        raise KeyError
    rpc.end()
    assert calls.wait_idle(0)


def test_waiting_ends_with_the_last_call() -> None:
    calls, entered, leave = InFlight(), threading.Barrier(3), threading.Event()

    def run() -> None:
        rpc = Rpc()
        with calls.call(rpc):
            entered.wait(10)
            leave.wait(10)
        rpc.end()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    entered.wait(10)
    assert not calls.wait_idle(0.01)
    leave.set()
    assert calls.wait_idle(10)
    for thread in threads:
        thread.join()
