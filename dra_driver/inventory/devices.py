"""What a ResourceSlice lists: cores and chips as devices that draw on shared counters.

Invariants: names are stable (host indices, never probe order) and unique on a node; on hardware that knows
LNC 2 they end in the LNC they were published at, so a name never changes its meaning; what a device draws on
the counters is exactly the physical cores it covers, so no set that fits the counters overlaps.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.inventory import attributes
from dra_driver.neuron.machine import Chip, Machine

CHIPS = "chips"  # the counter set: one counter a chip, in physical cores


class InventoryError(CoresliceError):
    """Something that can't be published or read back; the text names the device or setting."""


class DeviceType(StrEnum):
    """The published `type` attribute."""

    CORE = "core"
    CORE_RUN = "core-run"
    CHIP = "chip"
    CHIP_GROUP = "chip-group"


@dataclass(frozen=True)
class Device:
    """One allocatable device. Cores are logical, chips are host indices, ascending and contiguous."""

    name: str
    type: DeviceType
    chips: tuple[int, ...]
    first_core: int  # within the first chip; 0 for chips and groups
    cores: int  # in all
    lnc: int  # physical cores per logical core
    wire: Mapping[str, Any]  # exactly as published: name, attributes, capacity, consumesCounters


def devices(machine: Machine, *, lnc: int = 1) -> tuple[Device, ...]:
    """All devices of a machine in publishing order. `lnc` concerns chips that know LNC 2; others have 1."""
    if lnc not in (1, 2):
        raise InventoryError(f"logical NeuronCore configuration {lnc} doesn't exist: it is 1 or 2")
    found = [device for chip in machine.chips for device in _of_chip(machine, chip, lnc)]
    return tuple(sorted(found, key=publishing_order))


def publishing_order(device: Device) -> tuple[int, ...]:
    """The packing policy as a sort key: the allocator takes the first fit.

    Cores ascending by chip fill one chip before they touch the next; whole chips descending are taken from
    the other end.
    """
    chip = device.chips[0]
    match device.type:
        case DeviceType.CORE:
            return (0, 1, chip, device.first_core, device.lnc)
        case DeviceType.CORE_RUN:
            return (1, device.cores, chip, device.first_core, device.lnc)
        case DeviceType.CHIP | DeviceType.CHIP_GROUP:
            return (2, len(device.chips), -chip, 0, device.lnc)


def shape(name: str, offered: Iterable[Device], held: Mapping[str, Mapping[str, Any]] | None = None) -> Device | None:
    """The device of an allocated name, None when there is none such.

    What is held counts as it was published, whatever the machine offers under that name now.
    """
    if held and name in held:
        return from_wire(held[name])
    return next((device for device in offered if device.name == name), None)


def physical_cores(device: Device) -> frozenset[tuple[int, int]]:
    """The (chip, core) pairs a device covers: two devices overlap where these meet, at whatever LNC.

    Cores are counted as workloads count them at LNC 1, where core n of LNC 2 is 2n and 2n + 1. On trn2 and
    trn3 that is another order than sysfs has.
    """
    per_chip = device.cores // len(device.chips) * device.lnc
    first = device.first_core * device.lnc
    return frozenset((chip, first + offset) for chip in device.chips for offset in range(per_chip))


def from_wire(wire: Mapping[str, Any]) -> Device:
    """A device as it was published (in a record, in a slice), without the machine.

    Raises InventoryError when it isn't one of ours.
    """
    try:
        chip, count, first, cores, lnc = (
            attributes.read_integer(wire, key) for key in ("index", "chips", "firstCore", "cores", "logicalNeuronCore")
        )
        kind = DeviceType(wire["attributes"]["type"]["string"])
        name = str(wire["name"])
    except (KeyError, TypeError, ValueError) as error:
        text = f"device {wire.get('name', '')!r} doesn't say what it covers: {error!r} in its published form"
        raise InventoryError(text) from error
    if min(chip, first, count - 1, cores - count, lnc - 1) < 0:
        text = f"device {name!r} covers nothing: chip {chip}, {count} chips, {cores} cores, LNC {lnc}"
        raise InventoryError(text)
    return Device(name, kind, tuple(range(chip, chip + count)), first, cores, lnc, wire)


def counters_of(device: Device) -> list[dict[str, Any]]:
    """The `consumesCounters` of a device: the physical cores of each of its chips."""
    share = device.cores // len(device.chips) * device.lnc
    return consumption(device.chips, share)


def consumption(chips: Iterable[int], physical: int) -> list[dict[str, Any]]:
    """`physical` cores of each chip, as a device consumes them."""
    counters = {counter_name(chip): {"value": str(physical)} for chip in chips}
    return [{"counterSet": CHIPS, "counters": counters}]


def counter_name(chip: int) -> str:
    """The counter of a chip."""
    return f"chip-{chip}"


def totals(machine: Machine) -> dict[int, int]:
    """What each chip's counter holds: its physical cores, by host index."""
    return {chip.index: chip.physical_cores for chip in machine.chips}


def _of_chip(machine: Machine, chip: Chip, node_lnc: int) -> list[Device]:
    lnc = min(node_lnc, chip.max_lnc)
    cores = range(chip.physical_cores // lnc)
    return [
        *(_device(machine, chip, DeviceType.CORE, lnc=lnc, first=core) for core in cores),
        _device(machine, chip, DeviceType.CHIP, lnc=lnc, first=0),
    ]


def _device(machine: Machine, chip: Chip, kind: DeviceType, *, lnc: int, first: int) -> Device:
    whole = kind is DeviceType.CHIP
    name = _name(chip, kind, first=first, lnc=lnc)
    cores, physical = (chip.physical_cores // lnc, chip.physical_cores) if whole else (1, lnc)
    own = attributes.place(kind=kind.value, chips=(chip.index,), first_core=first, cores=cores)
    told = own | attributes.common(machine, chip, lnc=lnc)
    if whole:
        told |= attributes.whole_chip(machine, chip)
    wire: dict[str, Any] = {"name": name, "attributes": told}
    if capacity := attributes.memory(machine, chip, physical_cores=physical):
        wire["capacity"] = capacity
    wire["consumesCounters"] = consumption((chip.index,), physical)
    return Device(name, kind, (chip.index,), first, cores, lnc, wire)


def _name(chip: Chip, kind: DeviceType, *, first: int, lnc: int) -> str:
    base = f"core-{chip.index}-{first}" if kind is DeviceType.CORE else f"chip-{chip.index}"
    return f"{base}-lnc{lnc}" if chip.max_lnc > 1 else base
