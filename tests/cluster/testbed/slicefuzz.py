"""ResourceSlices for comparing verdicts: valid ones of every layout, and ones with a few faults.

A slice depends on the seed and its number alone, so a disagreement is repeated by naming both. Most values come
from lists of what is just good and just bad: limits and one above, formats, empty, null, another type.
"""

import copy
import random
from collections.abc import Callable
from typing import Any

Wire = dict[str, Any]

LABELS = ("a", "a" * 63, "a" * 64, "A", "-a", "a-", "a.b", "", "é", "a_b", "0", "core-0-1", "a\n", None, 5)
SUBDOMAINS = ("node-1", "a.b.c", "a..b", "a." * 126 + "a", "a." * 126 + "ab", "-a", "A.b", "", "x" * 253, "é", None, 7)
DRIVERS = ("neuron.example.com", "d" * 63, "d" * 64, "Neuron.example.com", "", "a b", "a/b", "ÄB", None, 1)
POOLS = ("p", "d/node", "a/b/c", "", "/a", "a/", "a//b", "p" * 253, "p" * 254, "A/b", "a/" * 126 + "a", None, 3)
IDENTIFIERS = ("model", "a/b/c", "x" * 32, "x" * 33, "a-b", "9a", "_a", "example.com/x", "/x", "x/", "/", "Dom.ain/x")
KEYS = (*IDENTIFIERS, f"{'d' * 63}/x", f"{'d' * 64}/x", "", "é", "a b", "neuron.example.com/model", "a.b/x-y", "a//b")
VERSIONS = ("1.2.3", "2.30.2+0", "2.30.2.0", "01.2.3", "1.2", "v1.2.3", "1.2.3-rc.1", "1.2.3-01", "1.2.3+" + "b" * 58)
BAD_VERSIONS = ("1.2.3+" + "b" * 59, "", "garbage", "1.2.3-", "1.2.3+", "1.2.3-é", "1.2.3-a+b.c", "1.2.3\n", None, 1.2)
STRINGS = ("", "x", "x" * 64, "x" * 65, "é" * 32, "é" * 33, "日本", None, 5, True, ["x"])
PLAIN = ("1", "0", "2", "8", "10", "64", "1k", "1Ki", "1Mi", "32Gi", "1.5Gi", "100m", "2500m", "1e3", "5", 4, 1.5)
ODD = ("-1", "-1500m", "1n", "0.1n", "0.0000000001", "1E", "16Ei", "9223372036854775807", "9223372036854775808")
ODDER = ("18446744073709551616", "1e30", "+5", ".5", "5.", "+", ".", "1e-3", "1.Ki", "0.5Ki", "1e5", "1E3", "007")
NO_QUANTITY: tuple[Any, ...] = (
    "abc",
    "",
    " ",
    "1 Gi",
    "1Gi5",
    "1e",
    "1ki",
    "1KI",
    "0x10",
    "1,5",
    "\u0661",
    None,
    True,
    {},
    [],
)
QUANTITIES = (*PLAIN * 3, *ODD, *ODDER, *NO_QUANTITY)
LABEL_KEYS = (
    "a",
    "example.com/a",
    "k8s.io/x",
    "a" * 63,
    "a" * 64,
    "A_b.c",
    "",
    "/a",
    "a/",
    "a/b/c",
    "-a",
    "é",
    None,
    1,
)
LABEL_VALUES = ("", "v", "v" * 63, "v" * 64, "a_b", "-a", "a b", "é", None, 2)
EFFECTS = ("NoSchedule", "NoExecute", "None", "PreferNoSchedule", "", "noschedule", None, 1)
TIMES = ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05+02:00", "2026-01-02T03:04:05.5Z", "2026-13-02T03:04:05Z", "")
ODD_TIMES = ("2026-01-02", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z", "2026-01-02T24:00:00Z", "now", None, 5)
BOOLS = (True, False, None, "true", 1)
INTEGERS = (0, 1, -1, 2**63 - 1, -(2**63), 2**63, None, "1", 1.5, True)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in", "", None)
OPERATIONS = ("NodePrepareResources", "NodeUnprepareResources", "*", "Other", "", None)
NATIVE = (
    "cpu",
    "memory",
    "hugepages-2Mi",
    "hugepages-",
    "ephemeral-storage",
    "pods",
    "example.com/x",
    "kubernetes.io/x",
    "",
)
ANYTHING: tuple[Any, ...] = (
    None,
    "",
    "x",
    0,
    1,
    -1,
    1.5,
    True,
    False,
    [],
    {},
    [None],
    {"x": None},
    [{}],
    {"": {}},
    "1",
    ["a"],
)


class Fuzz(random.Random):
    """One slice after another; `slice(n)` is the n-th of this seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.root = seed

    def slice(self, number: int) -> Wire:
        """A v1 ResourceSlice, valid in about a third of all cases."""
        self.seed(f"{self.root}/{number}")
        made = self.valid()
        for _ in range(self.choice((0, 0, 1, 1, 1, 2, 3))):
            self.choice((self.aimed, self.aimed, self.anywhere))(made)
        return made

    def chance(self, share: float) -> bool:
        return self.random() < share

    # what is valid somewhere

    def valid(self) -> Wire:
        spec: Wire = {
            "driver": "neuron.example.com",
            "pool": {"name": "neuron.example.com/node-1", "generation": self.choice((0, 1)), "resourceSliceCount": 2},
            self.choice(("nodeName", "nodeName", "nodeName", "allNodes")): "node-1",
        }
        if "allNodes" in spec:
            spec["allNodes"] = True
        layouts = (
            self.plain,
            self.counted,
            self.counters,
            self.dear,
            self.plain,
            self.counted,
            self.counters,
            self.dear,
        )
        self.choice((*layouts, self.together, self.full))(spec)
        metadata: Wire = {"name": f"slice-{self.randrange(100)}"}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}

    def plain(self, spec: Wire) -> None:
        spec["devices"] = [self.device(i) for i in range(self.choice((1, 1, 2, 3)))]

    def counted(self, spec: Wire) -> None:
        self.plain(spec)
        for device in spec["devices"]:
            device["consumesCounters"] = [self.consumption("chips")]

    def counters(self, spec: Wire) -> None:
        names = ["chips", "cores-0", "cores-1"][: self.choice((1, 1, 2, 3))]
        spec["sharedCounters"] = [self.consumption(name, "name") for name in names]

    def together(self, spec: Wire) -> None:
        self.counted(spec)
        spec["sharedCounters"] = [{"name": "chips", "counters": {f"chip-{i}": {"value": "8"} for i in range(3)}}]

    def dear(self, spec: Wire) -> None:
        """What lies behind feature gates."""
        self.plain(spec)
        extras = (self.taints, self.binding, self.shared, self.lists, self.allocatable, self.per_device)
        for extra in self.sample((*extras, self.alpha), self.choice((1, 1, 2, 3))):
            extra(spec)

    def full(self, spec: Wire) -> None:
        """At a limit, or one above."""
        bare: list[Wire] = [{"name": f"d-{i}"} for i in range(self.choice((63, 64, 65, 127, 128, 129)))]
        spec["devices"] = bare
        heavy = self.choice(("", "", "taint", "counter", "list", "empty"))
        last = bare[-1]
        if heavy == "taint":
            last["taints"] = [self.taint()]
        elif heavy == "counter":
            last["consumesCounters"] = [self.consumption("chips")]
        elif heavy == "list":
            last["attributes"] = {"a": {"strings": ["x"]}}
        elif heavy == "empty":
            last.update({"taints": [], "consumesCounters": []})

    def device(self, index: int) -> Wire:
        attributes = {"type": {"string": "core"}, "index": {"int": index}, "driverVersion": {"version": "2.30.2+0"}}
        capacity = {"memory": {"value": self.choice(("16Gi", "1Gi", "96Gi"))}} if self.chance(0.5) else {}
        return {"name": f"core-0-{index}", "attributes": attributes, **({"capacity": capacity} if capacity else {})}

    def consumption(self, name: str, key: str = "counterSet") -> Wire:
        return {key: name, "counters": {f"chip-{i}": {"value": str(i + 1)} for i in range(self.choice((1, 1, 2)))}}

    def one(self, spec: Wire) -> Wire:
        found: Wire = self.choice(spec["devices"])
        return found

    def taint(self) -> Wire:
        taint = {"key": "example.com/bad", "effect": self.choice(EFFECTS[:3]), "value": self.choice(LABEL_VALUES[:3])}
        return taint | ({"timeAdded": self.choice(TIMES[:3])} if self.chance(0.4) else {})

    def taints(self, spec: Wire) -> None:
        self.one(spec)["taints"] = [self.taint() for _ in range(self.choice((0, 1, 1, 2, 4, 5, 16, 17)))]

    def binding(self, spec: Wire) -> None:
        for field in ("bindingConditions", "bindingFailureConditions"):
            names = [f"{field.lower()}-{i}" for i in range(self.choice((0, 1, 1, 1, 4, 5)))]
            self.one(spec)[field] = names
        self.one(spec)["bindsToNode"] = self.choice(BOOLS[:2])

    def shared(self, spec: Wire) -> None:
        device = self.one(spec)
        device["allowMultipleAllocations"] = self.choice((True, True, True, False))
        device["capacity"] = {"memory": {"value": self.quantity(), "requestPolicy": self.policy()}}

    def policy(self) -> Wire:
        policy: Wire = {}
        if self.chance(0.9):
            policy["default"] = self.quantity()
        if self.chance(0.5):
            count = self.choice((0, 1, 2, 3, 10, 11))
            policy["validValues"] = [self.quantity() for _ in range(count)] if self.chance(0.3) else list(range(count))
            policy["default"] = self.choice((self.quantity(), *policy["validValues"]))
        else:
            bounds = ("min", "max", "step")
            policy["validRange"] = {name: self.quantity() for name in bounds if self.chance(0.8)}
        return policy

    def quantity(self) -> Any:
        return self.choice(PLAIN) if self.chance(0.85) else self.choice((*ODD, *ODDER))

    def lists(self, spec: Wire) -> None:
        kinds: Wire = {"ints": [1], "bools": [True], "strings": ["x", "x" * 64], "versions": ["1.2.3"]}
        kind = self.choice(list(kinds))
        many = self.choice((0, 1, 1, 2, 43, 45, 46, 47, 48, 49))
        self.one(spec).setdefault("attributes", {})["many"] = {kind: (kinds[kind] * many)[:many]}

    def allocatable(self, spec: Wire) -> None:
        device, name = self.one(spec), self.choice(NATIVE)
        device["capacity"] = {"memory": {"value": "16Gi"}}
        key = self.choice(("memory", "memory", "other", ""))
        old = {"capacityKey": key, "allocationMultiplier": self.quantity()}
        new = {
            "mapping": {"capacityKey": key, "capacityMultiplier": self.quantity(), "deviceMultiplier": self.quantity()},
            "overhead": {"perPod": self.quantity(), "perContainer": self.quantity()},
        }
        for fields in (old, new, new["mapping"], new["overhead"]):
            self.thin(fields)
        device["nodeAllocatableResourceMappings" if self.chance(0.4) else "nodeAllocatableResources"] = {
            name: self.choice((old, new, new, new))
        }

    def thin(self, fields: Wire) -> None:
        for name in [name for name in fields if self.chance(0.35)]:
            del fields[name]

    def per_device(self, spec: Wire) -> None:
        spec.pop("nodeName", None)
        spec.pop("allNodes", None)
        spec["perDeviceNodeSelection"] = True
        for device in spec["devices"]:
            device.update(self.choice(({"nodeName": "node-1"}, {"allNodes": True}, {"nodeSelector": self.selector()})))

    def selector(self) -> Wire:
        return {"nodeSelectorTerms": [self.term() for _ in range(self.choice((1, 1, 1, 2, 0)))]}

    def term(self) -> Wire:
        operator = self.choice(OPERATORS[:6])
        values = [self.choice(LABEL_VALUES[:5]) for _ in range(self.choice((0, 1, 1, 2)))]
        fields = [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}] if self.chance(0.3) else []
        expressions = [{"key": "zone", "operator": operator, "values": values}] if self.chance(0.8) else []
        return {"matchExpressions": expressions, "matchFields": fields}

    def alpha(self, spec: Wire) -> None:
        """What 1.37 added."""
        if self.chance(0.5):
            spec["skipNodeOperations"] = [self.choice(OPERATIONS) for _ in range(self.choice((0, 1, 2, 2, 3)))]
        if self.chance(0.5):
            spec["partitionTypeAttribute"] = self.choice((*KEYS, *["neuron.example.com/type"] * 12))
        for device in spec["devices"]:
            device["consumesCounters"] = [self.consumption("chips")]
        groups = [self.choice(("a", "b", "c", *LABELS)) for _ in range(self.choice((0, 1, 2, 2, 3)))]
        self.one(spec)["consumesCounters"][0]["compatibilityGroups"] = groups

    # faults

    def aimed(self, made: Wire) -> None:
        """One fault where a rule looks, if the slice has the place."""
        spec = made.get("spec")
        if not isinstance(spec, dict):
            return
        devices = spec.get("devices")
        on_device = [d for d in devices if isinstance(d, dict)] if isinstance(devices, list) else []
        if on_device and self.chance(0.7):
            self.choice(DEVICE_FAULTS)(self, self.choice(on_device))
        else:
            self.choice(SPEC_FAULTS)(self, made, spec)

    def anywhere(self, made: Wire) -> None:
        """Any value replaced, removed or doubled; any field added."""
        places = [(inside, key) for inside, key in walk(made) if key not in ("apiVersion", "kind")]
        if not places:
            return
        inside, key = self.choice(places)
        match self.randrange(5):
            case 0:
                del inside[key]
            case 1 if isinstance(inside, list):
                inside.append(copy.deepcopy(inside[key]))
            case 2 if isinstance(inside, dict):
                inside[self.choice(("extra", "Name", "nodename", "strings", "value", "é"))] = self.choice(ANYTHING)
            case _:
                alike = [value for value in ANYTHING if type(value) is type(inside[key]) or value is None]
                inside[key] = copy.deepcopy(self.choice(alike if self.chance(0.6) else ANYTHING))


def walk(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below; of long lists the ends are enough."""
    if isinstance(value, dict):
        keys: list[Any] = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value))) if len(value) < 8 else [0, len(value) - 1]
    else:
        return []
    return [place for key in keys for place in ((value, key), *walk(value[key]))]


