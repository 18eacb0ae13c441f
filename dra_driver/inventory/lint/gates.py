"""What the server silently leaves out because a feature gate is off, before it validates.

It answers 201 all the same. That is the most dangerous of its answers: without counters a chip and its cores
are given away independently.
"""

from collections.abc import Mapping
from typing import Any

from dra_driver.inventory.lint import server as gate
from dra_driver.inventory.lint.findings import At

Decoded = dict[str, Any]
Gates = Mapping[str, tuple[str, ...]]  # field → the gates that must all be on

_PARTITIONABLE = (gate.PARTITIONABLE,)
_BINDING = (gate.BINDING, gate.DEVICE_STATUS)
_SPEC: Gates = {
    "sharedCounters": _PARTITIONABLE,
    "perDeviceNodeSelection": _PARTITIONABLE,
    "partitionTypeAttribute": (gate.PARTITION_TYPE,),
    "skipNodeOperations": (gate.NODE_OPERATIONS,),
}
_DEVICE: Gates = {
    **dict.fromkeys(("consumesCounters", "nodeName", "nodeSelector", "allNodes"), _PARTITIONABLE),
    "taints": (gate.TAINTS,),
    **dict.fromkeys(("bindsToNode", "bindingConditions", "bindingFailureConditions"), _BINDING),
    "allowMultipleAllocations": (gate.CONSUMABLE,),
    **dict.fromkeys(("nodeAllocatableResources", "nodeAllocatableResourceMappings"), (gate.NODE_ALLOCATABLE,)),
}
_ATTRIBUTE: Gates = dict.fromkeys(("ints", "bools", "strings", "versions"), (gate.LISTS,))
_CAPACITY: Gates = {"requestPolicy": (gate.CONSUMABLE,)}
_CONSUMPTION: Gates = {"compatibilityGroups": (gate.COMPATIBILITY,)}

_MEANS = {
    "sharedCounters": "devices that overlap can be allocated together",
    "consumesCounters": "devices that overlap can be allocated together",
    "taints": "the device is given out as if it were well",
    "allowMultipleAllocations": "the device goes to one claim at a time",
    "compatibilityGroups": "devices that don't go together can be allocated together",
}


def drop(at: At, spec: Decoded) -> None:
    """Removes from a decoded spec what the server would, and reports it."""
    _drop(at, spec, _SPEC)
    for index, device in enumerate(spec.get("devices", ())):
        here = at["devices"][index]
        _drop(here, device, _DEVICE)
        for key, attribute in device.get("attributes", {}).items():
            _drop(here["attributes"][key], attribute, _ATTRIBUTE)
        for key, capacity in device.get("capacity", {}).items():
            _drop(here["capacity"][key], capacity, _CAPACITY)
        for number, consumption in enumerate(device.get("consumesCounters", ())):
            _drop(here["consumesCounters"][number], consumption, _CONSUMPTION)


def _drop(at: At, fields: Decoded, gates: Gates) -> None:
    for name in [name for name in fields if name in gates and not at.server.on(*gates[name])]:
        value = fields.pop(name)
        if value in ([], {}) and name not in ("nodeSelector", "requestPolicy"):
            continue  # an empty list or map isn't stored anyway
        off = " or ".join(name for name in gates[name] if not at.server.on(name))
        means = f": {_MEANS[name]}" if name in _MEANS else ""
        at[name].drop("feature-gate", f"left out where {off} is off{means}")
