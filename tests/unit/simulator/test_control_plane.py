"""Controllers and scheduler on a store, step by step: what they write, and that they come to rest."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.simulator.apiserver.store import Change, Store
from dra_driver.simulator.controllers import make_claims, release_claims
from dra_driver.simulator.objects import CLAIM_FINALIZER, condition
from dra_driver.simulator.scheduler import Scheduler

Wire = dict[str, Any]


class Plane:
    """A store with a node, classes, slices and templates, and the loops over it."""

    def __init__(self, slices: list[Wire], classes: dict[str, Wire]) -> None:
        self.store = Store()
        self.scheduler = Scheduler(self.store)
        self.store.create("nodes", {"metadata": {"name": "n1"}})
        for each in classes.values():
            self.store.create("deviceclasses", each)
        for each in slices:
            self.store.create("resourceslices", each)
        for name in classes:
            requests = [{"name": "r", "exactly": {"deviceClassName": name}}]
            spec = {"spec": {"devices": {"requests": requests}}, "metadata": {"labels": {"made": "by-template"}}}
            self.store.create("resourceclaimtemplates", {"metadata": {"name": name}, "spec": spec})

    def step(self) -> None:
        make_claims(self.store)
        release_claims(self.store)
        self.scheduler.step()

    def settle(self) -> None:
        """Steps until one writes nothing; few are enough."""
        for _ in range(5):
            version = self.store.version
            self.step()
            if self.store.version == version:
                return
        raise AssertionError("the loops don't come to rest")

    def pod(self, name: str, *templates: str, claims: list[str] | None = None, limits: Wire | None = None) -> None:
        entries = [{"name": f"t{at}", "resourceClaimTemplateName": each} for at, each in enumerate(templates)]
        entries += [{"name": f"c{at}", "resourceClaimName": each} for at, each in enumerate(claims or ())]
        container = {"name": "main", "resources": {"limits": limits or {}}}
        spec = {"containers": [container], "resourceClaims": entries}
        self.store.create("pods", {"metadata": {"name": name}, "spec": spec})

    def get(self, name: str) -> Wire:
        return self.store.get("pods", name, "default")

    def delete(self, name: str) -> None:
        self.store.delete("pods", name, namespace="default")

    def node_of(self, name: str) -> str | None:
        node: str | None = self.get(name)["spec"].get("nodeName")
        return node

    def why(self, name: str) -> str:
        scheduled = condition(self.get(name), "PodScheduled")
        assert scheduled is not None
        assert scheduled["status"] == "False"
        return f"{scheduled['reason']}: {scheduled['message']}"

    def devices(self) -> dict[str, list[str]]:
        """Allocated devices by claim."""
        return {
            claim["metadata"]["name"]: [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]
            for claim in self.store.list("resourceclaims")
            if (claim.get("status") or {}).get("allocation")
        }


@pytest.fixture
def plane(trn1: list[Wire], classes: dict[str, Wire]) -> Plane:
    classes["core"]["spec"]["extendedResourceName"] = "aws.amazon.com/neuroncore"
    classes["chip"]["spec"]["extendedResourceName"] = "aws.amazon.com/neuron"
    return Plane(trn1, classes)


def test_a_template_makes_one_claim_owned_by_its_pod(plane: Plane) -> None:
    plane.pod("a", "core")
    plane.settle()
    pod = plane.get("a")
    (claim,) = plane.store.list("resourceclaims")
    meta = claim["metadata"]
    assert meta["name"].startswith("a-t0-")
    assert meta["annotations"] == {"resource.kubernetes.io/pod-claim-name": "t0"}
    assert meta["labels"] == {"made": "by-template"}
    assert [ref["uid"] for ref in meta["ownerReferences"]] == [pod["metadata"]["uid"]]
    assert pod["status"]["resourceClaimStatuses"] == [{"name": "t0", "resourceClaimName": meta["name"]}]


def test_binding_writes_allocation_finalizer_and_user_first(plane: Plane) -> None:
    plane.pod("a", "core")
    plane.settle()
    pod = plane.get("a")
    (claim,) = plane.store.list("resourceclaims")
    assert plane.node_of("a") == "n1"
    assert claim["metadata"]["finalizers"] == [CLAIM_FINALIZER]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "a", "uid": pod["metadata"]["uid"]}]
    assert plane.devices() == {claim["metadata"]["name"]: ["core-0-0"]}
    scheduled = condition(pod, "PodScheduled")
    assert scheduled is not None
    assert scheduled["status"] == "True"
    versions = [change.version for change in plane.store.history if "allocation" in (change.obj.get("status") or {})]
    bound = [
        change.version
        for change in plane.store.history
        if change.obj.get("spec", {}).get("nodeName") and change.plural == "pods"
    ]
    assert min(versions) < min(bound)


def test_the_chip_waits_with_the_reason_and_runs_when_the_cores_are_gone(plane: Plane) -> None:
    plane.pod("a", "core")
    plane.pod("b", "core")
    plane.pod("z", "chip")
    plane.settle()
    assert (plane.node_of("a"), plane.node_of("b"), plane.node_of("z")) == ("n1", "n1", None)
    assert plane.why("z").startswith(
        "Unschedulable: 0/1 nodes are available: 1 cannot allocate all claims: claim z-t0-"
    )
    assert "chip-0: counter chip-0 has 0 of 2 left, needs 2" in plane.why("z")
    plane.delete("a")
    plane.settle()
    assert "chip-0: counter chip-0 has 1 of 2 left, needs 2" in plane.why("z")
    plane.delete("b")
    plane.settle()
    assert plane.node_of("z") == "n1"
    assert list(plane.devices().values()) == [["chip-0"]]


def test_first_come_first_served_within_a_second(plane: Plane) -> None:
    """The API's times are whole seconds, so names would decide: `a` came later than `b`."""
    plane.pod("b", "chip")
    plane.pod("a", "chip")
    plane.settle()
    assert (plane.node_of("b"), plane.node_of("a")) == ("n1", None)


