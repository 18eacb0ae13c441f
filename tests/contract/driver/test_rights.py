"""Each right taken away in turn: what the daemon says, and that it lives on and recovers (BC-099).

First what it finds by asking for its rights, then what each one that is missing does to the work.
"""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.claims.refusals import Reason
from dra_driver.cluster.rights import CREATE_EVENTS, GET_PODS, REVIEWS, RIGHTS, Right
from dra_driver.simulator import machines
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.resources import RESOURCES
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


def take(rig: Rig, right: Right) -> None:
    forbid(rig, right.verb, RESOURCES[right.resource].path())


def found_missing(rig: Rig) -> float:
    ((_, number),) = rig.metrics("coreslice_rights_missing")
    return number


def asked(rig: Rig) -> int:
    return len(rig.server.audit.rows("create", REVIEWS))


@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: f"{right.verb}-{right.resource}")
def test_bc099_missing_right_is_named_before_anybody_needs_it(rig: Rig, right: Right) -> None:
    """In the log, in readiness and as a metric, and on the node as far as Events may be written."""
    take(rig, right)
    rig.launch()
    line = rig.wait_said(f"^can't {right.verb} {right.resource}: ")
    assert str(right) in line["message"]
    assert right.rule in line["message"]
    assert line["level"] == "WARNING"
    eventually(lambda: found_missing(rig) == 1, "the metric", seen=rig.process.tail)
    eventually(lambda: str(right) in rig.said("^(not )?ready$")[-1]["why"], "in readiness", seen=rig.process.tail)
    if right == CREATE_EVENTS:
        assert rig.said("^event RightMissing not recorded") == [], "it isn't even tried"
    else:
        assert any(str(right) in text for text in rig.wait_events("RightMissing"))
    assert rig.health("liveness") == "SERVING", "a restart would heal nothing"
    rig.process.check()


@pytest.mark.parametrize("right", [RIGHTS[0], GET_PODS, CREATE_EVENTS], ids=str)
def test_bc099_right_that_publishing_does_without_leaves_the_node_ready(rig: Rig, right: Right) -> None:
    take(rig, right)
    rig.start()
    assert str(right) in rig.wait_ready_because(f"can't {right.verb} {right.resource}")
    assert len(rig.device_names()) == 3


def test_bc099_nothing_is_said_and_each_right_asked_once_where_none_is_missing(rig: Rig) -> None:
    rig.start()
    eventually(rig.rights_asked, "all asked", seen=rig.process.tail)
    rig.unprepare(rig_core(rig))
    assert asked(rig) == len(RIGHTS)
    assert found_missing(rig) == 0
    assert rig.said("^can't|rights") == []
    assert rig.server.audit.rows("create", REVIEWS)[0].code == 201


def rig_core(rig: Rig) -> Any:
    """A claim that was prepared."""
    rig.prepare(ref := rig.core("a"))
    return ref


def test_bc099_registration_doesnt_wait_for_the_answers(rig: Rig) -> None:
    met = rig.server.faults.plant(Fault(hold=threading.Event()), verb="create", prefix=REVIEWS, times=None)
    rig.start()
    eventually(met, "asked", seen=rig.process.tail)
    rig.prepare(rig.core("a"))
    assert rig.said("^can't|rights") == []


def test_bc099_right_to_get_pods_isnt_asked_for_where_the_setting_does_without(rig: Rig) -> None:
    take(rig, GET_PODS)
    rig.start("--read-pods=false")
    eventually(lambda: asked(rig) >= len(RIGHTS) - 1, "all asked", seen=rig.process.tail)
    rig.unprepare(rig_core(rig))
    assert asked(rig) == len(RIGHTS) - 1
    assert found_missing(rig) == 0
    assert rig.said("^can't") == []


@pytest.mark.parametrize("code", [403, 404])
def test_bc099_server_that_answers_no_such_question_is_told_of_once(rig: Rig, code: int) -> None:
    met = rig.server.faults.plant(Fault(code=code, message="no reviews"), verb="create", prefix=REVIEWS, times=None)
    rig.start()
    line = rig.wait_said("^whether rights are missing can't be told: ")
    assert "no reviews" in line["message"]
    rig.unprepare(rig_core(rig))
    assert met() == 1
    assert found_missing(rig) == 0
    assert rig.events("RightMissing") == []


def test_bc099_question_without_an_answer_is_asked_again(rig: Rig) -> None:
    take(rig, GET_PODS)
    met = rig.server.faults.plant(Fault(code=503), verb="create", prefix=REVIEWS, times=2)
    rig.start()
    rig.wait_said("^can't get pods: ")
    assert met() == 2


def test_bc099_right_that_was_granted_is_seen_with_the_next_claim(rig: Rig) -> None:
    """No clock asks: what happens on the node does."""
    take(rig, RIGHTS[0])
    rig.start("--prepare-wait=0")
    rig.wait_said("^can't get resourceclaims: ")
    eventually(lambda: found_missing(rig) == 1, "the metric", seen=rig.process.tail)
    rig.server.faults.clear()
    rig.prepare(rig.core("a"))
    rig.wait_said("^the account can get resourceclaims now$")
    eventually(lambda: found_missing(rig) == 0, "the metric", seen=rig.process.tail)
    eventually(lambda: "can't" not in rig.said("^(not )?ready$")[-1]["why"], "readiness", seen=rig.process.tail)


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
