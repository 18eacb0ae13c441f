"""What a ResourceSlice lists: cores, core runs, chips and chip groups as devices that draw on shared counters.

Invariants: names are stable (host indices, never probe order) and unique on a node; on hardware that knows
LNC 2 they end in the LNC they were published at, so a name never changes its meaning; cores aside, no two types
have devices of the same number of cores on one machine, so a class that selects by cores selects one type.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.inventory import attributes, counters, limits
from dra_driver.neuron import topology
from dra_driver.neuron.machine import Chip, Machine


class InventoryError(CoresliceError):
    """Something that can't be published or read back; the text names the device or setting."""


class DeviceType(StrEnum):
    """The published `type` attribute."""

    CORE = "core"
    CORE_RUN = "core-run"
    CHIP = "chip"
    CHIP_GROUP = "chip-group"


_LNC_SUFFIX = re.compile(r"-lnc([12])$")


@dataclass(frozen=True)
class Device:
    """One allocatable device. Cores are logical, chips are host indices, ascending and contiguous."""

    name: str
    type: DeviceType
    chips: tuple[int, ...]
    first_core: int  # within the first chip; 0 for chips and groups
    cores: int  # in all
    lnc: int  # physical cores per logical core
    wire: Mapping[str, Any]  # as published; `consumesCounters` grows where core runs are listed beside it

    @property
    def part(self) -> bool:
        """Whether it is less than a chip, by what it is listed as."""
        return self.type in (DeviceType.CORE, DeviceType.CORE_RUN)


@lru_cache(maxsize=4)  # a machine is looked at every half minute and is the same for months
def devices(machine: Machine, *, lnc: int = 1) -> tuple[Device, ...]:
    """Everything that could be offered of a machine, in publishing order; what is offered, `Offer` says.

    `lnc` concerns chips that know LNC 2; others have 1. Read-only.
    """
    if lnc not in (1, 2):
        raise InventoryError(f"logical NeuronCore configuration {lnc} doesn't exist: it is 1 or 2")
    found = [device for chip in machine.chips for device in _of_chip(machine, chip, lnc)]
    found += [run for chip in machine.chips for run in _runs(machine, chip, lnc)]
    found += [_group(machine, group, lnc) for group in topology.groups(machine, lnc=lnc)]
    return tuple(sorted(_one_type_a_size(found), key=publishing_order))


def publishing_order(device: Device) -> tuple[int, ...]:
    """Packing and cost as a sort key: the allocator takes the first fit, and looks at all that stand before it.

    Of what there are fewest comes first (groups, large ones first, chips, runs, cores): whatever one type is asked
    for, the fewest of others are looked at. Cores ascending by chip fill one chip before they touch the next; whole
    chips and groups descending are taken from the other end.
    """
    sign = 1 if device.part else -1
    return (device.part, -device.cores, sign * device.chips[0], device.first_core, device.lnc)


def shape(name: str, offered: Iterable[Device], held: Mapping[str, Mapping[str, Any]] | None = None) -> Device | None:
    """The device of an allocated name, None when there is none such.

    What is held counts as it was published, whatever the machine offers under that name now.
    """
    if held and name in held:
        return from_wire(held[name])
    return next((device for device in offered if device.name == name), None)


def lnc_of(name: str) -> int | None:
    """The LNC that a device's name carries; None on hardware that has one only."""
    match = _LNC_SUFFIX.search(name)
    return int(match[1]) if match else None


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


def totals(machine: Machine) -> dict[int, int]:
    """What each chip's counter holds: its physical cores, by host index."""
    return {chip.index: chip.physical_cores for chip in machine.chips}


def _one_type_a_size(found: Sequence[Device]) -> Iterator[Device]:
    """Where chips differ (a machine that contradicts itself), a chip of four cores keeps runs of four away."""
    kinds: dict[int, DeviceType] = {}
    for kind in (DeviceType.CHIP, DeviceType.CORE_RUN, DeviceType.CHIP_GROUP):
        for cores in {device.cores for device in found if device.type is kind}:
            kinds.setdefault(cores, kind)
    return (device for device in found if device.type is DeviceType.CORE or kinds[device.cores] is device.type)


def _of_chip(machine: Machine, chip: Chip, node_lnc: int) -> Iterator[Device]:
    lnc = min(node_lnc, chip.max_lnc)
    for core in range(chip.physical_cores // lnc):
        yield _part(machine, chip, lnc=lnc, first=core, cores=1)
    yield _whole(machine, (chip,), lnc=lnc)


def _runs(machine: Machine, chip: Chip, node_lnc: int) -> Iterator[Device]:
    """Aligned powers of two below the chip's cores; each core needs a counter in one set."""
    lnc = min(node_lnc, chip.max_lnc)
    total, size = chip.physical_cores // lnc, 2
    while size < total and chip.physical_cores <= limits.COUNTERS_PER_SET:
        for first in range(0, total - size + 1, size):
            yield _part(machine, chip, lnc=lnc, first=first, cores=size)
        size *= 2


def _group(machine: Machine, indices: tuple[int, ...], node_lnc: int) -> Device:
    chips = tuple(chip for chip in machine.chips if chip.index in indices)
    return _whole(machine, chips, lnc=min(node_lnc, chips[0].max_lnc))


def _part(machine: Machine, chip: Chip, *, lnc: int, first: int, cores: int) -> Device:
    kind = DeviceType.CORE if cores == 1 else DeviceType.CORE_RUN
    base = f"core-{chip.index}-{first}" if cores == 1 else f"cores-{chip.index}-{first}-{cores}"
    place = attributes.place(kind=kind.value, chips=(chip.index,), first_core=first, cores=cores)
    told = place | attributes.common(machine, chip, lnc=lnc)
    memory = attributes.memory(machine, (chip,), physical_cores=cores * lnc)
    return _device(_named(base, chip, lnc), kind, (chip.index,), first, cores, lnc, told, memory)


def _whole(machine: Machine, chips: tuple[Chip, ...], *, lnc: int) -> Device:
    first, indices = chips[0], tuple(chip.index for chip in chips)
    kind = DeviceType.CHIP if len(chips) == 1 else DeviceType.CHIP_GROUP
    base = f"chip-{first.index}" if len(chips) == 1 else f"chips-{first.index}-{len(chips)}"
    physical = sum(chip.physical_cores for chip in chips)
    place = attributes.place(kind=kind.value, chips=indices, first_core=0, cores=physical // lnc)
    told = place | attributes.common(machine, first, lnc=lnc) | attributes.whole_chips(machine, chips)
    memory = attributes.memory(machine, chips, physical_cores=physical)
    return _device(_named(base, first, lnc), kind, indices, 0, physical // lnc, lnc, told, memory)


def _device(  # noqa: PLR0913, PLR0917 -- the fields in their order
    name: str,
    kind: DeviceType,
    chips: tuple[int, ...],
    first: int,
    cores: int,
    lnc: int,
    told: Mapping[str, Any],
    capacity: Mapping[str, Any],
) -> Device:
    wire: dict[str, Any] = {"name": name, "attributes": told}
    if capacity:
        wire["capacity"] = capacity
    bare = Device(name, kind, chips, first, cores, lnc, wire)
    wire["consumesCounters"] = counters.consumption(counters.draws(physical_cores(bare), part=bare.part))
    return bare


def _named(base: str, chip: Chip, lnc: int) -> str:
    return f"{base}-lnc{lnc}" if chip.max_lnc > 1 else base
