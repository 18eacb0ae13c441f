"""Calls as they come: at once, repeatedly, late, given up, while the API is away or a device still held."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from dra_driver.claims.refusals import Reason
from dra_driver.cluster.errors import NotFound, ServerError, Unavailable
from dra_driver.kubelet.types import Failed, Prepared
from dra_driver.simulator.machines import use_memory
from dra_driver.simulator.samples import Objects, claim, pod, ref

Obj = dict[str, Any]
Node = Any  # as conftest.py makes it
Caller = Any

ONE = claim("a", "core-0-0", owner="p")
CHIP = claim("c", "chip-0", owner="q")
AWAY = Unavailable("get claim: no answer from the API server: connection refused")
LONG = 30.0  # seconds: a test that waits so long has failed


class GatedObjects(Objects):
    """Reads of a claim stop at a gate, so that a test can do something meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, tuple[threading.Event, threading.Event]] = {}

    def gate(self, name: str) -> tuple[threading.Event, threading.Event]:
        """(set when the next read of it has come, to be set to let it go on)."""
        self.gates[name] = (threading.Event(), threading.Event())
        return self.gates[name]

    def get_claim(self, namespace: str, name: str) -> Obj:
        found = super().get_claim(namespace, name)
        if gate := self.gates.pop(name, None):
            come, go_on = gate
            come.set()
            assert go_on.wait(LONG)
        return found


@pytest.fixture
def api() -> GatedObjects:
    return GatedObjects()


