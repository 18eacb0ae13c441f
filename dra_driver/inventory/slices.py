"""The one builder of ResourceSlices: devices, counters and layout in, finished objects out; no I/O.

Invariants: same input, same bytes; no slice holds both `devices` and `sharedCounters` (not even
`devices: []`, which the API refuses); overlapping devices are only ever listed where counters exclude them;
with counters, what a record holds stays listed as it was published, since leaving it out would free what it
draws.

Up to 1.34 counters and devices share a slice. That layout isn't built yet: such a server gets one
granularity.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.inventory import limits
from dra_driver.inventory.devices import (
    CHIPS,
    Device,
    DeviceType,
    InventoryError,
    counter_name,
    counters_of,
    from_wire,
    physical_cores,
    publishing_order,
)

Wire = dict[str, Any]
Held = Mapping[str, Mapping[str, Any]]  # device name → the device as it was published
Counters = dict[str, dict[str, int]]  # counter set → counter → value


@dataclass(frozen=True)
class Pool:
    """The pool of a node. Raises InventoryError for names that the API wouldn't take."""

    driver: str
    node: str

    def __post_init__(self) -> None:
        for what, name, longest in (
            ("driver name", self.driver, limits.DRIVER_NAME),
            ("node name", self.node, limits.POOL_NAME - 1 - len(self.driver)),
        ):
            if len(name) > longest or not limits.DNS_SUBDOMAIN.fullmatch(name):
                raise InventoryError(f"{what} {name!r} must be a DNS subdomain of at most {longest} characters")

    @property
    def name(self) -> str:
        """The driver is part of it: schedulers cache counters by the pool's name alone."""
        return f"{self.driver}/{self.node}"


@dataclass(frozen=True)
class NodeOwner:
    """The Node object that slices go away with."""

    name: str
    uid: str


@dataclass(frozen=True)
class Layout:
    """What the API server can hold: its minor version, and whether counters were proven to survive."""

    minor: int
    counters: bool = True
    granularity: DeviceType = DeviceType.CHIP  # what is listed where counters don't hold

    @property
    def counted(self) -> bool:
        """Whether overlapping devices may be listed."""
        return self.counters and self.minor >= limits.SEPARATE_COUNTERS_MINOR


def build(
    pool: Pool,
    devices: Sequence[Device],
    totals: Mapping[int, int],
    *,
    layout: Layout,
    generation: int,
    held: Held | None = None,
    owner: NodeOwner | None = None,
) -> list[Wire]:
    """All slices of the pool as v1 objects in the order of their names; none when nothing is to be listed.

    `totals` are the physical cores by chip index. Read-only: the result shares the devices' `wire`.
    """
    kept = [from_wire(wire) for wire in (held or {}).values()]
    contents = _counted(devices, totals, kept) if layout.counted else _uncounted(devices, kept, layout.granularity)
    state = {"name": pool.name, "generation": generation, "resourceSliceCount": len(contents)}
    return [_slice(pool, owner, index, {"pool": dict(state), **content}) for index, content in enumerate(contents)]


def _counted(devices: Sequence[Device], totals: Mapping[int, int], kept: Sequence[Device]) -> list[Wire]:
    """What is held besides what the machine has; held wins a name, and its counters stay."""
    published = {device.name: _with_counters(device) for device in kept}
    free = (device for device in devices if not _cut_otherwise(device, kept))
    listed = {device.name: device for device in (*free, *kept)}
    wires = [published.get(d.name, dict(d.wire)) for d in sorted(listed.values(), key=publishing_order)]
    if not wires:
        return []
    return [{"sharedCounters": _counter_sets(totals, published.values())}, *_device_slices(wires)]


