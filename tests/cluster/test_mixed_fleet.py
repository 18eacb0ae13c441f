"""The chart's classes on a fleet of every size at every LNC, beside drivers whose devices lack our attributes.

One device that makes a selector fail stops the pod on every node, so what is shown here can't be shown on one node:
a real scheduler looks at all of them for each pod. Nodes are objects only; no kubelet, so pods are bound and no more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
from fleetbench import fleet
from fleetbench.client import Client
from fleetbench.control_plane import control_plane
from testbed.published import DRIVER, Published, classes, shapes
from testbed.waiting import until

from dra_driver.cli.classes import table
from dra_driver.inventory.classes import sized_classes
from dra_driver.inventory.offer import Offer
from dra_driver.neuron.catalogue import SIZES

Wire = dict[str, Any]
pytestmark = pytest.mark.cluster

OURS = [f"{shape}".replace(".", "-") for shape in shapes()]  # nodes, one for each size at each LNC
FOREIGN, OLDER = "foreign-node", "older-node"
FOREIGN_DRIVER = "gpu.example.com"
NAMES = [each.name for each in sized_classes()]
SECONDS = 60.0
NO_ROOM = "cannot allocate all claims"


@dataclass(frozen=True)
class Fleet:
    """`promised` are the nodes of each class by the table that `coreslice classes` prints."""

    client: Client
    published: dict[str, Published]  # by node
    promised: dict[str, frozenset[str]]
    runs: Iterator[int] = field(default_factory=count)

    def run(self, device_class: str, nodes: Sequence[str | None]) -> list[Wire]:
        """One pod for each of the nodes, or for any (None), each with a claim of one device; once all are decided.

        No name comes twice: a scheduler that still has the last claim of that name in its cache fails to bind the new.
        """
        run = next(self.runs)
        pods = {f"p{run:02d}-{at:03d}": node for at, node in enumerate(nodes)}
        self.client.create(claim(name, device_class) for name in pods)
        self.client.create(pod(name, node) for name, node in pods.items())
        until(lambda: self.decided() == len(pods), what=f"{device_class} decided", timeout=SECONDS, seen=self.told)
        found = {each["metadata"]["name"]: each for each in self.client.items("pods")}
        return [found[name] for name in pods]

    def decided(self) -> int:
        """Pods that are bound, or were refused for want of a node."""
        return sum(bool(bound(each) or refusal(each)) for each in self.client.items("pods"))

    def told(self) -> list[tuple[str, str]]:
        """What the scheduler says of each pod."""
        return [(bound(each), refusal(each)) for each in self.client.items("pods")]

    def allocated(self) -> dict[str, tuple[str, str, str]]:
        """Driver, pool and device of each allocated claim."""
        found = {}
        for each in self.client.items("resourceclaims"):
            if allocation := each.get("status", {}).get("allocation"):
                (result,) = allocation["devices"]["results"]
                found[each["metadata"]["name"]] = (result["driver"], result["pool"], result["device"])
        return found

    def clear(self) -> None:
        """No pods and claims; there is no controller to take the scheduler's finalizers away."""
        self.client.empty("pods")
        for each in self.client.items("resourceclaims"):
            if each["metadata"].get("finalizers"):
                self.client.merge("resourceclaims", each["metadata"]["name"], {"metadata": {"finalizers": None}})
        self.client.empty("resourceclaims")
        until(lambda: not self.client.items("resourceclaims"), what="claims gone", timeout=SECONDS)


def claim(name: str, device_class: str) -> Wire:
    devices = {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class}}]}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**kind, "metadata": {"name": name}, "spec": {"devices": devices}}


def pod(name: str, node: str | None) -> Wire:
    """For that node, or for any."""
    container = {"name": "c", "image": "none", "resources": {"claims": [{"name": "d"}]}}
    spec: Wire = {"containers": [container], "resourceClaims": [{"name": "d", "resourceClaimName": name}]}
    if node:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        spec["affinity"] = {"nodeAffinity": required}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def bound(found: Wire) -> str:
    """Its node; empty while it has none."""
    return str(found["spec"].get("nodeName") or "")


