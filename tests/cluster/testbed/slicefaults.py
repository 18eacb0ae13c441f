"""Faults for ResourceSlices, each where a rule looks: limits and one above, formats, combinations."""

import copy
from collections.abc import Callable
from typing import Any

from testbed.slicemaker import Maker, Wire
from testbed.slicevalues import (
    BAD_VERSIONS,
    BOOLS,
    DRIVERS,
    EFFECTS,
    INTEGERS,
    KEYS,
    LABEL_KEYS,
    LABEL_VALUES,
    LABELS,
    ODD_TIMES,
    OPERATORS,
    POOLS,
    QUANTITIES,
    STRINGS,
    SUBDOMAINS,
    TIMES,
    VERSIONS,
)


def _attributes(fuzz: Maker, device: Wire) -> None:
    """The number of attributes and capacities around the limit."""
    count, capacities = fuzz.choice((31, 32, 33)), fuzz.choice((0, 1, 5))
    device["attributes"] = {f"a{i}": {"int": i} for i in range(count - capacities)}
    device["capacity"] = {f"c{i}": {"value": "1"} for i in range(capacities)}


def _attribute(fuzz: Maker, device: Wire) -> None:
    kinds = {"string": STRINGS, "version": VERSIONS + BAD_VERSIONS, "int": INTEGERS, "bool": BOOLS}
    picked = fuzz.sample(sorted(kinds), fuzz.choice((0, 1, 1, 1, 1, 1, 2)))
    attributes = device.get("attributes")
    if isinstance(attributes, dict):
        attributes[fuzz.choice(KEYS)] = {kind: fuzz.choice(kinds[kind]) for kind in picked}


def _list(fuzz: Maker, device: Wire) -> None:
    kinds = {"strings": STRINGS, "versions": VERSIONS + BAD_VERSIONS, "ints": INTEGERS, "bools": BOOLS}
    kind = fuzz.choice(sorted(kinds))
    attributes = device.get("attributes")
    if isinstance(attributes, dict):
        attributes["list"] = {kind: [fuzz.choice(kinds[kind]) for _ in range(fuzz.choice((0, 1, 2)))]}
        if fuzz.chance(0.2):
            attributes["list"]["int"] = 1


def _capacity(fuzz: Maker, device: Wire) -> None:
    device["capacity"] = {fuzz.choice(KEYS): {"value": fuzz.choice(QUANTITIES)}}


def _consume(fuzz: Maker, device: Wire) -> None:
    entries = [
        {
            "counterSet": fuzz.choice(("chips", "chips", f"set-{i}", *LABELS)),
            "counters": {
                f"c-{j}": {"value": fuzz.choice(QUANTITIES[:20])} for j in range(fuzz.choice((0, 1, 16, 32, 33)))
            },
        }
        for i in range(fuzz.choice((1, 1, 2, 3)))
    ]
    device["consumesCounters"] = entries


def _counter(fuzz: Maker, device: Wire) -> None:
    name = fuzz.choice([name for name in LABELS if isinstance(name, str)])
    counters = {name: {"value": fuzz.choice(QUANTITIES)}}
    device["consumesCounters"] = [{"counterSet": "chips", "counters": counters}]


def _taint(fuzz: Maker, device: Wire) -> None:
    taint = {
        "key": fuzz.choice(LABEL_KEYS),
        "value": fuzz.choice(LABEL_VALUES),
        "effect": fuzz.choice(EFFECTS),
        "timeAdded": fuzz.choice(TIMES + ODD_TIMES),
    }
    if fuzz.chance(0.7):
        taint = fuzz.taint() | dict([fuzz.choice(list(taint.items()))])
    device["taints"] = [taint]


def _conditions(fuzz: Maker, device: Wire) -> None:
    names = ("ready", "example.com/x", *LABEL_KEYS)
    for field in fuzz.sample(("bindingConditions", "bindingFailureConditions"), fuzz.choice((1, 2, 2))):
        device[field] = [fuzz.choice(names) for _ in range(fuzz.choice((1, 1, 2)))]


def _device_node(fuzz: Maker, device: Wire) -> None:
    fields: Wire = {
        "nodeName": fuzz.choice(SUBDOMAINS),
        "allNodes": fuzz.choice(BOOLS),
        "nodeSelector": fuzz.selector(),
    }
    name = fuzz.choice(sorted(fields))
    device[name] = fields[name]


def _swap(field: str, values: tuple[Any, ...]) -> Callable[[Maker, Wire], None]:
    def fault(fuzz: Maker, fields: Wire) -> None:
        fields[field] = copy.deepcopy(fuzz.choice(values))

    return fault


DEVICE_FAULTS: tuple[Callable[[Maker, Wire], None], ...] = (
    *(_attributes, _attribute, _attribute, _list, _capacity, _consume, _counter, _taint, _conditions, _device_node),
    _swap("name", (*LABELS, "core-0-0", "core-0-1")),
    _swap("bindsToNode", BOOLS),
    _swap("allowMultipleAllocations", BOOLS),
    _swap("attributes", ({}, None, [], {"a": None}, {"a": {}}, {"": {"int": 1}})),
    _swap("taints", ([], None, {}, [None], [{}])),
)


def _node(fuzz: Maker, made: Wire, spec: Wire) -> None:
    fields: Wire = {
        "nodeName": fuzz.choice(SUBDOMAINS),
        "allNodes": fuzz.choice(BOOLS),
        "nodeSelector": fuzz.selector(),
        "perDeviceNodeSelection": fuzz.choice(BOOLS),
    }
    if fuzz.chance(0.6):
        for name in fields:
            spec.pop(name, None)
    for name in fuzz.sample(sorted(fields), fuzz.choice((0, 1, 1, 1, 2))):
        spec[name] = fields[name]