def _uncounted(devices: Sequence[Device], kept: Sequence[Device], granularity: DeviceType) -> list[Wire]:
    """One granularity. Chips on which something else is held are left out until that is free."""
    if granularity not in (DeviceType.CORE, DeviceType.CHIP):
        raise InventoryError(f"without counters either cores or chips are listed, not {granularity.value!r}")
    offered = {device.name: device for device in devices if device.type is granularity}
    lnc_of = {device.chips: device.lnc for device in offered.values()}
    foreign = [d for d in kept if d.type is not granularity or d.lnc != lnc_of.get(d.chips, d.lnc)]
    blocked = {chip for device in foreign for chip in device.chips}
    same = {device.name: device for device in kept if device not in foreign}
    listed = [d for d in (offered | same).values() if blocked.isdisjoint(d.chips)]
    return _device_slices([_without_counters(d) for d in sorted(listed, key=publishing_order)])


def _cut_otherwise(device: Device, kept: Sequence[Device]) -> bool:
    """Whether cores of it are held at another LNC: a count excludes a chip there, but not a core."""
    if device.type in (DeviceType.CHIP, DeviceType.CHIP_GROUP):
        return False
    others = (other for other in kept if other.lnc != device.lnc)
    return any(not physical_cores(device).isdisjoint(physical_cores(other)) for other in others)


def _with_counters(device: Device) -> Wire:
    """As published. What was published without counters would otherwise be free in their eyes."""
    wire = dict(device.wire)
    return wire if wire.get("consumesCounters") else wire | {"consumesCounters": counters_of(device)}


def _without_counters(device: Device) -> Wire:
    """The server would drop them anyway, and what comes back is compared with what was sent."""
    return {key: value for key, value in device.wire.items() if key != "consumesCounters"}


def _counter_sets(totals: Mapping[int, int], held: Iterable[Wire]) -> list[Wire]:
    """The chips' counters, and whatever held devices draw on: a missing counter poisons the whole pool."""
    sums: Counters = {}
    for wire in held:
        _add(sums, wire)
    chips = {counter_name(chip): total for chip, total in totals.items()}
    sets: Counters = {CHIPS: chips, **{name: {} for name in sorted(sums) if name != CHIPS}}
    for name, counters in sums.items():
        for counter, value in counters.items():
            sets[name][counter] = max(value, sets[name].get(counter, 0))
    return [_counter_set(name, counters) for name, counters in sets.items() if counters]


def _add(sums: Counters, wire: Wire) -> None:
    try:
        for entry in wire["consumesCounters"]:
            counters = sums.setdefault(entry["counterSet"], {})
            for name, counter in entry["counters"].items():
                counters[name] = counters.get(name, 0) + int(counter["value"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = f"device {wire.get('name')!r} draws on unreadable counters: {error!r}"
        raise InventoryError(text) from error


def _counter_set(name: str, counters: Mapping[str, int]) -> Wire:
    if len(counters) > limits.COUNTERS_PER_SET:
        text = f"{len(counters)} counters in set {name!r}, the API takes {limits.COUNTERS_PER_SET}"
        raise InventoryError(text)
    ordered = sorted(counters.items(), key=lambda item: (len(item[0]), item[0]))  # chip-2 before chip-10
    return {"name": name, "counters": {counter: {"value": str(value)} for counter, value in ordered}}


def _device_slices(wires: Sequence[Wire]) -> list[Wire]:
    step = limits.DEVICES_PER_SLICE
    return [{"devices": list(wires[start : start + step])} for start in range(0, len(wires), step)]


def _slice(pool: Pool, owner: NodeOwner | None, index: int, content: Wire) -> Wire:
    metadata: Wire = {"name": slice_name(pool, index)}
    if owner is not None:
        node = {"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid, "controller": True}
        metadata["ownerReferences"] = [node]
    spec = {"driver": pool.driver, "nodeName": pool.node, **content}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def slice_name(pool: Pool, index: int) -> str:
    """`<index>-<driver>-<node>`: from 1.36 on the name decides the order in which devices are tried.

    A name beyond the API's limit ends in a hash of the whole instead.
    """
    name = f"{index:05d}-{pool.driver}-{pool.node}"
    if len(name) <= limits.OBJECT_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:16]
    return f"{name[: limits.OBJECT_NAME - 17].rstrip('.-')}-{digest}"