def test_what_goes_free_during_a_step_is_for_the_first_in_the_queue(plane: Plane) -> None:
    plane.pod("a", "chip")
    plane.settle()

    def free(change: Change) -> None:
        """Just after `b` was told to wait, and before `c` is looked at."""
        if change.obj["metadata"]["name"] == "b" and condition(change.obj, "PodScheduled"):
            plane.store.observers.remove(free)
            plane.delete("a")

    plane.store.observers.append(free)
    plane.pod("b", "chip")
    plane.pod("c", "core")
    plane.settle()
    assert (plane.node_of("b"), plane.node_of("c")) == ("n1", None)


def test_a_waiting_pod_doesnt_stop_those_behind_it(plane: Plane) -> None:
    plane.pod("a", "core")
    plane.settle()
    plane.pod("b", "chip")
    plane.pod("c", "core")
    plane.settle()
    assert (plane.node_of("b"), plane.node_of("c")) == (None, "n1")


def test_claims_of_one_pod_are_allocated_together_or_not_at_all(plane: Plane) -> None:
    plane.pod("a", "core", "chip")
    plane.settle()
    assert plane.node_of("a") is None
    assert plane.devices() == {}
    assert "fits, but not together with the rest" in plane.why("a")


def test_a_missing_template_is_what_the_pod_waits_for(plane: Plane) -> None:
    plane.pod("a", "gone")
    plane.settle()
    assert plane.why("a") == (
        'Unschedulable: waiting for a resourceclaim to be created from resourceclaimtemplate "gone"'
    )


def test_a_missing_claim_is_what_the_pod_waits_for(plane: Plane, make_claim: Callable[..., Wire]) -> None:
    plane.pod("a", claims=["mine"])
    plane.settle()
    assert plane.why("a") == 'Unschedulable: resourceclaim "mine" not found'
    plane.store.create("resourceclaims", make_claim("mine", "core"))
    plane.settle()
    assert plane.node_of("a") == "n1"


def test_a_missing_class_is_an_error_that_is_told(plane: Plane, make_claim: Callable[..., Wire]) -> None:
    plane.store.create("resourceclaims", make_claim("odd", "nope"))
    plane.pod("a", claims=["odd"])
    plane.settle()
    assert plane.why("a") == "SchedulerError: request r0: device class nope does not exist"


def test_without_nodes(plane: Plane) -> None:
    plane.store.delete("nodes", "n1")
    plane.pod("a", "core")
    plane.settle()
    assert plane.why("a") == "Unschedulable: 0/0 nodes are available: no nodes."


def test_nodes_are_tried_in_turn_and_equal_reasons_counted(plane: Plane) -> None:
    plane.store.create("nodes", {"metadata": {"name": "n0"}})
    plane.pod("a", "chip")
    plane.settle()
    assert plane.node_of("a") == "n1"
    plane.pod("b", limits={"else.dev/x": "1"})
    plane.settle()
    assert plane.why("b") == "Unschedulable: 0/2 nodes are available: 2 Insufficient else.dev/x."


def test_two_pods_share_a_claim_and_the_last_one_frees_it(plane: Plane, make_claim: Callable[..., Wire]) -> None:
    plane.store.create("resourceclaims", make_claim("shared", "core"))
    for name in ("a", "b"):
        plane.pod(name, claims=["shared"])
    plane.settle()
    claim = plane.store.get("resourceclaims", "shared", "default")
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["a", "b"]
    plane.delete("a")
    plane.settle()
    claim = plane.store.get("resourceclaims", "shared", "default")
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["b"]
    assert plane.devices() == {"shared": ["core-0-0"]}
    plane.delete("b")
    plane.settle()
    claim = plane.store.get("resourceclaims", "shared", "default")
    assert plane.devices() == {}
    assert not claim["metadata"].get("finalizers")
    assert not claim["status"].get("reservedFor")


