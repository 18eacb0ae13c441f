"""Where a machine's chips stand to one another: shape, rows and columns, groups, AWS's device-group ids.

Pure. Everything is computed from the neighbour sets that the chips report; the size only decides where these
leave more than one reading. Invariants of a group: contiguous host indices, since the kernel driver takes a
container's chip k for host chip first + k; connected by links that both ends report; chips of one kind. So a
chip that is missing leaves its own groups out and no others.
"""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dra_driver.neuron import catalogue, efa, links
from dra_driver.neuron.links import Fabric
from dra_driver.neuron.machine import Chip, Machine

NOWHERE = (-1, -1)
DEVICE_GROUPS = (1, 4, 8, 16)

# What the DeviceClasses ask for: on lines and rings only windows of these sizes are groups.
CHIP_COUNTS = (1, 2, 4, 6, 8, 12, 16)
CORE_COUNTS = (1, 2, 4, 8, 12, 16, 24, 32, 64, 128)

Group = tuple[int, ...]  # host indices, ascending and contiguous


@dataclass(frozen=True)
class Topology:
    """A machine's shape and its links; a link is one that both chips report."""

    fabric: Fabric
    links: frozenset[tuple[int, int]]  # (lower, higher) host index
    one_way: tuple[tuple[int, int], ...]  # (who reports it, who doesn't), both there

    def connected(self, chips: Sequence[int]) -> bool:
        """Whether each of the chips reaches each other over links among them."""
        reached, found = {chips[0]}, True
        while found:
            more = {b if a in reached else a for a, b in self.links if (a in reached) != (b in reached)}
            found = bool(more := more.intersection(chips))
            reached |= more
        return reached.issuperset(chips)


@lru_cache(maxsize=8)
def topology(machine: Machine) -> Topology:
    """The shape of the chips that are there."""
    reported = {chip.index: chip.neighbours - {chip.index} for chip in machine.chips}
    pairs = [(chip, other) for chip, others in reported.items() for other in sorted(others) if other in reported]
    mutual = {(min(pair), max(pair)) for pair in pairs if pair[0] in reported[pair[1]]}
    one_way = tuple((chip, other) for chip, other in pairs if chip not in reported[other])
    return Topology(_fabric(machine), frozenset(mutual), one_way)


def groups(
    machine: Machine,
    *,
    lnc: int = 1,
    chip_counts: Collection[int] = CHIP_COUNTS,
    core_counts: Collection[int] = CORE_COUNTS,
) -> tuple[Group, ...]:
    """The chip groups by size, then first chip: each contiguous ascending host indices, two chips or more.

    On lines and rings every window that doesn't wrap, of the sizes that the counts name (in chips, or in
    logical cores at that LNC); otherwise aligned blocks of a power of two. Unequal chips are never one group.
    """
    shape = topology(machine)
    if shape.fabric in (Fabric.LINE, Fabric.RING):
        candidates = _windows(machine, lnc, chip_counts, core_counts)
    else:
        candidates = _blocks(machine)
    linked = shape.fabric is Fabric.SWITCHED
    return tuple(group for group in candidates if _alike(machine, group) and (linked or shape.connected(group)))


def position(machine: Machine, chip: int) -> tuple[int, int]:
    """Row and column of the chip of that host index; (-1, -1) where the topology has none."""
    return divmod(chip, links.ROW) if topology(machine).fabric is Fabric.TORUS else NOWHERE


def device_groups(machine: Machine, chip: int) -> dict[int, str]:
    """AWS's ids of the aligned groups of 1, 4, 8 and 16 that the chip is in; empty on sizes that have none.

    They come from the network adapters beside the chips, so chip and adapter can be matched on one attribute
    `resource.aws.com/devicegroup<N>_id`. The same on every machine of a size, whether or not a chip is missing.
    """
    adapters = efa.adapters(machine.instance_type)
    if chip >= len(adapters):
        return {}
    return {size: _hash(adapters[chip // size * size :][:size]) for size in DEVICE_GROUPS}


def _hash(adapters: Collection[str]) -> str:
    return hashlib.sha256(",".join(sorted(set(adapters))).encode()).hexdigest()[:16]


def _fabric(machine: Machine) -> Fabric:
    """The size's own shape where all reported links belong to it, else the first that they fit."""
    reported = {chip.index: chip.neighbours - {chip.index} for chip in machine.chips}
    size = catalogue.lookup(machine.instance_type)
    if size and all(index < size.chips and others <= set(size.links[index]) for index, others in reported.items()):
        return size.fabric
    if not any(reported.values()):
        return Fabric.SINGLE if len(reported) == 1 else Fabric.UNKNOWN
    chips = 1 + max(reported.keys() | set().union(*reported.values()))
    shapes = {Fabric.LINE: links.line(chips), Fabric.RING: links.ring(chips)}
    if chips % links.BLOCK == 0:
        shapes[Fabric.TORUS] = tuple(map(links.torus_neighbours, range(chips)))
    fitting = (
        fabric
        for fabric, shape in shapes.items()
        if all(others <= set(shape[index]) for index, others in reported.items())
    )
    return next(fitting, Fabric.UNKNOWN)


def _windows(machine: Machine, lnc: int, chip_counts: Collection[int], core_counts: Collection[int]) -> Iterator[Group]:
    per_chip = {chip.physical_cores // min(lnc, chip.max_lnc) for chip in machine.chips}
    sizes = {*chip_counts, *(count // cores for cores in per_chip for count in core_counts if count % cores == 0)}
    there = {chip.index for chip in machine.chips}
    for size in sorted(sizes):
        for first in sorted(there) if size > 1 else ():
            window = tuple(range(first, first + size))
            if there.issuperset(window):
                yield window


def _blocks(machine: Machine) -> Iterator[Group]:
    """Aligned blocks of 2, 4, 8 … chips."""
    there = {chip.index for chip in machine.chips}
    size = 2
    while size <= max(there, default=0) + 1:
        for first in range(0, max(there) + 1, size):
            block = tuple(range(first, first + size))
            if there.issuperset(block):
                yield block
        size *= 2


def _alike(machine: Machine, group: Group) -> bool:
    """Whether the chips have the same cores: a group is so many cores of each."""
    return len({_kind(chip) for chip in machine.chips if chip.index in group}) == 1


def _kind(chip: Chip) -> tuple[int, str]:
    return chip.physical_cores, chip.core_architecture