def _requirement(fuzz: Maker, made: Wire, spec: Wire) -> None:
    """A selector with one odd value."""
    values = [fuzz.choice(LABEL_VALUES) for _ in range(fuzz.choice((0, 1, 1, 2)))]
    odd = {"key": fuzz.choice(LABEL_KEYS), "operator": fuzz.choice(OPERATORS), "values": values}
    requirement = {"key": "zone", "operator": "In", "values": ["a"]} | dict([fuzz.choice(list(odd.items()))])
    if field := fuzz.chance(0.4):
        requirement["key"] = fuzz.choice(("metadata.name", "metadata.name", "metadata.name", "name", ""))
        requirement["values"] = [fuzz.choice(SUBDOMAINS) for _ in range(fuzz.choice((0, 1, 1, 1, 2)))]
    for name in ("nodeName", "allNodes"):
        spec.pop(name, None)
    spec["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields" if field else "matchExpressions": [requirement]}]}


def _pool(fuzz: Maker, made: Wire, spec: Wire) -> None:
    odd = {"name": POOLS, "generation": INTEGERS, "resourceSliceCount": INTEGERS}
    name = fuzz.choice(sorted(odd))
    if isinstance(spec.get("pool"), dict):
        spec["pool"][name] = fuzz.choice(odd[name])


def _driver(fuzz: Maker, made: Wire, spec: Wire) -> None:
    spec["driver"] = fuzz.choice(DRIVERS)


def _sets(fuzz: Maker, made: Wire, spec: Wire) -> None:
    """Number of counter sets and counters around the limits, names good and bad."""
    counts = (0, 1, 1, 2, 31, 32, 33)
    spec["sharedCounters"] = [
        {
            "name": f"set-{i}" if fuzz.chance(0.97) else fuzz.choice(LABELS),
            "counters": {f"c-{j}": {"value": "1"} for j in range(fuzz.choice(counts) if fuzz.chance(0.2) else 1)},
        }
        for i in range(fuzz.choice((0, 1, 2, 7, 8, 9)))
    ]
    if fuzz.chance(0.7):
        spec.pop("devices", None)


def _set_counter(fuzz: Maker, made: Wire, spec: Wire) -> None:
    name = fuzz.choice([name for name in LABELS if isinstance(name, str)])
    spec["sharedCounters"] = [{"name": "chips", "counters": {name: {"value": fuzz.choice(QUANTITIES)}}}]
    if fuzz.chance(0.7):
        spec.pop("devices", None)


def _empty(fuzz: Maker, made: Wire, spec: Wire) -> None:
    spec[fuzz.choice(("devices", "sharedCounters"))] = copy.deepcopy(fuzz.choice(([], None, {}, [None], [{}])))


def _many_counters(fuzz: Maker, made: Wire, spec: Wire) -> None:
    """The totals of 1.34: 32 in all sets, 32 of a device, 1024 of all devices."""
    names = [f"c-{i}" for i in range(fuzz.choice((31, 32, 33)))]
    counters = {name: {"value": "1"} for name in names}
    spec["sharedCounters"] = [{"name": "chips", "counters": counters}]
    consumed = [{"counterSet": "chips", "counters": counters}]
    spec["devices"] = [
        {"name": f"d-{i}", "consumesCounters": consumed} for i in range(fuzz.choice((1, 31, 32, 33, 34)))
    ]
    made["spec"] = copy.deepcopy(spec)


def _metadata(fuzz: Maker, made: Wire, spec: Wire) -> None:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u", "controller": True}
    bad = owner | {fuzz.choice(sorted(owner)): fuzz.choice(("", None, "Event", "a/b/c", "a/", "/v1", False, 5))}
    keys = [key for key in LABEL_KEYS if isinstance(key, str)]
    odd: Wire = {
        "name": fuzz.choice((*SUBDOMAINS, "a-", "a/b")),
        "generateName": fuzz.choice(
            (*SUBDOMAINS, "a-", "-", "a.-", "a.", "x" * 57 + "-", "x" * 58, "x" * 57 + "." + "y")
        ),
        "labels": {fuzz.choice(keys): fuzz.choice(LABEL_VALUES)},
        "annotations": {fuzz.choice((*keys, "A/b")): fuzz.choice(("x", "x" * 262144, "é", None, 5))},
        "ownerReferences": fuzz.choice(([owner], [bad], [owner, owner], [owner, bad], [], None)),
        "finalizers": [fuzz.choice(("orphan", "foregroundDeletion", "example.com/x", "x", "", None)) for _ in range(2)],
        "namespace": fuzz.choice(("x", "", None, 5)),
        "uid": fuzz.choice(("x", "", 5)),
        "creationTimestamp": fuzz.choice(TIMES + ODD_TIMES),
        "generation": fuzz.choice(INTEGERS),
    }
    if isinstance(made.get("metadata"), dict):
        name = fuzz.choice(sorted(odd))
        made["metadata"][name] = odd[name]
        if name == "generateName" and fuzz.chance(0.7):
            made["metadata"].pop("name", None)


SPEC_FAULTS: tuple[Callable[[Maker, Wire, Wire], None], ...] = (
    *(
        _node,
        _node,
        _requirement,
        _pool,
        _driver,
        _sets,
        _sets,
        _set_counter,
        _empty,
        _many_counters,
        _metadata,
        _metadata,
    ),
)
