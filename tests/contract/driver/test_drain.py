"""BC-095: the driver is evicted on cordon, before its consumers. It serves on until nothing is prepared."""

import signal
import threading
import time
from concurrent.futures import Future
from contextlib import AbstractContextManager

import pytest

from dra_driver.kubelet.names import registration_socket
from dra_driver.simulator.apiserver.faults import Fault
from tests.contract.driver.conftest import DRIVER, NODE, Rig, eventually, listening

NODES = "/api/v1/nodes"
BEGIN, END = "^the node is cordoned", "^serving on has ended"


def cordon(rig: Rig, *, on: bool = True) -> None:
    node = rig.store.get("nodes", NODE)
    rig.store.update("nodes", {**node, "spec": {"unschedulable": True} if on else {}})


def terminate(rig: Rig) -> Future[int]:
    """SIGTERM; the exit status comes later."""
    return rig.in_background(rig.process.stop)


def ends_at_once(rig: Rig) -> None:
    began = time.monotonic()
    assert rig.process.stop() == 0
    assert time.monotonic() - began < 5
    assert not rig.said(BEGIN)
    assert rig.sockets() == set()


def other_instance(rig: Rig, *, driver: str = DRIVER) -> AbstractContextManager[None]:
    """Somebody listens on a registration socket of that driver."""
    return listening(registration_socket(rig.paths.registry, driver, "other"))


def test_bc095_cordoned_with_a_claim_serves_until_it_is_unprepared(rig: Rig) -> None:
    rig.start("--drain-wait=300")
    rig.prepare(ref := rig.core("a"))
    rig.prepare(late := rig.core("b", "core-0-1"))
    cordon(rig)
    end = terminate(rig)
    begin = rig.wait_said(BEGIN)
    assert begin["claims"] == ["default/a", "default/b"]
    assert "at most 300 s" in begin["message"]
    rig.unprepare(ref)
    assert len(rig.sockets()) == 2, "one is left, so it is still registered"
    assert rig.health("readiness") == "SERVING"
    assert not end.done()
    rig.unprepare(late)
    began = time.monotonic()
    assert end.result() == 0
    assert time.monotonic() - began < 5
    assert (rig.records(), rig.specs(), rig.sockets()) == ([], [], set())
    (line,) = rig.said(END)
    assert line["claims"] == []
    assert 0 < line["duration_s"] < 30
    assert all(line["level"] == "INFO" for line in rig.lines())


def test_bc095_claim_of_a_pod_that_comes_meanwhile_is_served(rig: Rig) -> None:
    """A pod that tolerates the cordon; a second claim keeps the driver as the first did."""
    rig.start("--drain-wait=300")
    rig.prepare(ref := rig.core("a"))
    cordon(rig)
    end = terminate(rig)
    rig.wait_said(BEGIN)
    rig.prepare(late := rig.core("b", "core-0-1"))
    rig.unprepare(ref)
    assert len(rig.sockets()) == 2
    rig.unprepare(late)
    assert end.result() == 0


def test_ordinary_stop_with_a_claim_ends_at_once(rig: Rig) -> None:
    rig.start("--drain-wait=300")
    rig.prepare(rig.core("a"))
    cordon(rig)
    cordon(rig, on=False)
    ends_at_once(rig)
    assert len(rig.records()) == 1


def test_cordoned_without_a_claim_ends_at_once(rig: Rig) -> None:
    rig.start("--drain-wait=300")
    cordon(rig)
    reads = len(rig.server.audit.rows("get", NODES))
    ends_at_once(rig)
    assert len(rig.server.audit.rows("get", NODES)) == reads, "no reason to ask"


def test_switched_off_ends_at_once(rig: Rig) -> None:
    rig.start("--drain-wait=0")
    rig.prepare(rig.core("a"))
    cordon(rig)
    ends_at_once(rig)


def test_bc095_bound_is_kept(rig: Rig) -> None:
    rig.start("--drain-wait=1.5")
    rig.prepare(rig.core("a"))
    cordon(rig)
    began = time.monotonic()
    assert rig.process.stop() == 0
    assert 1.5 <= time.monotonic() - began < 8
    assert rig.said(END)[0]["claims"] == ["default/a"]
    assert len(rig.records()) == 1


def test_rolling_update_of_a_cordoned_node_does_not_wait(rig: Rig) -> None:
    """The new instance serves already; with maxUnavailable 0 each node would take the bound otherwise."""
    rig.start("--drain-wait=300")
    rig.prepare(rig.core("a"))
    cordon(rig)
    with other_instance(rig):
        began = time.monotonic()
        assert rig.process.stop() == 0
        assert time.monotonic() - began < 5
        assert not rig.said(BEGIN)


def test_next_instance_that_comes_ends_the_wait(rig: Rig) -> None:
    rig.start("--drain-wait=300")
    rig.prepare(rig.core("a"))
    cordon(rig)
    end = terminate(rig)
    rig.wait_said(BEGIN)
    with other_instance(rig, driver="another.example.dev"):
        assert rig.health("liveness") == "SERVING"
        assert not rig.said(END), "another driver unprepares nothing of ours"
    with other_instance(rig):
        assert end.result() == 0
    assert len(rig.records()) == 1


@pytest.mark.parametrize("status", [503, 403])
def test_api_that_does_not_say_is_not_waited_for(rig: Rig, status: int) -> None:
    rig.start("--drain-wait=300")
    rig.prepare(rig.core("a"))
    cordon(rig)
    rig.server.faults.plant(Fault(code=status), verb="get", prefix=NODES, times=None)
    ends_at_once(rig)
    assert rig.said("whether the node is being drained can't be told")


def test_api_that_hangs_is_not_waited_for(rig: Rig) -> None:
    rig.start("--drain-wait=300")
    rig.prepare(rig.core("a"))
    cordon(rig)
    rig.server.faults.plant(Fault(hold=threading.Event()), verb="get", prefix=NODES, times=None)
    began = time.monotonic()
    assert rig.process.stop() == 0
    assert time.monotonic() - began < 8
    assert not rig.said(BEGIN)


def test_kubelet_that_does_not_reach_the_driver_is_not_waited_for(rig: Rig) -> None:
    rig.start("--drain-wait=300")
    rig.prepare(rig.core("a"))
    cordon(rig)
    rig.kubelet.stop()
    for path in rig.paths.registry.glob("*-reg.sock"):
        path.unlink()
    log = rig.process.log  # as text: gRPC has its own words on a kubelet that goes
    eventually(lambda: "registering again" in log.read_text(), "noticed", seen=rig.process.tail)
    began = time.monotonic()
    assert rig.process.stop() == 0
    assert time.monotonic() - began < 8
    assert "the node is cordoned" not in log.read_text()


def test_second_signal_ends_the_wait(rig: Rig) -> None:
    rig.start("--drain-wait=300")
    rig.prepare(rig.core("a"))
    cordon(rig)
    end = terminate(rig)
    rig.wait_said(BEGIN)
    assert rig.process.stop() == -signal.SIGTERM
    assert end.result() == -signal.SIGTERM