def _attributes(fuzz: Fuzz, device: Wire) -> None:
    """The number of attributes and capacities around the limit."""
    count, capacities = fuzz.choice((31, 32, 33)), fuzz.choice((0, 1, 5))
    device["attributes"] = {f"a{i}": {"int": i} for i in range(count - capacities)}
    device["capacity"] = {f"c{i}": {"value": "1"} for i in range(capacities)}


def _attribute(fuzz: Fuzz, device: Wire) -> None:
    kinds = {"string": STRINGS, "version": VERSIONS + BAD_VERSIONS, "int": INTEGERS, "bool": BOOLS}
    picked = fuzz.sample(sorted(kinds), fuzz.choice((0, 1, 1, 1, 1, 1, 2)))
    attributes = device.get("attributes")
    if isinstance(attributes, dict):
        attributes[fuzz.choice(KEYS)] = {kind: fuzz.choice(kinds[kind]) for kind in picked}


def _list(fuzz: Fuzz, device: Wire) -> None:
    kinds = {"strings": STRINGS, "versions": VERSIONS + BAD_VERSIONS, "ints": INTEGERS, "bools": BOOLS}
    kind = fuzz.choice(sorted(kinds))
    attributes = device.get("attributes")
    if isinstance(attributes, dict):
        attributes["list"] = {kind: [fuzz.choice(kinds[kind]) for _ in range(fuzz.choice((0, 1, 2)))]}
        if fuzz.chance(0.2):
            attributes["list"]["int"] = 1


