"""What of a machine doesn't fit together, in words. Pure.

The hardware is believed and served; these say which part of it a person should look at, and what it costs. A
group's links count only where both ends report them, so a contradiction takes groups away and never adds one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dra_driver.neuron import catalogue
from dra_driver.neuron.catalogue import Size
from dra_driver.neuron.links import Fabric
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.topology import Topology, topology

_SHOWN = 8  # links named of each kind: the text goes into an Event


def contradictions(machine: Machine) -> tuple[str, ...]:
    """One sentence each, in a stable order; empty for a machine that agrees with itself and with its size."""
    size = catalogue.lookup(machine.instance_type)
    shape = topology(machine)
    found = [*_serials(machine.chips), *_unequal(machine.chips)]
    if size is not None:
        found += [*_missing(machine, size), *_unlike(machine, size)]
    found += [*_strangers(machine, size), *_one_way(shape)]
    if size is not None:
        found += _links(machine, size, shape)
    return tuple(found)


def _serials(chips: Sequence[Chip]) -> Iterator[str]:
    serials = Counter(chip.serial for chip in chips if chip.serial)
    for serial, count in serials.items():
        if count > 1:
            yield f"chips {_list(chip.index for chip in chips if chip.serial == serial)} share serial {serial}"
    if serials and (blank := [chip.index for chip in chips if not chip.serial]):
        yield f"{_chips(blank)} no serial number while others do: another chip in its place wouldn't be noticed"


def _unequal(chips: Sequence[Chip]) -> Iterator[str]:
    kinds = Counter((chip.physical_cores, chip.core_architecture) for chip in chips)
    if len(kinds) > 1:
        told = ", ".join(f"{count} with {cores} {name} cores" for (cores, name), count in sorted(kinds.items()))
        yield f"the chips aren't alike ({told}); no group mixes them"


def _missing(machine: Machine, size: Size) -> Iterator[str]:
    there = {chip.index for chip in machine.chips}
    absent = [index for index in range(size.chips) if index not in there]
    if absent:
        text = f"{len(there)} of the {size.chips} chips of a {machine.instance_type} are usable"
        yield f"{text}, missing: {_list(absent)}"
    if extra := [index for index in sorted(there) if index >= size.chips]:
        yield f"a {machine.instance_type} has {size.chips} chips, but there is also {_list(extra)}"


def _unlike(machine: Machine, size: Size) -> Iterator[str]:
    name = machine.instance_type
    for chip in machine.chips:
        if chip.physical_cores != size.physical_cores:
            yield f"chip {chip.index} hasn't the {size.physical_cores} cores that a {name} has per chip"
    families = sorted({chip.family for chip in machine.chips} - {size.family, ""})
    if families:
        yield f"there is {_list(families)} where a {name} has {size.family}; its memory isn't published"


def _strangers(machine: Machine, size: Size | None) -> Iterator[str]:
    """Links to itself, and to chips that are neither here nor told as missing."""
    for chip in machine.chips:
        if chip.index in chip.neighbours:
            yield f"chip {chip.index} reports a link to itself, which doesn't count"
    known = {chip.index for chip in machine.chips} | set(range(size.chips if size else 0))
    for absent in sorted(set().union(*(chip.neighbours for chip in machine.chips)) - known):
        who = _list(chip.index for chip in machine.chips if absent in chip.neighbours)
        yield f"links to chip {absent}, which isn't usable here, are reported by {who}"


def _one_way(shape: Topology) -> Iterator[str]:
    if shape.one_way:
        yield f"links that one chip reports and the other doesn't ({_pairs(shape.one_way)}) don't count"


def _links(machine: Machine, size: Size, shape: Topology) -> Iterator[str]:
    """Where the links aren't those of the size. The kernel driver prints most of them from a table of its own."""
    name = machine.instance_type
    there = {chip.index for chip in machine.chips if chip.index < size.chips}
    own = {(chip, other) for chip in there for other in size.links[chip] if chip < other and other in there}
    if own and not any(chip.neighbours for chip in machine.chips):
        text = (
            f"no chip reports a link, though a {name} has them; kernel drivers print them for a complete machine only"
        )
        yield text if shape.fabric is Fabric.SWITCHED else f"{text}, so no group of chips is published"
        return
    told = shape.links | {(min(pair), max(pair)) for pair in shape.one_way}
    if silent := sorted(own - told):
        yield f"links that a {name} has aren't reported: {_pairs(silent)}"
    if strange := sorted(told - own):
        yield f"links are reported that a {name} doesn't have: {_pairs(strange)}"


def _chips(indices: Sequence[int]) -> str:
    return f"chips {_list(indices)} have" if len(indices) > 1 else f"chip {_list(indices)} has"


def _pairs(of: Sequence[tuple[int, int]]) -> str:
    """`2-3, 4-5`; only the first of many."""
    more = f" and {len(of) - _SHOWN} more" if len(of) > _SHOWN else ""
    return _list(f"{chip}-{other}" for chip, other in of[:_SHOWN]) + more


def _list(of: Iterable[object]) -> str:
    return ", ".join(map(str, of))
