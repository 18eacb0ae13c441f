"""Each right taken away in turn: what the daemon says, and that it lives on and recovers (BC-099)."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.claims.refusals import Reason
from dra_driver.simulator import machines
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.kubelet import PrepareError
from tests.contract.driver.conftest import CLAIMS, NODE, SLICES, Rig, eventually, result

Obj = dict[str, Any]
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/"


def forbid(rig: Rig, verb: str, prefix: str) -> Callable[[], int]:
    return rig.server.faults.plant(Fault(code=403, message="RBAC says no"), verb=verb, prefix=prefix, times=None)


def names_the_right(text: str, verb: str, resource: str, group: str = "resource.k8s.io") -> bool:
    return f'verb "{verb}" on "{resource}" in API group "{group}"' in text


def grant_again(rig: Rig) -> None:
    """The administrator adds the right; nothing has to be restarted."""
    rig.server.faults.clear()
    rig.wait_ready()
    eventually(lambda: len(rig.device_names()) == 3, "all devices", seen=rig.process.tail)
    rig.prepare(rig.core("after"))


@pytest.mark.parametrize(
    ("verb", "prefix", "resource", "group"),
    [
        ("get", NODES, "nodes", ""),
        ("list", SLICES, "resourceslices", "resource.k8s.io"),
        ("create", SLICES, "resourceslices", "resource.k8s.io"),
    ],
)
def test_bc099_right_without_which_nothing_can_be_published(
    rig: Rig, verb: str, prefix: str, resource: str, group: str
) -> None:
    met = forbid(rig, verb, prefix)
    rig.launch()
    why = rig.wait_not_ready("RBAC says no")
    assert names_the_right(why, verb, resource, group), why
    assert any(names_the_right(text, verb, resource, group) for text in rig.wait_events("PublishFailed"))
    eventually(lambda: met() >= 2, "a second try", seen=rig.process.tail)
    assert rig.health("liveness") == "SERVING", "a restart would heal nothing"
    assert rig.slices() == []
    grant_again(rig)


def test_bc099_watch_of_slices(rig: Rig) -> None:
    """Published and ready: only what others do to the slices is seen late, and that is told."""
    forbid(rig, "watch", SLICES)
    rig.start()
    why = rig.wait_ready_because("changes can't be followed")
    assert names_the_right(why, "watch", "resourceslices"), why
    rig.prepare(rig.core("a"))


@pytest.mark.parametrize("verb", ["update", "delete"])
def test_bc099_right_that_a_change_needs(rig: Rig, verb: str) -> None:
    """What stands in the API stays, and readiness says that it isn't what it should be."""
    rig.start("--rescan-interval=1")
    if verb == "update":
        rig.prepare(rig.core("held"))
    before = rig.slices()
    forbid(rig, verb, SLICES)
    if verb == "update":
        machines.put(rig.machine.sysfs / "module/neuron/version", "2.31.0.0\n")
    else:
        status = {"allocatable": {"aws.amazon.com/neuron": "1"}}
        rig.store.update("nodes", {**rig.store.get("nodes", NODE), "status": status}, subresource="status")
        rig.store.delete("resourceslices", before[0]["metadata"]["name"])
    why = rig.wait_not_ready("RBAC says no")
    assert names_the_right(why, verb, "resourceslices"), why
    assert any(names_the_right(text, verb, "resourceslices") for text in rig.wait_events("PublishFailed"))
    assert rig.health("liveness") == "SERVING"
    assert rig.slices() != []


def test_bc099_get_of_claims(rig: Rig) -> None:
    rig.start("--prepare-wait=0")
    forbid(rig, "get", CLAIMS)
    with pytest.raises(PrepareError) as caught:
        rig.prepare(ref := rig.core("a"))
    assert Reason.CLAIM_UNREADABLE.code in str(caught.value)
    assert names_the_right(str(caught.value), "get", "resourceclaims")
    assert any(names_the_right(text, "get", "resourceclaims") for text in rig.wait_events("ClaimUnreadable", ref.uid))
    assert rig.health("readiness") == "SERVING"
    rig.server.faults.clear()
    rig.prepare(ref)


def test_bc099_get_of_pods(rig: Rig) -> None:
    """Only claims whose pod decides need it."""
    rig.start("--prepare-wait=0")
    forbid(rig, "get", PODS)
    rig.prepare(simple := rig.core("simple"))
    rig.unprepare(simple)
    several = owned(rig, "several", result("core-0-0", request="a"), result("core-0-1", request="b"))
    with pytest.raises(PrepareError) as caught:
        rig.prepare(several)
    assert names_the_right(str(caught.value), "get", "pods", "")
    assert rig.health("readiness") == "SERVING"


def owned(rig: Rig, name: str, *results: Obj) -> Any:
    """A claim that a pod owns, as one made from a template."""
    ref = rig.claim(name, *results)
    claim = rig.store.get("resourceclaims", name, "default")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": f"pod-of-{name}", "uid": "pod-uid", "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    claim = rig.store.update("resourceclaims", claim)
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": f"pod-of-{name}", "uid": "pod-uid"}]
    rig.store.update("resourceclaims", claim, subresource="status")
    return ref


def test_bc099_create_of_events(rig: Rig) -> None:
    """An Event is an aid: the log says what couldn't be recorded, the work goes on."""
    forbid(rig, "create", EVENTS)
    machines.put(rig.machine.sysfs / "module/neuron/version", "experimental\n")
    rig.start()
    line = rig.wait_said("^event HardwareProblem not recorded")
    assert names_the_right(line["message"], "create", "events", "")
    assert line["level"] == "WARNING"
    rig.prepare(rig.core("a"))