def _capacity(fuzz: Fuzz, device: Wire) -> None:
    device["capacity"] = {fuzz.choice(KEYS): {"value": fuzz.choice(QUANTITIES)}}


def _consume(fuzz: Fuzz, device: Wire) -> None:
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


def _counter(fuzz: Fuzz, device: Wire) -> None:
    name = fuzz.choice([name for name in LABELS if isinstance(name, str)])
    counters = {name: {"value": fuzz.choice(QUANTITIES)}}
    device["consumesCounters"] = [{"counterSet": "chips", "counters": counters}]


def _taint(fuzz: Fuzz, device: Wire) -> None:
    taint = {
        "key": fuzz.choice(LABEL_KEYS),
        "value": fuzz.choice(LABEL_VALUES),
        "effect": fuzz.choice(EFFECTS),
        "timeAdded": fuzz.choice(TIMES + ODD_TIMES),
    }
    if fuzz.chance(0.7):
        taint = fuzz.taint() | dict([fuzz.choice(list(taint.items()))])
    device["taints"] = [taint]


def _conditions(fuzz: Fuzz, device: Wire) -> None:
    names = ("ready", "example.com/x", *LABEL_KEYS)
    for field in fuzz.sample(("bindingConditions", "bindingFailureConditions"), fuzz.choice((1, 2, 2))):
        device[field] = [fuzz.choice(names) for _ in range(fuzz.choice((1, 1, 2)))]


