"""The one builder of ResourceSlices: devices, counters and layout in, finished objects out; no I/O.

Invariants: same input, same bytes; from 1.35 on no slice holds both `devices` and `sharedCounters` (not even
`devices: []`, which the API refuses), up to 1.34 there is one slice that holds both; what is listed, and what of
it a layout can't list, `layout` decides.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from dra_driver.inventory import counters, limits
from dra_driver.inventory.devices import Device, InventoryError, from_wire, publishing_order
from dra_driver.inventory.layout import Layout, Listing, Note, Order, granularity, select
from dra_driver.inventory.offer import Offer

__all__ = ["Layout", "NodeOwner", "Note", "Offer", "Pool", "build", "granularity", "notes", "slice_name"]

Wire = dict[str, Any]
Held = Mapping[str, Mapping[str, Any]]  # device name → the device as it was published
EVERYTHING = Offer()


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


def build(  # noqa: PLR0913 -- by keyword
    pool: Pool,
    devices: Iterable[Device],
    totals: Mapping[int, int],
    *,
    layout: Layout,
    generation: int,
    offer: Offer = EVERYTHING,
    held: Held | None = None,
    owner: NodeOwner | None = None,
    order: Order = publishing_order,
) -> list[Wire]:
    """All slices of the pool as v1 objects in the order of their names; none when nothing is to be listed.

    `devices` are all that the machine could offer, `totals` the physical cores by chip index. `order` is the
    packing policy. Read-only: the result shares the devices' `wire`.
    """
    listing = _listing(devices, layout, offer, held, order)
    contents = _counted(listing, totals, layout) if layout.counters else _uncounted(listing)
    state = {"name": pool.name, "generation": generation, "resourceSliceCount": len(contents)}
    return [_slice(pool, owner, index, {"pool": dict(state), **content}) for index, content in enumerate(contents)]


def notes(
    devices: Iterable[Device], *, layout: Layout, offer: Offer = EVERYTHING, held: Held | None = None
) -> tuple[Note, ...]:
    """What a person should know of what `build` lists for the same arguments, as for what it leaves out."""
    return _listing(devices, layout, offer, held, publishing_order).notes


def _listing(devices: Iterable[Device], layout: Layout, offer: Offer, held: Held | None, order: Order) -> Listing:
    kept = [from_wire(wire) for wire in (held or {}).values()]
    return select(devices, layout=layout, offer=offer, kept=kept, order=order)


def _counted(listing: Listing, totals: Mapping[int, int], layout: Layout) -> list[Wire]:
    """What draws on what is worked out anew each time: records may be of times without counters, or without runs."""
    if not listing.devices:
        return []
    draws = listing.draws()
    sets = counters.shared(totals, listed=draws.values(), held=(draws[name] for name in listing.held))
    wires = [{**d.wire, "consumesCounters": counters.consumption(draws[d.name])} for d in listing.devices]
    if layout.combined:
        return [{"sharedCounters": sets, "devices": wires}]
    return [*_chunks("sharedCounters", sets, limits.COUNTER_SETS_PER_SLICE), *_device_slices(listing.devices, wires)]


def _uncounted(listing: Listing) -> list[Wire]:
    """The server would drop draws anyway, and what comes back is compared with what was sent."""
    wires = [{key: value for key, value in d.wire.items() if key != "consumesCounters"} for d in listing.devices]
    return _device_slices(listing.devices, wires)


def _device_slices(devices: Sequence[Device], wires: Sequence[Wire]) -> list[Wire]:
    """What one slice doesn't hold is parted between types: up to 1.35 the order holds within a slice only."""
    if len(wires) <= limits.DEVICES_PER_SLICE:
        return _chunks("devices", wires, limits.DEVICES_PER_SLICE)
    by_part = groupby(zip(devices, wires, strict=True), key=lambda pair: pair[0].part)
    return [
        entry for _, pairs in by_part for entry in _chunks("devices", [w for _, w in pairs], limits.DEVICES_PER_SLICE)
    ]


def _chunks(key: str, entries: Sequence[Wire], most: int) -> list[Wire]:
    return [{key: list(entries[start : start + most])} for start in range(0, len(entries), most)]


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