@contextmanager
def calling(node: Node, *claims: Obj, call: Caller = None) -> Iterator[Callable[[], dict[str, Prepared | Failed]]]:
    """A Prepare that runs meanwhile; what is yielded waits for its answers."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(node.prepare, *claims, call=call)
        yield lambda: future.result(LONG)


def wait_until(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < end, f"never {what}"
        threading.Event().wait(0.01)


# Every claim is answered


def test_every_claim_of_a_call_is_answered_each_for_itself(node: Node) -> None:
    good, shared = claim("g", "core-0-0", users=["p"]), claim("s", "core-1-0", users=["p"])
    gone = claim("x", "core-2-0", users=["p"])
    node.api.put(good, shared, pod("p", {"first": ["g"], "second": ["s"], "third": ["x"]}))
    answers = node.prepare(good, gone, shared)
    assert isinstance(answers["g"], Prepared)
    assert isinstance(answers["s"], Prepared)
    assert answers["x"].error.startswith(Reason.CLAIM_REPLACED.code)


def test_no_claims_is_no_answer(node: Node) -> None:
    assert node.prepare() == {}
    assert node.unprepare() == {}


def test_each_refusal_and_each_change_is_told(node: Node) -> None:
    node.api.put(ONE, CHIP)
    node.prepared(ONE)
    assert (node.changes, node.refusals) == (1, [])
    node.refused(CHIP)
    assert (node.changes, node.refusals) == (1, [("c", Reason.DEVICE_HELD.code)])
    node.unprepare(ONE)
    node.unprepare(ONE)
    assert node.changes == 2


# At once


def test_one_claim_from_eight_calls_at_once_has_one_answer(node: Node) -> None:
    node.api.put(shared := claim("s", "core-0-0", "core-0-1", users=["p", "q"]))
    start = threading.Barrier(8)

    def ask() -> Prepared:
        start.wait(LONG)
        answer: Prepared = node.prepared(shared)["s"]
        return answer

    with ThreadPoolExecutor(8) as pool:
        answers = [future.result(LONG) for future in [pool.submit(ask) for _ in range(8)]]
    assert len(set(answers)) == 1
    assert node.see(answers[0]).variable("NEURON_RT_VISIBLE_CORES") == "0-1"
    assert node.files() == sorted([node.record(shared).name, node.spec(shared).name])


def test_one_core_for_eight_claims_at_once_goes_to_one(node: Node) -> None:
    claims = [claim(f"c{i}", "core-0-0", owner=f"p{i}") for i in range(8)]
    node.api.put(*claims)
    start = threading.Barrier(8)

    def ask(one: Obj) -> bool:
        start.wait(LONG)
        (answer,) = node.prepare(one).values()
        return isinstance(answer, Prepared)

    with ThreadPoolExecutor(8) as pool:
        assert sorted(pool.map(ask, claims)) == [False] * 7 + [True]
    assert len(node.files()) == 2


def test_many_claims_prepared_and_undone_at_once_leave_nothing(node: Node) -> None:
    claims = [
        claim(f"c{chip}{core}", f"core-{chip}-{core}", owner=f"p{chip}{core}") for chip in range(4) for core in range(2)
    ]
    node.api.put(*claims)

    def churn(one: Obj) -> None:
        for _ in range(10):
            node.prepared(one)
            assert set(node.unprepare(one).values()) == {""}

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(churn, claims))
    assert node.files() == []


# Waiting


def test_a_prepare_that_waits_for_a_held_device_is_released_by_its_unprepare(node: Node) -> None:
    node.api.put(ONE, CHIP)
    node.start(wait=LONG)
    node.prepared(ONE)
    with calling(node, CHIP) as answer:
        wait_until(lambda: node.api.reads.count("claim c") >= 2, "tried again")
        node.unprepare(ONE)
        assert isinstance(answer()["c"], Prepared)
    assert node.refusals == []


def test_bc048_another_instances_unprepare_is_noticed_too(node: Node) -> None:
    node.api.put(ONE, CHIP)
    node.prepared(ONE)
    first = node.service
    node.start(wait=LONG)
    with calling(node, CHIP) as answer:
        wait_until(lambda: node.api.reads.count("claim c") >= 2, "tried again")
        first.unprepare([ref(ONE)])
        assert isinstance(answer()["c"], Prepared)


def test_what_stays_held_is_refused_within_the_bound_and_says_what_was_waited_for(node: Node) -> None:
    node.api.put(ONE, CHIP)
    node.start(wait=0.3)
    node.prepared(ONE)
    started = time.monotonic()
    error = node.refused(CHIP)
    assert 0.3 <= time.monotonic() - started < 5
    assert "waiting for its pod to end" in error
    assert "deleted and made again" not in error
    assert node.refusals == [("c", Reason.DEVICE_HELD.code)]


def test_waiting_ends_before_the_kubelets_deadline(node: Node, caller: Callable[..., Caller]) -> None:
    node.api.put(ONE, CHIP)
    node.start(wait=LONG)
    node.prepared(ONE)
    started = time.monotonic()
    assert Reason.DEVICE_HELD.code in node.refused(CHIP, call=caller(remaining=5.2))
    assert time.monotonic() - started < 5


def test_what_waiting_cannot_cure_is_answered_at_once_also_for_the_others(node: Node) -> None:
    """The kubelet fails the whole call for one error."""
    two = [claim("x", "core-0-0", users=["r"]), claim("y", "core-9-9", users=["r"])]
    node.api.put(ONE, *two, pod("r", {"first": ["x"], "second": ["y"]}))
    node.start(wait=LONG)
    node.prepared(ONE)
    started = time.monotonic()
    answers = node.prepare(*two)
    assert time.monotonic() - started < 5
    assert answers["x"].error.startswith(Reason.DEVICE_HELD.code)
    assert answers["y"].error.startswith(Reason.UNKNOWN_DEVICE.code)


def test_more_calls_than_may_wait_are_answered_at_once(node: Node) -> None:
    """Those that wait need an Unprepare, which needs a worker."""
    others = [claim(f"c{i}", "core-0-0", owner=f"q{i}") for i in range(2)]
    node.api.put(ONE, *others)
    node.start(wait=LONG, waiting=1)
    node.prepared(ONE)
    with calling(node, others[0]) as answer:
        wait_until(lambda: node.api.reads.count("claim c0") >= 2, "tried again")
        assert Reason.DEVICE_HELD.code in node.refused(others[1])
        node.unprepare(ONE)
        assert isinstance(answer()["c0"], Prepared)


def test_a_device_in_use_is_waited_for(node: Node) -> None:
    node.api.put(ONE)
    node.prepared(ONE)
    node.start(wait=LONG)
    use_memory(node.machine, 0, 0, 4096)
    node.api.put(claim("a", "core-1-0", owner="p"))
    reads = len(node.api.reads)
    with calling(node, ONE) as answer:
        wait_until(lambda: len(node.api.reads) >= reads + 2, "tried again")
        use_memory(node.machine, 0, 0, 0)
        assert isinstance(answer()["a"], Prepared)


# The API


@pytest.mark.parametrize("error", [AWAY, ServerError("500", status=500)])
def test_an_api_that_fails_once_for_the_second_claim_of_a_unit_is_asked_again_inside_the_call(
    node: Node, error: Exception
) -> None:
    two = [claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")]
    node.api.put(*two, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    node.api.fail(two[1], error)
    node.start(wait=LONG)
    answers = node.prepared(*two)
    assert node.see(*answers.values()).variable("NEURON_RT_VISIBLE_CORES") == "0-1"


def test_an_api_that_stays_away_is_named_within_the_bound_and_nothing_is_left(node: Node) -> None:
    node.api.put(ONE)
    node.api.away(AWAY)
    node.start(wait=0.3)
    started = time.monotonic()
    error = node.refused(ONE)
    assert time.monotonic() - started < 5
    assert error.startswith(Reason.CLAIM_UNREADABLE.code)
    assert "connection refused" in error
    assert node.files() == []
    node.api.away(None)
    node.prepared(ONE)


def test_a_claim_that_the_api_does_not_know_is_not_waited_for(node: Node) -> None:
    node.start(wait=LONG)
    started = time.monotonic()
    assert Reason.CLAIM_REPLACED.code in node.refused(ONE)
    assert time.monotonic() - started < 5
    node.api.away(NotFound("404", status=404))
    assert Reason.CLAIM_REPLACED.code in node.refused(ONE)


def test_after_a_wait_the_claim_is_read_again(node: Node) -> None:
    """It was allocated anew meanwhile: what was planned first isn't what is prepared."""
    shared = claim("s", "core-0-0", users=["p"])
    node.api.put(shared, ONE)
    node.start(wait=LONG)
    node.prepared(ONE)
    with calling(node, shared) as answer:
        wait_until(lambda: node.api.reads.count("claim s") >= 2, "tried again")
        node.api.put(claim("s", "core-2-1", users=["p"]))
        (device,) = answer()["s"].devices  # type: ignore[union-attr]
    assert device.device == "core-2-1"


