"""Pods and claims of each workload, and what is held beforehand in each state of the fleet."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from testbed.published import DRIVER

from dra_driver.inventory.classes import chip_class, core_class
from dra_driver.inventory.devices import DeviceType
from fleetbench import fleet
from fleetbench.fleet import AWS_CLASS, CHIP_RESOURCE, CHIPS, CORE_RESOURCE, CORES, Variant

Wire = dict[str, Any]
LABEL = "bench"

SIZES = {"one core": 0, "one chip": 1, "four chips": 4, "whole node": 16}  # in chips; 0: a core
MIXED = ("one core", "one core", "one core", "one core", "one chip", "four chips")
STATES = ("empty", "mixed", "full")
_EMPTY_NODES = {"empty": 1.0, "mixed": 0.3, "full": 0.1}  # the share of nodes on which nothing is held


@dataclass(frozen=True)
class Workload:
    """What the pods of one measurement ask for, by turns."""

    name: str
    kinds: Sequence[str]

    def suits(self, variant: Variant) -> bool:
        """Whether the variant has what it asks for."""
        return all(request(variant, kind) is not None for kind in self.kinds)

    def fitting(self, nodes: int, state: str, wanted: int) -> int:
        """How many pods, so that all find room with some to spare."""
        chips = sum(SIZES[kind] or CHIPS / CORES for kind in self.kinds) / len(self.kinds)
        empty = int(nodes * _EMPTY_NODES[state])
        room = empty * CHIPS + (nodes - empty) * (CHIPS // 2) * (state == "mixed" and "whole node" not in self.kinds)
        return max(1, min(wanted, int(0.7 * room / chips)))


WORKLOADS = (*(Workload(name, (name,)) for name in SIZES), Workload("mixed", MIXED))


def request(variant: Variant, kind: str) -> Wire | None:
    """The `devices` of a claim, or a container's `limits` under a device plugin; None where there is no such."""
    chips = SIZES[kind]
    if variant.style == "extended":
        return {CHIP_RESOURCE: str(chips)} if chips else {CORE_RESOURCE: "1"}
    if variant.style == "aws":
        return _counted(chips) if chips else None
    needed = DeviceType.CORE if not chips else DeviceType.CHIP if chips == 1 else DeviceType.CHIP_GROUP
    if needed not in variant.types:
        return None
    wanted = {"deviceClassName": chip_class(chips) if chips else core_class(1)}
    return {"requests": [{"name": "r", "exactly": wanted}]}


def _counted(chips: int) -> Wire:
    requests = [{"name": "r", "exactly": {"deviceClassName": AWS_CLASS, "count": chips}}]
    constraint = {"matchAttribute": f"resource.aws.com/devicegroup{chips}_id"}
    return {"requests": requests, "constraints": [constraint]} if chips > 1 else {"requests": requests}


def claim(variant: Variant, kind: str, name: str) -> Wire | None:
    """A claim, None where the pod has its wish in its limits."""
    if variant.style == "extended":
        return None
    return _claim(name, request(variant, kind) or {})


def _claim(name: str, devices: Wire) -> Wire:
    metadata = {"name": name, "labels": {LABEL: name.partition("-")[0]}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return {**kind, "metadata": metadata, "spec": {"devices": devices}}


def pod(variant: Variant, kind: str, name: str) -> Wire:
    """A pod whose processors and memory are in proportion to what it asks for."""
    share = (SIZES[kind] or CHIPS / CORES) / CHIPS * 0.98
    amounts: Wire = {
        "cpu": f"{int(fleet.NODE_CPU * share * 1000)}m",
        "memory": f"{int(fleet.NODE_MEMORY_GIB * share * 1024)}Mi",
    }
    container: Wire = {"name": "c", "image": "none", "resources": {"requests": amounts}}
    spec: Wire = {"containers": [container], "terminationGracePeriodSeconds": 0}
    if variant.style == "extended":
        container["resources"]["limits"] = request(variant, kind)
    else:
        spec["resourceClaims"] = [{"name": "d", "resourceClaimName": name}]
        container["resources"]["claims"] = [{"name": "d"}]
    metadata = {"name": name, "labels": {LABEL: name.partition("-")[0]}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def held(variant: Variant, nodes: Sequence[str], state: str) -> Iterator[tuple[Wire, Wire]]:
    """Claims and their status, as if pods of earlier held devices. Nothing under a device plugin: see `free_chips`."""
    used = nodes[: len(nodes) - int(len(nodes) * _EMPTY_NODES[state])]
    if variant.style == "extended":
        return
    for number, node in enumerate(used):
        for part, names in enumerate(fleet.chunks(_devices(variant, state, number, len(used)))):
            name = f"held-{number}-{part}"
            wanted = {"deviceClassName": "held", "count": len(names), "allocationMode": "ExactCount"}
            yield _claim(name, {"requests": [{"name": "r", "exactly": wanted}]}), _status(node, names)


def free_chips(nodes: Sequence[str], state: str) -> Mapping[str, int]:
    """What a device plugin has free on each node in that state."""
    used = len(nodes) - int(len(nodes) * _EMPTY_NODES[state])
    left = CHIPS // 2 if state == "mixed" else 0
    return {node: left if number < used else CHIPS for number, node in enumerate(nodes)}


def _devices(variant: Variant, state: str, number: int, used: int) -> list[str]:
    """Mixed: the first chips by their cores but one, the last ones whole. Full: half of the nodes by cores."""
    quarter = CHIPS // 4
    by_core = range(quarter) if state == "mixed" else range(CHIPS) if number < used / 2 else range(0)
    whole = range(CHIPS - quarter, CHIPS) if state == "mixed" else range(0) if number < used / 2 else range(CHIPS)
    if DeviceType.CORE not in variant.types:
        by_core, whole = range(0), [*by_core, *whole]  # type: ignore[assignment]
    if DeviceType.CHIP not in variant.types:
        by_core, whole = [*by_core, *whole], range(0)  # type: ignore[assignment]
    found = variant.devices()
    cores = [each.name for each in found if each.type is DeviceType.CORE and each.chips[0] in by_core]
    chips = [each.name for each in found if each.type is DeviceType.CHIP and each.chips[0] in whole]
    return [*(cores[:-1] if state == "mixed" else cores), *chips]


def _status(node: str, names: Sequence[str]) -> Wire:
    pool = f"{DRIVER}/{node}"
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": name} for name in names]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    selector = {"nodeSelectorTerms": [term]}
    return {"status": {"allocation": {"devices": {"results": results}, "nodeSelector": selector}}}
