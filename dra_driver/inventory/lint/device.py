"""The rules for one device, after what the server drops is gone."""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.inventory import limits
from dra_driver.inventory.lint import names
from dra_driver.inventory.lint.allocatable import allocatable, mappings
from dra_driver.inventory.lint.capacity import capacities
from dra_driver.inventory.lint.findings import At
from dra_driver.inventory.lint.nodes import chosen

Decoded = Mapping[str, Any]
ATTRIBUTE_VALUES = 48  # single ones and items of lists, from 1.36 on
TAINTS, TAINTS_134 = 16, 4
EFFECTS_134, EFFECTS = ("NoExecute", "NoSchedule"), ("NoExecute", "NoSchedule", "None")
CONDITIONS = 4
GROUPS = 2
LISTS = ("ints", "bools", "strings", "versions")
VALUES = ("int", "bool", "string", "version", *LISTS)
_WHERE = ("nodeName", "nodeSelector", "allNodes")


def check(at: At, device: Decoded, *, selects_node: bool) -> None:
    """`selects_node`: the slice leaves the node to its devices."""
    names.dns_label(at["name"], device.get("name", ""))
    attributes, found = device.get("attributes", {}), device.get("capacity", {})
    if len(attributes) + len(found) > limits.ATTRIBUTES_AND_CAPACITIES:
        text = f"{len(attributes)} attributes and {len(found)} capacities, together at most"
        at.refuse("attribute-count", f"{text} {limits.ATTRIBUTES_AND_CAPACITIES} are allowed")
    if (count := sum(map(_values, attributes.values()))) > ATTRIBUTE_VALUES:
        at.refuse("attribute-values", f"{count} attribute values, at most {ATTRIBUTE_VALUES} are allowed")
    for key, value in attributes.items():
        attribute(at["attributes"][key], key, value)
    capacities(at["capacity"], found, shared=device.get("allowMultipleAllocations", False))
    _taints(at["taints"], device.get("taints", []))
    _consumption(at["consumesCounters"], device.get("consumesCounters", []))
    _where(at, device, selects_node=selects_node)
    _conditions(at, device.get("bindingConditions", []), device.get("bindingFailureConditions", []))
    mappings(at["nodeAllocatableResourceMappings"], device.get("nodeAllocatableResourceMappings", {}), found)
    allocatable(at["nodeAllocatableResources"], device.get("nodeAllocatableResources", {}), found)


def attribute(at: At, key: str, value: Decoded) -> None:
    """Exactly one value, of the right form."""
    names.qualified_name(at, key)
    fields = [name for name in VALUES if name in value]
    if len(fields) != 1:
        at.refuse("attribute-value", f"exactly one value must be set, not {', '.join(fields) or 'none'}")
    if "string" in value:
        names.value_length(at["string"], value["string"])
    if "version" in value:
        names.version(at["version"], value["version"])
    for name in LISTS:
        if value.get(name) == []:
            at[name].refuse("attribute-list-empty", "must not be empty")
    for name, rule in (("strings", names.value_length), ("versions", names.version)):
        for index, item in enumerate(value.get(name, ())):
            rule(at[name][index], item)


def has_lists(device: Decoded) -> bool:
    """Whether an attribute is a list, be it empty."""
    return any(name in value for value in device.get("attributes", {}).values() for name in LISTS)


def _values(attribute: Decoded) -> int:
    return sum(len(attribute.get(name, ())) for name in LISTS) or 1


def _taints(at: At, taints: Sequence[Decoded]) -> None:
    old = at.minor < 35  # noqa: PLR2004 - 1.35 took four times as many, and the effect None
    most, effects = (TAINTS_134, EFFECTS_134) if old else (TAINTS, EFFECTS)
    if len(taints) > most:
        at.refuse("taint-count", f"{len(taints)} taints, at most {most} are allowed")
    for index, taint in enumerate(taints):
        names.label_key(at[index]["key"], taint.get("key", ""))
        names.label_value(at[index]["value"], taint.get("value", ""))
        if (effect := taint.get("effect", "")) not in effects:
            at[index]["effect"].refuse("taint-effect", f"{effect!r} isn't one of {', '.join(effects)}")


def _consumption(at: At, consumed: Sequence[Decoded]) -> None:
    if at.minor >= limits.SEPARATE_COUNTERS_MINOR and len(consumed) > limits.COUNTER_SETS_PER_DEVICE:
        text = f"{len(consumed)} counter sets, at most {limits.COUNTER_SETS_PER_DEVICE} are allowed"
        at.refuse("consumed-sets", text)
    unique(at, [entry.get("counterSet", "") for entry in consumed], "counter set")
    for index, entry in enumerate(consumed):
        here, name = at[index], entry.get("counterSet", "")
        if not name:
            here["counterSet"].refuse("required", "must name a counter set")
        elif at.minor >= limits.SEPARATE_COUNTERS_MINOR:
            names.dns_label(here["counterSet"], name)
        counters(here["counters"], entry.get("counters", {}))
        _groups(here["compatibilityGroups"], entry.get("compatibilityGroups", []))


def counters(at: At, found: Decoded) -> None:
    """Of a counter set or of what a device draws on; any quantity will do."""
    if not found:
        at.refuse("required", "must have at least one counter")
    if at.minor >= limits.SEPARATE_COUNTERS_MINOR and len(found) > limits.COUNTERS_PER_SET:
        at.refuse("counter-count", f"{len(found)} counters, at most {limits.COUNTERS_PER_SET} are allowed")
    for name in found:
        names.dns_label(at[name], name)


def unique(at: At, keys: Sequence[str], what: str) -> None:
    """Of a list that is a set by some key."""
    seen: set[str] = set()
    for index, key in enumerate(keys):
        if key in seen:
            at[index].refuse("duplicate", f"{what} {key!r} stands twice")
        seen.add(key)


def _groups(at: At, groups: Sequence[str]) -> None:
    if len(groups) > GROUPS:
        at.refuse("group-count", f"{len(groups)} groups, at most {GROUPS} are allowed")
    unique(at, groups, "group")
    for index, group in enumerate(groups):
        names.dns_label(at[index], group)


def _where(at: At, device: Decoded, *, selects_node: bool) -> None:
    if not selects_node:
        if any(name in device for name in _WHERE):
            at.refuse("device-node", "a device has a node only where spec.perDeviceNodeSelection is true")
    elif len(fields := chosen(at, device, ("allNodes",))) != 1:
        at.refuse("device-node", f"exactly one of {', '.join(_WHERE)} is required, not {', '.join(fields) or 'none'}")


def _conditions(at: At, wanted: Sequence[str], failures: Sequence[str]) -> None:
    if bool(wanted) != bool(failures):
        missing = "bindingFailureConditions" if wanted else "bindingConditions"
        at[missing].refuse("binding-conditions", "both kinds of conditions or neither")
    for name, conditions in (("bindingConditions", wanted), ("bindingFailureConditions", failures)):
        if len(conditions) > CONDITIONS:
            at[name].refuse("binding-count", f"{len(conditions)} conditions, at most {CONDITIONS} are allowed")
        unique(at[name], conditions, "condition")
        for index, condition in enumerate(conditions):
            names.label_key(at[name][index], condition)
    if common := sorted(set(wanted) & set(failures)):
        at["bindingFailureConditions"].refuse("binding-overlap", f"{', '.join(common)} is also in bindingConditions")
