"""Which devices are listed under what an API server can keep: the one place where that is decided. Pure.

Invariants: overlapping devices are only ever listed where counters exclude them. Where counters hold, what a
record holds stays listed as it was published, whatever became of hardware, offer and LNC, since leaving it out
would free what it draws. Where they don't, one granularity is listed, and neither a held device of another one
nor its chips. What an old server has no room for is left out, and said.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dra_driver.inventory import combined, limits
from dra_driver.inventory.counters import NO_IDENTITY, Draws, Identity, draws
from dra_driver.inventory.devices import Device, DeviceType, InventoryError, physical_cores, publishing_order
from dra_driver.inventory.offer import Offer

Order = Callable[[Device], tuple[int, ...]]
_ONE_GRANULARITY = (DeviceType.CHIP, DeviceType.CORE)


@dataclass(frozen=True)
class Layout:
    """What the API server takes: its minor version, and whether counters were proven to survive."""

    minor: int
    counters: bool = True
    granularity: DeviceType = DeviceType.CHIP  # what is listed where counters don't hold

    @property
    def combined(self) -> bool:
        """Whether counters stand beside the devices, in one slice: such a server (1.34) knows no other way."""
        return self.counters and self.minor < limits.SEPARATE_COUNTERS_MINOR


@dataclass(frozen=True)
class Note:
    """What a person should know of the layout; `reason` is that of an Event. The same for as long as its cause is."""

    reason: str
    text: str


@dataclass(frozen=True)
class Listing:
    """What is to be listed, in publishing order, and which of it records hold (by name)."""

    devices: tuple[Device, ...]
    held: frozenset[str] = frozenset()
    notes: tuple[Note, ...] = ()
    identity: Identity = NO_IDENTITY

    def draws(self) -> dict[str, Draws]:
        """What each draws on the counters, by name."""
        return {d.name: draws(physical_cores(d), part=d.part, identity=self.identity) for d in self.devices}


def select(
    devices: Iterable[Device],
    *,
    layout: Layout,
    offer: Offer,
    kept: Sequence[Device] = (),
    order: Order = publishing_order,
) -> Listing:
    """What is listed of a machine's devices besides those that are held (`kept`, as they were published)."""
    free = offer.of(devices)
    if not layout.counters:
        listing = _uncounted(free, kept, granularity(layout, offer), order)
        return replace(listing, notes=_nothing_left(free, offer))
    free = [device for device in free if not _cut_otherwise(device, kept, layout)]
    if not layout.combined:
        listing = _listing((*free, *kept), kept, order)
        return replace(listing, identity=_identity(listing.devices))
    fitting = combined.fit(free, kept)
    text = combined.left_out(free, fitting, layout.minor)
    return replace(_listing((*fitting, *kept), kept, order), notes=(Note("LayoutLimited", text),) if text else ())


def _listing(devices: Iterable[Device], kept: Iterable[Device], order: Order) -> Listing:
    """The later of two of one name is the one that is held."""
    unique = {device.name: device for device in devices}
    held = frozenset(device.name for device in kept)
    return Listing(tuple(sorted(unique.values(), key=order)), held & unique.keys())


def _cut_otherwise(device: Device, kept: Iterable[Device], layout: Layout) -> bool:
    """Whether what is held cuts the chip's cores in a way that only counts exclude: they can't tell which are taken.

    That is another LNC, and a held run where no core has a counter of its own.
    """
    if not device.part:
        return False
    others = (
        other
        for other in kept
        if other.name != device.name
        and (other.lnc != device.lnc or (layout.combined and other.type is DeviceType.CORE_RUN))
    )
    return any(not physical_cores(device).isdisjoint(physical_cores(other)) for other in others)


def _identity(devices: Iterable[Device]) -> Identity:
    """A counter for each core of the chips that have a run listed."""
    everything = list(devices)
    chips = {device.chips[0] for device in everything if device.type is DeviceType.CORE_RUN}
    if not chips:
        return NO_IDENTITY
    cores = dict.fromkeys(chips, 1)
    for chip, core in (pair for device in everything for pair in physical_cores(device)):
        if chip in chips:
            cores[chip] = max(cores[chip], core + 1)
    return Identity.of(cores)


def granularity(layout: Layout, offer: Offer) -> DeviceType:
    """What is listed where counters don't hold: what is set, or the one of the two that is offered at all."""
    if layout.granularity not in _ONE_GRANULARITY:
        raise InventoryError(f"without counters either cores or chips are listed, not {layout.granularity.value!r}")
    offered = [kind for kind in _ONE_GRANULARITY if kind in offer.types]
    return offered[0] if len(offered) == 1 else layout.granularity


def _nothing_left(free: Sequence[Device], offer: Offer) -> tuple[Note, ...]:
    if not free or not offer.types.isdisjoint(_ONE_GRANULARITY):
        return ()
    text = (
        "nothing is offered here: without counters only chips or only single cores can be, and the offer of this "
        "node has neither (--offer-types)"
    )
    return (Note("LayoutLimited", text),)


def _uncounted(free: Iterable[Device], kept: Sequence[Device], kind: DeviceType, order: Order) -> Listing:
    """One granularity. Chips on which something else is held are left out until that is free."""
    offered = [device for device in free if device.type is kind]
    lnc_of = {device.chips: device.lnc for device in offered}
    foreign = [d for d in kept if d.type is not kind or d.lnc != lnc_of.get(d.chips, d.lnc)]
    blocked = {chip for device in foreign for chip in device.chips}
    same = [device for device in kept if device not in foreign]
    return _listing((d for d in (*offered, *same) if blocked.isdisjoint(d.chips)), same, order)