# Late and given up


def test_a_prepare_that_is_overtaken_by_its_unprepare_leaves_nothing(node: Node) -> None:
    node.api.put(ONE)
    node.start(wait=LONG)
    started = time.monotonic()
    come, go_on = node.api.gate("a")
    with calling(node, ONE) as answer:
        assert come.wait(LONG)
        assert node.unprepare(ONE) == {"a": ""}
        go_on.set()
        assert answer()["a"].error.startswith(Reason.NO_LONGER_WANTED.code)  # type: ignore[union-attr]
    assert time.monotonic() - started < 5, "there is nothing to wait for"
    assert node.files() == []
    assert node.refusals == []
    node.prepared(ONE)  # a later call is another matter


def test_an_unprepare_of_another_claim_overtakes_nothing(node: Node) -> None:
    node.api.put(ONE)
    come, go_on = node.api.gate("a")
    with calling(node, ONE) as answer:
        assert come.wait(LONG)
        node.unprepare(CHIP)
        go_on.set()
        assert isinstance(answer()["a"], Prepared)


def test_a_waiting_prepare_that_is_undone_stops_waiting_and_leaves_nothing(node: Node) -> None:
    node.api.put(ONE, CHIP)
    node.start(wait=LONG)
    node.prepared(ONE)
    with calling(node, CHIP) as answer:
        wait_until(lambda: node.api.reads.count("claim c") >= 2, "tried again")
        node.unprepare(CHIP)
        node.unprepare(ONE)
        assert answer()["c"].error.startswith(Reason.NO_LONGER_WANTED.code)  # type: ignore[union-attr]
    assert node.files() == []


def test_a_call_that_was_given_up_leaves_nothing(node: Node, caller: Callable[..., Caller]) -> None:
    node.api.put(ONE)
    come, go_on = node.api.gate("a")
    call = caller()
    with calling(node, ONE, call=call) as answer:
        assert come.wait(LONG)
        call.given_up.set()
        go_on.set()
        assert answer()["a"].error.startswith(Reason.NO_LONGER_WANTED.code)  # type: ignore[union-attr]
    assert node.files() == []


def test_a_call_that_is_given_up_while_it_waits_ends(node: Node, caller: Callable[..., Caller]) -> None:
    node.api.put(ONE, CHIP)
    node.start(wait=LONG)
    node.prepared(ONE)
    call = caller()
    started = time.monotonic()
    with calling(node, CHIP, call=call) as answer:
        wait_until(lambda: node.api.reads.count("claim c") >= 2, "tried again")
        call.given_up.set()
        assert isinstance(answer()["c"], Failed)
    assert time.monotonic() - started < 5
    assert not node.record(CHIP).exists()


def test_a_second_prepare_of_a_claim_whose_first_still_runs_has_the_same_answer(node: Node) -> None:
    """The kubelet gave up the first one at its deadline, and asks again."""
    node.api.put(ONE)
    come, go_on = node.api.gate("a")
    with calling(node, ONE) as answer:
        assert come.wait(LONG)
        second = node.prepared(ONE)
        go_on.set()
        assert answer() == second


def test_bc048_a_device_changes_hands_many_times_and_stays_one_claims(node: Node) -> None:
    node.start(wait=LONG)
    for turn in range(30):
        one = claim(f"c{turn}", "core-0-0", owner=f"p{turn}")
        node.api.put(one)
        answer = node.prepared(one)[f"c{turn}"]
        assert node.see(answer).variable("NEURON_RT_VISIBLE_CORES") == "0"
        assert list(node.ledger.held()) == ["core-0-0"]
        node.unprepare(one)
    assert node.files() == []