def test_an_allocated_claim_binds_its_next_pod_to_its_node(plane: Plane, make_claim: Callable[..., Wire]) -> None:
    plane.store.create("resourceclaims", make_claim("shared", "core"))
    plane.pod("a", claims=["shared"])
    plane.settle()
    plane.store.create("nodes", {"metadata": {"name": "n0"}})
    plane.pod("b", claims=["shared"])
    plane.settle()
    assert plane.node_of("b") == "n1"


def test_another_pods_generated_claim_is_not_for_everybody(plane: Plane) -> None:
    plane.pod("a", "core")
    plane.settle()
    (claim,) = plane.store.list("resourceclaims")
    name = claim["metadata"]["name"]
    plane.pod("thief", claims=[name])
    plane.settle()
    assert plane.why("thief") == f'Unschedulable: resourceclaim "{name}" was not created for this pod'


def test_a_claim_that_is_deleted_in_use_goes_with_its_last_pod(plane: Plane, make_claim: Callable[..., Wire]) -> None:
    plane.store.create("resourceclaims", make_claim("shared", "core"))
    plane.pod("a", claims=["shared"])
    plane.settle()
    plane.store.delete("resourceclaims", "shared", namespace="default")
    plane.pod("b", claims=["shared"])
    plane.settle()
    assert plane.devices() == {"shared": ["core-0-0"]}
    assert plane.why("b") == 'Unschedulable: resourceclaim "shared" is being deleted'
    plane.delete("a")
    plane.settle()
    assert plane.store.list("resourceclaims") == []


def test_a_pod_that_has_ended_gives_its_claim_back(plane: Plane) -> None:
    plane.pod("a", "chip")
    plane.settle()
    plane.store.patch("pods", "a", {"status": {"phase": "Succeeded"}}, namespace="default", subresource="status")
    plane.pod("b", "chip")
    plane.settle()
    assert plane.node_of("b") == "n1"


def test_extended_names_become_one_claim_of_the_pod(plane: Plane) -> None:
    plane.pod("a", limits={"aws.amazon.com/neuroncore": "2", "cpu": "1"})
    plane.settle()
    (claim,) = plane.store.list("resourceclaims")
    name = claim["metadata"]["name"]
    assert name.startswith("a-extended-resources-")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert plane.devices() == {name: ["core-0-0", "core-0-1"]}
    assert plane.get("a")["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": name,
        "requestMappings": [
            {
                "containerName": "main",
                "resourceName": "aws.amazon.com/neuroncore",
                "requestName": "container-0-request-0",
            }
        ],
    }


def test_old_pod_specs_share_one_ledger_behind_two_names(plane: Plane) -> None:
    plane.pod("a", limits={"aws.amazon.com/neuron": "1"})
    plane.pod("b", limits={"aws.amazon.com/neuroncore": "2"})
    plane.settle()
    assert (plane.node_of("a"), plane.node_of("b")) == ("n1", None)
    assert "claim <extended-resources>, request container-0-request-0: 2 of class core wanted, 0 free" in plane.why("b")
    assert len(plane.store.list("resourceclaims")) == 1
    plane.delete("a")
    plane.settle()
    assert plane.node_of("b") == "n1"


def test_a_device_plugins_amount_is_counted_by_its_own_name_only(plane: Plane) -> None:
    allocatable = {"aws.amazon.com/neuron": "1", "aws.amazon.com/neuroncore": "2"}
    plane.store.patch("nodes", "n1", {"status": {"allocatable": allocatable}}, subresource="status")
    plane.pod("a", limits={"aws.amazon.com/neuron": "1"})
    plane.pod("b", limits={"aws.amazon.com/neuroncore": "2"})
    plane.pod("c", limits={"aws.amazon.com/neuroncore": "1"})
    plane.settle()
    assert (plane.node_of("a"), plane.node_of("b"), plane.node_of("c")) == ("n1", "n1", None)
    assert plane.why("c") == "Unschedulable: 0/1 nodes are available: 1 Insufficient aws.amazon.com/neuroncore."
    assert plane.store.list("resourceclaims") == []


def test_reasons_keep_their_time_until_they_flip(plane: Plane) -> None:
    plane.pod("a", "core")
    plane.settle()
    plane.pod("b", "chip")
    plane.settle()
    first = condition(plane.get("b"), "PodScheduled")
    assert first is not None
    plane.pod("c", "core")
    plane.settle()
    second = condition(plane.get("b"), "PodScheduled")
    assert second is not None
    assert second["message"] != first["message"]
    assert second["lastTransitionTime"] == first["lastTransitionTime"]


def test_a_pod_that_is_being_deleted_is_not_scheduled(plane: Plane) -> None:
    plane.store.create(
        "pods",
        {"metadata": {"name": "a", "finalizers": ["keep.dev/it"]}, "spec": {"containers": [{"name": "main"}]}},
    )
    plane.delete("a")
    plane.settle()
    assert plane.node_of("a") is None
