"""The rules for a slice's spec: what the registry of resource.k8s.io validates when a slice is created."""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.inventory import limits
from dra_driver.inventory.lint import device, names
from dra_driver.inventory.lint.findings import At
from dra_driver.inventory.lint.nodes import chosen

Decoded = Mapping[str, Any]
DEVICES = 128
CONSUMED_134 = 32  # counters that one device names
OPERATIONS = ("NodePrepareResources", "NodeUnprepareResources", "*")
_WHERE = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")


def check(at: At, spec: Decoded) -> None:
    """A decoded spec, without what the server drops."""
    names.driver_name(at["driver"], spec.get("driver", ""))
    _pool(at["pool"], spec.get("pool", {}))
    _where(at, spec)
    _devices(at["devices"], spec)
    _counter_sets(at["sharedCounters"], spec.get("sharedCounters", []))
    if at.minor < limits.SEPARATE_COUNTERS_MINOR:
        _together(at, spec)
    elif "devices" in spec and "sharedCounters" in spec:
        at.refuse("separate-counters", "from 1.35 on a slice has either devices or sharedCounters, be they empty")
    if "partitionTypeAttribute" in spec:
        _partition_type(at, spec, spec["partitionTypeAttribute"])
    _operations(at["skipNodeOperations"], spec.get("skipNodeOperations", []))


def _pool(at: At, pool: Decoded) -> None:
    name = pool.get("name", "")
    if names.size(name) > limits.POOL_NAME:
        at["name"].refuse("pool-name", f"{names.size(name)} bytes, at most {limits.POOL_NAME} are allowed")
    for part in name.split("/"):
        names.dns_subdomain(at["name"], part)
    if pool.get("resourceSliceCount", 0) <= 0:
        at["resourceSliceCount"].refuse("slice-count", "must be above zero")
    if pool.get("generation", 0) < 0:
        at["generation"].refuse("generation", "must not be negative")


def _where(at: At, spec: Decoded) -> None:
    fields = chosen(at, spec, ("allNodes", "perDeviceNodeSelection"))
    if len(spec.get("nodeSelector", {}).get("nodeSelectorTerms", "1")) > 1:
        at["nodeSelector"]["nodeSelectorTerms"].refuse("node-selector-terms", "must have exactly one term")
    if len(fields) != 1:
        at.refuse("slice-node", f"exactly one of {', '.join(_WHERE)} is required, not {', '.join(fields) or 'none'}")


def _devices(at: At, spec: Decoded) -> None:
    devices = spec.get("devices", [])
    if len(devices) > (most := most_devices(at.minor, devices)):
        at.refuse("device-count", f"{len(devices)} devices, at most {most} are allowed here")
        return
    device.unique(at, [found.get("name", "") for found in devices], "device")
    for index, found in enumerate(devices):
        device.check(at[index], found, selects_node=spec.get("perDeviceNodeSelection", False))


def most_devices(minor: int, devices: Sequence[Decoded]) -> int:
    """It depends on what they use (BC-017)."""
    if minor < limits.SEPARATE_COUNTERS_MINOR:
        return DEVICES
    dear = any(found.get("taints") or found.get("consumesCounters") for found in devices)
    return limits.DEVICES_PER_SLICE if dear or any(map(device.has_lists, devices)) else DEVICES


def _counter_sets(at: At, sets: Sequence[Decoded]) -> None:
    if at.minor >= limits.SEPARATE_COUNTERS_MINOR and len(sets) > limits.COUNTER_SETS_PER_SLICE:
        at.refuse("counter-sets", f"{len(sets)} counter sets, at most {limits.COUNTER_SETS_PER_SLICE} are allowed")
    device.unique(at, [found.get("name", "") for found in sets], "counter set")
    for index, found in enumerate(sets):
        names.dns_label(at[index]["name"], found.get("name", ""))
        device.counters(at[index]["counters"], found.get("counters", {}))


def _together(at: At, spec: Decoded) -> None:
    """The layout of 1.34: what a device draws on must be in the same slice (BC-032)."""
    sets = {found.get("name", ""): found.get("counters", {}) for found in spec.get("sharedCounters", ())}
    totals = [sum(len(found.get("counters", {})) for found in spec.get("sharedCounters", ()))]
    if totals[0] > limits.COUNTERS_PER_COMBINED_SLICE:
        at["sharedCounters"].refuse(
            "counter-count", f"{totals[0]} counters, 1.34 takes {limits.COUNTERS_PER_COMBINED_SLICE} in a slice"
        )
    used = []
    for index, found in enumerate(spec.get("devices", ())):
        here, entries = at["devices"][index], found.get("consumesCounters", [])
        used.append(sum(len(entry.get("counters", {})) for entry in entries))
        if used[-1] > CONSUMED_134:
            here.refuse("consumed-counters", f"{used[-1]} counters, 1.34 takes {CONSUMED_134} of a device")
        for number, entry in enumerate(entries):
            _reference(here["consumesCounters"][number], entry, sets)
    if sum(used) > limits.DRAWS_PER_COMBINED_SLICE:
        at["devices"].refuse(
            "consumed-counters", f"{sum(used)} counters, 1.34 takes {limits.DRAWS_PER_COMBINED_SLICE} in all"
        )


def _reference(at: At, entry: Decoded, sets: Mapping[str, Decoded]) -> None:
    name = entry.get("counterSet", "")
    if name not in sets:
        at["counterSet"].refuse("counter-reference", f"1.34 wants the counter set {name!r} in the same slice")
        return
    for counter in entry.get("counters", {}):
        if counter not in sets[name]:
            at["counters"][counter].refuse("counter-reference", f"counter set {name!r} has no such counter")


def _partition_type(at: At, spec: Decoded, name: str) -> None:
    here = at["partitionTypeAttribute"]
    names.qualified_name(here, name)
    if "/" not in name:
        here.refuse("fully-qualified", f"{name!r} must be <domain>/<name>")
    drawing = [(i, found) for i, found in enumerate(spec.get("devices", ())) if found.get("consumesCounters")]
    if not drawing:
        here.refuse("partition-type", "only for a slice with devices that consume counters")
    if any(finding.path == here.path and finding.severity == "refused" for finding in at.sink):
        return  # no device can have a key that isn't one
    if name.count("/") == 1:  # stricter than for keys of attributes, which may have capitals there
        names.dns_subdomain(here, name.partition("/")[0])
    bare = name.removeprefix(f"{spec.get('driver', '')}/")
    for index, found in drawing:
        attributes = found.get("attributes", {})
        if "string" not in (attributes.get(name) or attributes.get(bare) or {}):
            at["devices"][index]["attributes"][name].refuse("partition-type", "must be there and be a string")


def _operations(at: At, operations: Sequence[str]) -> None:
    device.unique(at, operations, "operation")
    for index, name in enumerate(operations):
        if name not in OPERATIONS:
            at[index].refuse("operation", f"{name!r} isn't one of {', '.join(OPERATIONS)}")
    if "NodePrepareResources" in operations and not {*operations} & {*OPERATIONS[1:]}:
        at.refuse("operation", "NodePrepareResources can't be skipped without NodeUnprepareResources")
