"""What a real API server does to a ResourceSlice on its way in: drop what a gate forbids, then validate.

The order matters and is the reason for this module: a disabled gate takes counters away *before* validation,
so an unusable slice is accepted with 201 and nobody is told. An update keeps such fields if the stored object
already has them.
"""

from typing import Any

from dra_driver.simulator.apiserver.resources import Obj
from dra_driver.simulator.apiserver.status import Refusal

SPLIT_LAYOUT_MINOR = 35  # from here on counter sets live in slices of their own
_NODE_FIELDS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_IMMUTABLE = (("driver",), ("pool", "name"), ("nodeName",))


def drop_disabled(obj: Obj, stored: Obj | None) -> None:
    """Take the fields of the disabled DRAPartitionableDevices gate out of `obj`, in place."""
    if stored is not None and _uses_counters(stored):
        return
    spec = _spec(obj)
    spec.pop("sharedCounters", None)
    spec.pop("perDeviceNodeSelection", None)
    for device in spec.get("devices") or []:
        for field in ("consumesCounters", "nodeName", "nodeSelector", "allNodes"):
            device.pop(field, None)


def validate(obj: Obj, stored: Obj | None, minor: int) -> None:
    """Raise a 422 for what the API server of this minor refuses."""
    spec = _spec(obj)
    faults = [*_required(spec), *_node_selection(spec), *_layout(spec, minor), *_sizes(spec, minor)]
    if stored is not None:
        faults += _immutable(spec, _spec(stored))
    if faults:
        name = obj.get("metadata", {}).get("name", "")
        raise Refusal(422, f'ResourceSlice.resource.k8s.io "{name}" is invalid: ' + "; ".join(faults))


def _spec(obj: Obj) -> dict[str, Any]:
    spec: dict[str, Any] = obj.setdefault("spec", {})
    return spec


def _uses_counters(obj: Obj) -> bool:
    spec = _spec(obj)
    return bool(spec.get("sharedCounters")) or any(
        device.get("consumesCounters") for device in spec.get("devices") or []
    )


def _required(spec: dict[str, Any]) -> list[str]:
    pool = spec.get("pool") or {}
    faults = [f"spec.{name}: Required value" for name in ("driver",) if not spec.get(name)]
    if not pool.get("name"):
        faults.append("spec.pool.name: Required value")
    if (pool.get("resourceSliceCount") or 0) < 1:
        faults.append("spec.pool.resourceSliceCount: must be greater than zero")
    if (pool.get("generation") or 0) < 0:
        faults.append("spec.pool.generation: must be greater than or equal to zero")
    return faults


def _node_selection(spec: dict[str, Any]) -> list[str]:
    given = [field for field in _NODE_FIELDS if spec.get(field) is not None]
    if len(given) == 1:
        return []
    return [f"spec: exactly one of {', '.join(_NODE_FIELDS)} is required, got {given or 'none'}"]


def _layout(spec: dict[str, Any], minor: int) -> list[str]:
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    if minor >= SPLIT_LAYOUT_MINOR:
        both = devices is not None and sets is not None
        return ["spec: only one of devices and sharedCounters may be set"] if both else []
    known = {row["name"] for row in sets or []}
    used = {use["counterSet"] for row in devices or [] for use in row.get("consumesCounters") or []}
    return [f"spec.devices: no counter set {name!r} in this slice" for name in sorted(used - known)]


def _sizes(spec: dict[str, Any], minor: int) -> list[str]:
    devices, sets = spec.get("devices") or [], spec.get("sharedCounters") or []
    split = minor >= SPLIT_LAYOUT_MINOR
    limit = 64 if split and any(row.get("consumesCounters") for row in devices) else 128
    faults = [] if len(devices) <= limit else [f"spec.devices: must have at most {limit} items"]
    counters = [len(row.get("counters") or {}) for row in sets]
    if split and len(sets) > 8:  # noqa: PLR2004 the API's limit
        faults.append("spec.sharedCounters: must have at most 8 items")
    if (max(counters, default=0) if split else sum(counters)) > 32:  # noqa: PLR2004 the API's limit
        faults.append("spec.sharedCounters: must have at most 32 counters")
    names = [row.get("name") for row in devices]
    if len(set(names)) != len(names):
        faults.append("spec.devices: Duplicate value: device names")
    return faults


def _immutable(spec: dict[str, Any], stored: dict[str, Any]) -> list[str]:
    return [
        f"spec.{'.'.join(path)}: field is immutable" for path in _IMMUTABLE if _dig(spec, path) != _dig(stored, path)
    ]


def _dig(value: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        value = (value or {}).get(key)
    return value