def refusal(found: Wire) -> str:
    """Why the scheduler found none; empty while it hasn't said so."""
    conditions = found["status"].get("conditions") or ()
    said = [each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"]
    return f"{said[0].get('reason')}: {said[0].get('message')}" if said else ""


def foreign_slices(node: str) -> list[Wire]:
    """Another driver's, with attributes of its own in its own domain, and with none."""
    devices = [{"name": "gpu-0", "attributes": {"type": {"string": "gpu"}, "cores": {"string": "many"}}}]
    return [_slice(FOREIGN_DRIVER, node, [*devices, {"name": "gpu-1"}])]


def older_slices(node: str) -> list[Wire]:
    """Ours as of a version that had other attributes or none."""
    return [_slice(DRIVER, node, [{"name": "core-0-0"}, {"name": "old", "attributes": {"kind": {"string": "core"}}}])]


def _slice(driver: str, node: str, devices: list[Wire]) -> Wire:
    pool = {"name": f"{driver}/{node}", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}
    metadata = {"name": f"00000-{driver}-{node}"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def promised() -> dict[str, frozenset[str]]:
    rows = table(SIZES.values(), Offer())
    found: dict[str, set[str]] = {name: set() for name in NAMES}
    for row in rows:
        for given in row.given:
            if given.devices:
                found[given.name].add(f"{row.size.name}-lnc{row.lnc}".replace(".", "-"))
    return {name: frozenset(nodes) for name, nodes in found.items()}


@pytest.fixture(scope="module")
def mixed() -> Iterator[Fleet]:
    """The control plane with all nodes, slices and classes. On every node a foreign driver publishes too."""
    with control_plane() as plane:
        client, nodes = plane.client, [*OURS, FOREIGN, OLDER]
        published = {node: shape.publish(node=node) for node, shape in zip(OURS, shapes(), strict=True)}
        client.create(fleet.node(name) for name in nodes)
        client.each(lambda name: client.merge("nodes", name, fleet.node_status(), part="status"), nodes)
        client.create(item for node in nodes for item in foreign_slices(node))
        client.create(older_slices(OLDER))
        client.create(item for each in published.values() for item in each.slices)
        client.create(classes())
        yield Fleet(client, published, promised())


@pytest.fixture
def fresh(mixed: Fleet) -> Iterator[Fleet]:
    """Nothing held before and after."""
    yield mixed
    mixed.clear()


def test_every_class_is_promised_somewhere_and_nowhere_beside_our_nodes(mixed: Fleet) -> None:
    assert [name for name, nodes in mixed.promised.items() if not nodes] == []
    assert frozenset().union(*mixed.promised.values()) == set(OURS)
    assert {item["spec"]["nodeName"] for item in mixed.client.items("resourceslices")} == {*OURS, FOREIGN, OLDER}


@pytest.mark.parametrize("name", NAMES)
def test_a_class_is_allocated_on_each_node_that_the_table_promises_and_on_no_other(fresh: Fleet, name: str) -> None:
    """A pod for each node; an error of a selector would be its refusal's text, and of all other pods too."""
    nodes = [*OURS, FOREIGN, OLDER]
    pods = fresh.run(name, nodes)
    wanted = {each["metadata"]["name"]: node for each, node in zip(pods, nodes, strict=True)}
    assert {bound(each) for each in pods} - {""} == fresh.promised[name]
    refused = [refusal(each) for each in pods if not bound(each)]
    assert len(refused) == len(nodes) - len(fresh.promised[name])
    assert [text for text in refused if NO_ROOM not in text] == []
    allocated = fresh.allocated()
    assert {wanted[each]: pool for each, (_, pool, _) in allocated.items()} == {
        node: f"{DRIVER}/{node}" for node in fresh.promised[name]
    }
    for each, (driver, _, device) in allocated.items():
        assert driver == DRIVER
        assert device in fresh.published[wanted[each]].promised[name]


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_that_may_go_anywhere_finds_a_promised_node(fresh: Fleet, name: str) -> None:
    """All nodes are looked at, those of the other drivers too."""
    (found,) = fresh.run(name, [None])
    assert bound(found) in fresh.promised[name], refusal(found)


@pytest.mark.parametrize("driver_tested", [True, False])
def test_a_plain_read_stops_such_a_pod_on_all_nodes(fresh: Fleet, driver_tested: bool) -> None:  # noqa: FBT001
    """What the selectors are careful about: devices of other versions of ours, and of others, are in this fleet."""
    [careful] = [each.expression(DRIVER) for each in sized_classes() if each.name == "neuron-cores-2"]
    plain = fleet.no_optional(careful) if driver_tested else fleet.no_driver_test(fleet.no_optional(careful))
    name = f"plain-{driver_tested}".lower()
    spec = {"selectors": [{"cel": {"expression": plain}}]}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
    fresh.client.create([{**kind, "metadata": {"name": name}, "spec": spec}])
    (found,) = fresh.run(name, [None])
    assert not bound(found)
    assert "no such key: cores" in refusal(found)
