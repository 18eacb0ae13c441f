"""An API that is down, slow, or says no: told, tried again, and never in the way of what needs no API."""

import threading
import time

import pytest

from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.kubelet import PrepareError
from tests.contract.driver.conftest import CLAIMS, DRIVER, SLICES, Rig, eventually

NODES = "/api/v1/nodes"
ANSWERS = [403, 404, 409, 410, 429, 500, 503]


# Publishing


def test_api_that_is_down_at_the_start(rig: Rig) -> None:
    """Registered and alive, not ready, and nothing lost once it comes."""
    rig.server.stop()
    rig.launch()
    rig.kubelet.wait_registered(DRIVER)
    why = rig.wait_not_ready("no answer from the API server")
    assert "refused" in why
    assert "it will be tried again" in why
    assert rig.health("liveness") == "SERVING", "a restart would heal nothing"
    rig.server.start()
    rig.wait_ready()
    assert len(rig.device_names()) == 3
    assert any("no answer from the API server" in text for text in rig.wait_events("PublishFailed"))


@pytest.mark.parametrize(
    ("verb", "code"), [("list", 403), ("list", 410), ("list", 500), *(("create", code) for code in ANSWERS)]
)
def test_publishing_is_refused_and_then_works(rig: Rig, verb: str, code: int) -> None:
    fault = Fault(code=code, message=f"no {verb} today")
    met = rig.server.faults.plant(fault, verb=verb, prefix=SLICES, times=None)
    rig.launch()
    rig.kubelet.wait_registered(DRIVER)
    eventually(lambda: met() >= 2, "a second try", seen=rig.process.tail)
    why = rig.wait_not_ready(f"no {verb} today")
    assert f"{verb} {SLICES}" in why
    assert str(code) in why
    if code == 403:
        assert f'missing right unless a policy refused: verb "{verb}" on "resourceslices"' in why
    assert any(f"no {verb} today" in text for text in rig.wait_events("PublishFailed"))
    assert rig.health("liveness") == "SERVING"
    rig.server.faults.clear()
    rig.wait_ready()
    assert len(rig.device_names()) == 3


def test_slow_api_delays_the_slices_and_nothing_else(rig: Rig) -> None:
    rig.server.faults.plant(Fault(hold=(gate := threading.Event())), prefix="/", times=None)
    rig.launch()
    rig.kubelet.wait_registered(DRIVER)
    assert rig.health("liveness") == "SERVING"
    assert rig.health("readiness") == "NOT_SERVING"
    began = time.monotonic()
    assert rig.process.stop() == 0, "a hanging request doesn't keep the process"
    assert time.monotonic() - began < 9
    assert rig.sockets() == set()
    gate.set()


def test_node_object_that_isnt_there_yet(rig: Rig) -> None:
    rig.store.delete("nodes", "node-1")
    rig.launch()
    why = rig.wait_not_ready("no Node object named 'node-1'")
    assert NODES in why
    assert rig.slices() == []
    rig.store.create("nodes", {"metadata": {"name": "node-1"}})
    rig.wait_ready()


@pytest.mark.parametrize("fault", ["expired", "cut", "restarted", "refused"])
def test_watch_that_breaks_is_taken_up_again(rig: Rig, fault: str) -> None:
    """And a wipe in between is made good."""
    rig.start()
    if fault == "expired":
        rig.server.expire_watches()
    elif fault == "restarted":
        rig.server.stop()
        rig.server.start()
    else:
        rig.server.faults.plant(Fault(code=403), verb="watch", times=2 if fault == "refused" else 0)
        rig.server.cut_connections()
    rig._wipe(DRIVER)
    eventually(lambda: len(rig.device_names()) == 3, "slices back", seen=rig.process.tail)
    eventually(lambda: rig.server.watches, "watched again", seen=rig.process.tail)
    rig._wipe(DRIVER)
    eventually(lambda: len(rig.device_names()) == 3, "slices back within a second", seen=rig.process.tail, within=1.0)
    rig.wait_ready()