def _device_node(fuzz: Fuzz, device: Wire) -> None:
    fields: Wire = {
        "nodeName": fuzz.choice(SUBDOMAINS),
        "allNodes": fuzz.choice(BOOLS),
        "nodeSelector": fuzz.selector(),
    }
    name = fuzz.choice(sorted(fields))
    device[name] = fields[name]


def _swap(field: str, values: tuple[Any, ...]) -> Callable[[Fuzz, Wire], None]:
    def fault(fuzz: Fuzz, fields: Wire) -> None:
        fields[field] = copy.deepcopy(fuzz.choice(values))

    return fault


DEVICE_FAULTS: tuple[Callable[[Fuzz, Wire], None], ...] = (
    *(_attributes, _attribute, _attribute, _list, _capacity, _consume, _counter, _taint, _conditions, _device_node),
    _swap("name", (*LABELS, "core-0-0", "core-0-1")),
    _swap("bindsToNode", BOOLS),
    _swap("allowMultipleAllocations", BOOLS),
    _swap("attributes", ({}, None, [], {"a": None}, {"a": {}}, {"": {"int": 1}})),
    _swap("taints", ([], None, {}, [None], [{}])),
)


def _node(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
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


def _requirement(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
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


def _pool(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
    odd = {"name": POOLS, "generation": INTEGERS, "resourceSliceCount": INTEGERS}
    name = fuzz.choice(sorted(odd))
    if isinstance(spec.get("pool"), dict):
        spec["pool"][name] = fuzz.choice(odd[name])


def _driver(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
    spec["driver"] = fuzz.choice(DRIVERS)


def _sets(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
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


def _set_counter(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
    name = fuzz.choice([name for name in LABELS if isinstance(name, str)])
    spec["sharedCounters"] = [{"name": "chips", "counters": {name: {"value": fuzz.choice(QUANTITIES)}}}]
    if fuzz.chance(0.7):
        spec.pop("devices", None)


def _empty(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
    spec[fuzz.choice(("devices", "sharedCounters"))] = copy.deepcopy(fuzz.choice(([], None, {}, [None], [{}])))


def _many_counters(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
    """The totals of 1.34: 32 in all sets, 32 of a device, 1024 of all devices."""
    names = [f"c-{i}" for i in range(fuzz.choice((31, 32, 33)))]
    counters = {name: {"value": "1"} for name in names}
    spec["sharedCounters"] = [{"name": "chips", "counters": counters}]
    consumed = [{"counterSet": "chips", "counters": counters}]
    spec["devices"] = [
        {"name": f"d-{i}", "consumesCounters": consumed} for i in range(fuzz.choice((1, 31, 32, 33, 34)))
    ]
    made["spec"] = copy.deepcopy(spec)


def _metadata(fuzz: Fuzz, made: Wire, spec: Wire) -> None:
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


SPEC_FAULTS: tuple[Callable[[Fuzz, Wire, Wire], None], ...] = (
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
