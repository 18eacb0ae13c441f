"""The two ledgers of the device plugin: one chip counted once as a chip and once as its cores.

Pure: a machine in, lists of ids, preferred ids and grants out. Each `Ledger` is one resource name and knows nothing
of the other, which is the fault that this product ends and that the comparison shows.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from dra_driver.errors import CoresliceError
from dra_driver.neuron.machine import Chip, Machine

VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"


class LedgerError(CoresliceError):
    """A device id that this resource doesn't have."""


@dataclass(frozen=True)
class Unit:
    """What one id of the list stands for: cores `first` and on, logical, of one chip."""

    id: str
    chip: int
    first: int
    cores: int
    place: int  # first core counted over the whole machine, so that neighbours have neighbouring places


@dataclass(frozen=True)
class Grant:
    """What one container gets. Nodes are host paths in order; the container sees them as /dev/neuron0 and on."""

    nodes: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    cores: tuple[tuple[int, int], ...]  # what is behind it: (chip, logical core) on the host


class Ledger:
    """The units of one resource name, by ascending place. Immutable: the kubelet keeps the accounts."""

    def __init__(self, units: Iterable[Unit], *, sets_cores: bool) -> None:
        self._units = {unit.id: unit for unit in sorted(units, key=lambda unit: unit.place)}
        self._sets_cores = sets_cores

    @classmethod
    def of_chips(cls, machine: Machine, *, lnc: int = 1) -> Self:
        """One unit for every chip."""
        units = [Unit(f"neuron{chip.index}", chip.index, 0, count, at) for chip, count, at in _cores(machine, lnc)]
        return cls(units, sets_cores=False)

    @classmethod
    def of_cores(cls, machine: Machine, *, lnc: int = 1) -> Self:
        """One unit for every logical core of the same chips."""
        units = [
            Unit(f"neuroncore{chip.index}-{core}", chip.index, core, 1, at + core)
            for chip, count, at in _cores(machine, lnc)
            for core in range(count)
        ]
        return cls(units, sets_cores=True)

    @property
    def ids(self) -> tuple[str, ...]:
        """All ids, in order."""
        return tuple(self._units)

    def prefer(self, available: Collection[str], required: Collection[str], size: int) -> tuple[str, ...]:
        """A contiguous run of `size` that contains what is required; the lowest ids where there is none."""
        candidates = sorted((self._unit(one) for one in available), key=lambda unit: unit.place)
        for at in range(len(candidates) - size + 1):
            window = candidates[at : at + size]
            ids = {unit.id for unit in window}
            if _contiguous(window) and ids.issuperset(required):
                return tuple(unit.id for unit in window)
        rest = [unit.id for unit in candidates if unit.id not in required]
        chosen = [*required, *rest][:size]
        return tuple(sorted(chosen, key=lambda one: self._unit(one).place))

    def grant(self, ids: Sequence[str]) -> Grant:
        """Nodes renumbered from 0 in ascending host order; for cores also their numbers within them."""
        units = sorted((self._unit(one) for one in ids), key=lambda unit: unit.place)
        chips = sorted({unit.chip for unit in units})
        cores = tuple((unit.chip, unit.first + core) for unit in units for core in range(unit.cores))
        env = ((VISIBLE_CORES, self._visible(units, chips)),) if self._sets_cores else ()
        return Grant(tuple(f"/dev/neuron{chip}" for chip in chips), env, cores)

    def _visible(self, units: Sequence[Unit], chips: Sequence[int]) -> str:
        """Core numbers as the container counts them: through its own chips, from 0."""
        before = {}
        total = 0
        for chip in chips:
            before[chip] = total
            total += sum(unit.cores for unit in self._units.values() if unit.chip == chip)
        numbers = [before[unit.chip] + unit.first for unit in units]
        if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"{numbers[0]}-{numbers[-1]}"
        return ",".join(map(str, numbers))

    def _unit(self, one: str) -> Unit:
        try:
            return self._units[one]
        except KeyError:
            raise LedgerError(f"{one!r} is no device of this resource; there are {', '.join(self._units)}") from None


def _cores(machine: Machine, lnc: int) -> Iterable[tuple[Chip, int, int]]:
    """Each chip with its logical cores and the place of its first one; a missing chip leaves a gap."""
    for chip in machine.chips:
        count = chip.physical_cores // lnc
        yield chip, count, chip.index * count


def _contiguous(units: Sequence[Unit]) -> bool:
    return all(left.place + left.cores == right.place for left, right in pairwise(units))
