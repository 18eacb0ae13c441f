"""What a device takes of the node's own resources: one form in 1.36, another from 1.37 on, both alpha."""

from collections.abc import Mapping
from typing import Any

from dra_driver.inventory.lint.findings import At

Decoded = Mapping[str, Any]


def mappings(at: At, found: Decoded, capacity: Decoded) -> None:
    """`nodeAllocatableResourceMappings` of 1.36; without a multiplier that is 1, so an empty one is good."""
    for name, mapping in found.items():
        here = at[name]
        if "/" in name and "kubernetes.io/" not in name:
            here.refuse("native-resource", f"{name!r} isn't a resource of Kubernetes' own")
        _positive(here, mapping, "allocationMultiplier")
        _capacity_key(here, mapping, capacity)


def allocatable(at: At, found: Decoded, capacity: Decoded) -> None:
    """`nodeAllocatableResources` of 1.37."""
    for name, entry in found.items():
        here = at[name]
        if name not in ("cpu", "memory") and not name.startswith("hugepages-"):
            here.refuse("native-resource", f"{name!r} isn't cpu, memory or hugepages-<size>")
        if not entry.keys() & {"mapping", "overhead"}:
            here.refuse("mapping-empty", "mapping or overhead must be set")
        if "mapping" in entry:
            _mapping(here["mapping"], entry["mapping"], capacity)
        if "overhead" in entry:
            _overhead(here["overhead"], entry["overhead"])


def _mapping(at: At, mapping: Decoded, capacity: Decoded) -> None:
    if ("capacityKey" in mapping) == ("deviceMultiplier" in mapping):
        at.refuse("mapping-one", "exactly one of capacityKey and deviceMultiplier must be set")
    if ("capacityKey" in mapping) != ("capacityMultiplier" in mapping):
        at.refuse("mapping-pair", "capacityKey and capacityMultiplier need each other")
    _capacity_key(at, mapping, capacity)
    if "capacityKey" in mapping:
        _positive(at, mapping, "capacityMultiplier")
    _positive(at, mapping, "deviceMultiplier")


def _capacity_key(at: At, mapping: Decoded, capacity: Decoded) -> None:
    if "capacityKey" in mapping and mapping["capacityKey"] not in {key for key in capacity if key}:
        at["capacityKey"].refuse("capacity-key", f"the device has no capacity {mapping['capacityKey']!r}")


def _positive(at: At, fields: Decoded, name: str) -> None:
    if name in fields and fields[name].value <= 0:
        at[name].refuse("multiplier", "must be above zero")


def _overhead(at: At, overhead: Decoded) -> None:
    if not overhead.keys() & {"perPod", "perContainer"}:
        at.refuse("overhead-empty", "perPod or perContainer must be set")
    for name in overhead:
        if overhead[name].value < 0:
            at[name].refuse("overhead-negative", "must not be negative")
