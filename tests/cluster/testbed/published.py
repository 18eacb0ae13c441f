"""What a node of any size publishes, and claims on it: input for whatever allocates, real or simulated."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dra_driver.inventory.classes import device_classes, sized_classes
from dra_driver.inventory.devices import Device, devices, from_wire, physical_cores, totals
from dra_driver.inventory.offer import Offer
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal

Wire = dict[str, Any]
Core = tuple[int, int]

DRIVER = "neuron.coreslice.dev"
NODE = "node-a"
EVERYTHING = Offer()


@dataclass(frozen=True, eq=False)
class Published:
    """The slices of one node, in the order of their names."""

    slices: Sequence[Wire]
    node: str = NODE

    @cached_property
    def devices(self) -> dict[str, Device]:
        """Each listed device by name, in the order in which the allocator tries them."""
        wires = [wire for each in self.slices for wire in each["spec"].get("devices") or ()]
        return {wire["name"]: from_wire(wire) for wire in wires}

    @cached_property
    def promised(self) -> dict[str, list[str]]:
        """What each class selects, by the driver's own table: names in order, none where it selects nothing."""
        found = {each.name: [d.name for d in self.devices.values() if each.selects(d.wire)] for each in sized_classes()}
        return {name: selected for name, selected in found.items() if selected}

    def held(self, names: Iterable[str]) -> list[tuple[str, str, str]]:
        """Devices as the allocator names them."""
        return [(DRIVER, f"{DRIVER}/{self.node}", name) for name in names]

    def cores(self, name: str) -> frozenset[Core]:
        """The physical cores of a listed device, worked out without counters."""
        return physical_cores(self.devices[name])

    def fitting(self, names: Iterable[str]) -> list[str]:
        """Of these devices, first come first served, those that overlap with none before them."""
        taken: set[Core] = set()
        fitting = []
        for name in names:
            if taken.isdisjoint(self.cores(name)):
                taken |= self.cores(name)
                fitting.append(name)
        return fitting


@dataclass(frozen=True)
class Shape:
    """A size at an LNC and with an offer: everything that decides what is published."""

    size: str
    lnc: int = 1
    offer: Offer = EVERYTHING
    label: str = ""

    def __str__(self) -> str:
        return f"{self.size}-lnc{self.lnc}{self.label}"

    @property
    def knows_lnc(self) -> bool:
        """Whether the hardware can be set to LNC 2."""
        return self.machine().chips[0].max_lnc > 1

    def machine(self) -> Machine:
        """The whole machine."""
        return nominal(SIZES[self.size])

    def publish(self, *, minor: int = 37, counters: bool = True, node: str = NODE) -> Published:
        """Its slices for an API server of that minor."""
        machine = self.machine()
        return Published(
            build(
                Pool(DRIVER, node),
                devices(machine, lnc=self.lnc),
                totals(machine),
                layout=Layout(minor, counters),
                generation=1,
                offer=self.offer,
            ),
            node,
        )


def shapes() -> list[Shape]:
    """Every size at each LNC that it has, with what is offered by default."""
    return [Shape(name, lnc) for name, size in SIZES.items() for lnc in range(1, nominal(size).chips[0].max_lnc + 1)]


def classes() -> list[Wire]:
    """The chart's classes."""
    return device_classes(DRIVER)


def uncounted(slices: Iterable[Wire]) -> list[Wire]:
    """The same devices with nothing that excludes any: for asking what a selector selects."""
    bare = []
    for each in slices:
        spec = {key: value for key, value in each["spec"].items() if key != "sharedCounters"}
        if "devices" in spec:
            spec["devices"] = [{k: v for k, v in d.items() if k != "consumesCounters"} for d in spec["devices"]]
            bare.append({**each, "spec": spec})
    for each in bare:
        each["spec"]["pool"] = {**each["spec"]["pool"], "resourceSliceCount": len(bare)}
    return bare


def claim(name: str, *requests: Wire | str, constraints: Sequence[Mapping[str, Any]] = ()) -> Wire:
    """A claim of requests; a string is a class of which it wants one device."""
    wanted = [exactly(f"r{at}", each) if isinstance(each, str) else each for at, each in enumerate(requests)]
    devices: Wire = {"requests": wanted}
    if constraints:
        devices["constraints"] = [*constraints]
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
    }


def exactly(name: str, device_class: str, **more: Any) -> Wire:
    """A request as the API server completes it: one device unless ``count`` or ``allocationMode`` says otherwise."""
    return {"name": name, "exactly": _completed({"deviceClassName": device_class, **more})}


def first_available(name: str, *alternatives: Wire) -> Wire:
    """A request for the first of some alternatives that fits."""
    return {"name": name, "firstAvailable": [_completed(each) for each in alternatives]}


def _completed(asked: Wire) -> Wire:
    mode = asked.get("allocationMode", "ExactCount")
    return {"allocationMode": mode, **({"count": 1} if mode == "ExactCount" else {}), **asked}
