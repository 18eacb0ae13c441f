"""ResourceSlices of every layout and feature, valid on a server that has them; at limits also one above."""

import random
from typing import Any

from testbed.slicevalues import (
    BOOLS,
    EFFECTS,
    KEYS,
    LABEL_VALUES,
    LABELS,
    NATIVE,
    ODD,
    ODDER,
    OPERATIONS,
    OPERATORS,
    PLAIN,
    TIMES,
)

Wire = dict[str, Any]


class Maker(random.Random):
    """Slices by chance; the same seed makes the same."""

    def chance(self, share: float) -> bool:
        return self.random() < share

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