def test_slice_that_appears_between_read_and_write(rig: Rig) -> None:
    """409 on a create: what is there is read, and made to be what it should be."""
    taken = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"00001-{DRIVER}-node-1"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "node-1",
            "pool": {"name": f"{DRIVER}/node-1", "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }

    def appear() -> None:
        rig.store.create("resourceslices", taken)

    rig.server.faults.plant(Fault(), verb="create", prefix=SLICES)  # the trial
    rig.server.faults.plant(Fault(before=appear), verb="create", prefix=SLICES)
    rig.start()
    assert next(row.code for row in rig.server.audit.rows("create", SLICES) if not row.dry_run) == 409
    assert sorted(rig.device_names()) == ["chip-0", "core-0-0", "core-0-1"]
    assert {item["spec"]["pool"]["resourceSliceCount"] for item in rig.slices()} == {2}


# Claims


@pytest.mark.parametrize("code", [401, *ANSWERS])
def test_claim_that_cant_be_read_is_refused_with_the_answer(running: Rig, code: int) -> None:
    ref = running.core(f"c{code}")
    running.server.faults.plant(Fault(code=code, message="not today"), verb="get", prefix=CLAIMS, times=None)
    with pytest.raises(PrepareError) as caught:
        running.prepare(ref)
    running.server.faults.clear()
    text = str(caught.value)
    reason = "ClaimReplaced" if code == 404 else "ClaimUnreadable"
    assert [part for part in (reason, ref.uid, f"default/c{code}") if part not in text] == [], text
    if code != 404:
        assert f"get {CLAIMS}/c{code}: {code}" in text
        assert "not today" in text
    assert running.wait_events(reason, ref.uid)
    assert (running.records(), running.specs()) == ([], [])
    running.unprepare(ref)
    running.prepare(ref)
    running.tidy()


@pytest.mark.parametrize("code", [403, 410, 500])
def test_claim_that_can_be_read_at_the_second_try_is_prepared_in_the_same_call(rig: Rig, code: int) -> None:
    """An error would cost the pod more than a minute."""
    rig.start()
    met = rig.server.faults.plant(Fault(code=code), verb="get", prefix=CLAIMS, times=2)
    assert [device.device for device in rig.prepare(rig.core("a"))] == ["core-0-0"]
    assert met() == 2


@pytest.mark.parametrize("cut", ["before", "after", "half"])
def test_claim_whose_answer_is_lost(rig: Rig, cut: str) -> None:
    rig.start()
    rig.server.faults.plant(Fault(cut=cut), verb="get", prefix=CLAIMS, times=3)
    assert len(rig.prepare(rig.core("a"))) == 1


def test_slow_claim_is_waited_for(rig: Rig) -> None:
    rig.start()
    met = rig.server.faults.plant(Fault(hold=(gate := threading.Event())), verb="get", prefix=CLAIMS)
    call = rig.in_background(lambda: rig.prepare(rig.core("a")))
    eventually(met, "the claim asked for")
    rig.prepare(rig.core("b", "core-0-1"))
    assert not call.done(), "one claim doesn't hold up another"
    gate.set()
    assert [device.device for device in call.result()] == ["core-0-0"]


def test_bc041_unprepare_needs_no_api(rig: Rig) -> None:
    rig.start("--prepare-wait=0")
    ref, other = rig.core("a"), rig.core("b", "core-0-1")
    rig.prepare(ref)
    rig.prepare(other)
    rig.store.delete("resourceclaims", "a", namespace="default")
    rig.server.stop()
    began = time.monotonic()
    rig.unprepare(ref)
    rig.unprepare(other)
    assert time.monotonic() - began < 1
    assert (rig.records(), rig.specs()) == ([], [])
    with pytest.raises(PrepareError, match=r"ClaimUnreadable: .* no answer from the API server: .*tried again"):
        rig.prepare(ref)


def test_slow_api_doesnt_slow_unprepare(rig: Rig) -> None:
    rig.start("--prepare-wait=1")
    rig.prepare(ref := rig.core("a"))
    gate = threading.Event()
    rig.server.faults.plant(Fault(hold=gate), prefix="/", times=None)
    calls = [rig.in_background(lambda n=n: rig.prepare(rig.core(f"w{n}", "core-0-1"))) for n in range(2)]  # type: ignore[misc]
    began = time.monotonic()
    rig.unprepare(ref)
    assert time.monotonic() - began < 1
    rig.server.faults.clear()
    assert sum(call.exception() is None for call in calls) == 1, "one core, one of the two"


@pytest.mark.parametrize("answer", [{}, {"metadata": "ok"}, [], "ok"], ids=repr)
def test_a_success_that_is_no_node_is_one_line_and_is_tried_again(rig: Rig, answer: object) -> None:
    """As of a proxy or a login page; a traceback would send people to look for a bug here."""
    met = rig.server.faults.plant(Fault(answer=answer), verb="get", prefix="/api/v1/nodes", times=2)
    rig.start()
    assert met()
    assert rig.said("slices failed: .*get .*node")
    assert [line for line in rig.lines() if "exception" in line or "Traceback" in str(line)] == []
    assert len(rig.device_names()) == 3
