"""The fields of a v1 ResourceSlice by minor, and decoding as the server does it.

What decoding gives: nulls are gone or replaced by the type's empty value, unknown fields are gone, quantities
are read. A value of the wrong type is reported and replaced by the empty value, so that one look finds all.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from dra_driver.inventory.lint.findings import At
from dra_driver.inventory.lint.names import short
from dra_driver.inventory.lint.quantity import Quantity, parse
from dra_driver.inventory.lint.timestamps import readable


@dataclass(frozen=True)
class Scalar:
    """`good` tells whether a JSON value is one."""

    name: str
    empty: Any
    good: Callable[[Any], bool]


@dataclass(frozen=True)
class Many:
    """A list, or a map by string."""

    of: "Type"
    keyed: bool = False


@dataclass(frozen=True)
class Struct:
    """Fields that every minor has, and those of some: name → (type, first minor, last minor)."""

    fields: Mapping[str, "Type"]
    some: Mapping[str, tuple["Type", int, int]] = field(default_factory=dict)

    def at(self, name: str, minor: int) -> "Type | None":
        """The type of a field, None where the minor doesn't have it."""
        if name in self.fields:
            return self.fields[name]
        kind, first, last = self.some.get(name, (None, 0, -1))
        return kind if first <= minor <= last else None


Type = Scalar | Many | Struct


def _is_int64(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_quantity(value: Any) -> bool:
    return type(value) in (str, int, float) and parse(str(value)) is not None


STRING = Scalar("a string", "", lambda value: isinstance(value, str))
BOOL = Scalar("true or false", False, lambda value: isinstance(value, bool))
INT64 = Scalar("a 64-bit integer", 0, _is_int64)
QUANTITY = Scalar("a quantity", Quantity(0), _is_quantity)
TIME = Scalar("an RFC 3339 time", "", lambda value: isinstance(value, date) or readable(value))
ANY = Scalar("anything", None, lambda _: True)

STRINGS = Many(STRING)
LATER = 999

_REQUIREMENT = Struct({"key": STRING, "operator": STRING, "values": STRINGS})
_TERM = Struct({"matchExpressions": Many(_REQUIREMENT), "matchFields": Many(_REQUIREMENT)})
_SELECTOR = Struct({"nodeSelectorTerms": Many(_TERM)})
_WHERE: dict[str, Type] = {"nodeName": STRING, "nodeSelector": _SELECTOR, "allNodes": BOOL}
_COUNTERS = Many(Struct({"value": QUANTITY}), keyed=True)
_ATTRIBUTE = Struct(
    {"int": INT64, "bool": BOOL, "string": STRING, "version": STRING},
    {
        "ints": (Many(INT64), 36, LATER),
        "bools": (Many(BOOL), 36, LATER),
        "strings": (STRINGS, 36, LATER),
        "versions": (STRINGS, 36, LATER),
    },
)
_RANGE = Struct({"min": QUANTITY, "max": QUANTITY, "step": QUANTITY})
_POLICY = Struct({"default": QUANTITY, "validValues": Many(QUANTITY), "validRange": _RANGE})
_CONSUMPTION = Struct(
    {"counterSet": STRING, "counters": _COUNTERS},
    {"compatibilityGroups": (STRINGS, 37, LATER)},
)
_MAPPING_36 = Struct({"capacityKey": STRING, "allocationMultiplier": QUANTITY})
_ALLOCATABLE = Struct(
    {
        "mapping": Struct({"capacityKey": STRING, "capacityMultiplier": QUANTITY, "deviceMultiplier": QUANTITY}),
        "overhead": Struct({"perPod": QUANTITY, "perContainer": QUANTITY}),
    }
)
_DEVICE = Struct(
    {
        "name": STRING,
        "attributes": Many(_ATTRIBUTE, keyed=True),
        "capacity": Many(Struct({"value": QUANTITY, "requestPolicy": _POLICY}), keyed=True),
        "consumesCounters": Many(_CONSUMPTION),
        **_WHERE,
        "taints": Many(Struct({"key": STRING, "value": STRING, "effect": STRING, "timeAdded": TIME})),
        "bindsToNode": BOOL,
        "bindingConditions": STRINGS,
        "bindingFailureConditions": STRINGS,
        "allowMultipleAllocations": BOOL,
    },
    {
        "nodeAllocatableResourceMappings": (Many(_MAPPING_36, keyed=True), 36, 36),
        "nodeAllocatableResources": (Many(_ALLOCATABLE, keyed=True), 37, LATER),
    },
)
_SPEC = Struct(
    {
        "driver": STRING,
        "pool": Struct({"name": STRING, "generation": INT64, "resourceSliceCount": INT64}),
        **_WHERE,
        "devices": Many(_DEVICE),
        "perDeviceNodeSelection": BOOL,
        "sharedCounters": Many(Struct({"name": STRING, "counters": _COUNTERS})),
    },
    {"partitionTypeAttribute": (STRING, 37, LATER), "skipNodeOperations": (STRINGS, 37, LATER)},
)
_OWNER = Struct(
    {
        "apiVersion": STRING,
        "kind": STRING,
        "name": STRING,
        "uid": STRING,
        "controller": BOOL,
        "blockOwnerDeletion": BOOL,
    }
)
_METADATA = Struct(
    {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), STRING),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), INT64),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), TIME),
        **dict.fromkeys(("labels", "annotations"), Many(STRING, keyed=True)),
        "ownerReferences": Many(_OWNER),
        "finalizers": STRINGS,
        "managedFields": Many(ANY),
    }
)
SLICE = Struct({"apiVersion": STRING, "kind": STRING, "metadata": _METADATA, "spec": _SPEC})


def decode(at: At, kind: Type, value: Any) -> Any:
    """The value as the server has it after decoding."""
    if value is None:
        return empty(kind)
    match kind:
        case Scalar():
            return _scalar(at, kind, value)
        case Many():
            return _many(at, kind, value)
        case Struct():
            return _struct(at, kind, value)


def empty(kind: Type) -> Any:
    """What stands for null in a list or map."""
    match kind:
        case Scalar(empty=value):
            return value
        case Many(keyed=False):
            return []
        case Many() | Struct():
            return {}


def _scalar(at: At, kind: Scalar, value: Any) -> Any:
    if not kind.good(value):
        return _wrong(at, kind, kind.name, value)
    return parse(str(value)) if kind is QUANTITY else value


def _many(at: At, kind: Many, value: Any) -> Any:
    if kind.keyed:
        if not isinstance(value, Mapping):
            return _wrong(at, kind, "a map", value)
        return {key: decode(at[key], kind.of, item) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return _wrong(at, kind, "a list", value)
    return [decode(at[index], kind.of, item) for index, item in enumerate(value)]


def _struct(at: At, kind: Struct, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return _wrong(at, kind, "an object", value)
    decoded = {}
    for name, item in value.items():
        inner = kind.at(name, at.minor)
        if inner is None:
            at[name].drop("unknown-field", f"Kubernetes 1.{at.minor} has no such field here")
        elif item is not None:
            decoded[name] = decode(at[name], inner, item)
    return decoded


def _wrong(at: At, kind: Type, wanted: str, value: Any) -> Any:
    at.refuse("type", f"{short(str(value))} isn't {wanted}")
    return empty(kind)
