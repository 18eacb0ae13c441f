"""What devices draw on, and the counter sets that exclude devices that overlap.

Invariants: what a device draws follows from the physical cores it covers alone, so no set of devices that fits
the counters overlaps, whoever published a device and when; no device draws on more than two sets; a counter is
never below what held devices draw, since one negative counter blocks the whole pool.

`chips` counts physical cores by chip: that excludes a chip from its cores, and a group from its chips. It can't
tell which cores are taken, so where core runs are listed each physical core has a counter of its own besides
(`cores-<k>`, four chips each), for cores and runs only: a count excludes them from chips and groups already.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dra_driver.inventory import limits

Wire = dict[str, Any]
Draws = Mapping[str, Mapping[str, int]]  # counter set → counter → amount
Core = tuple[int, int]  # chip, physical core

CHIPS = "chips"
_CHIPS_PER_CORE_SET = 4


@dataclass(frozen=True)
class Identity:
    """The chips whose cores have counters of their own, and how many such chips share a set."""

    chips: frozenset[int] = frozenset()
    per_set: int = _CHIPS_PER_CORE_SET

    @classmethod
    def of(cls, cores: Mapping[int, int]) -> "Identity":
        """Of these chips (index → physical cores). More than eight cores a chip leave room for fewer chips."""
        most = max(cores.values(), default=1)
        room = max(1, limits.COUNTERS_PER_SET // most)
        return cls(frozenset(cores), min(_CHIPS_PER_CORE_SET, room))

    def set_name(self, chip: int) -> str:
        """The set that the chip's cores are in."""
        return f"cores-{chip // self.per_set}"


NO_IDENTITY = Identity()


def draws(cores: Collection[Core], *, part: bool, identity: Identity = NO_IDENTITY) -> Draws:
    """What a device takes that covers these cores; `part` is less than a chip."""
    taken: dict[str, dict[str, int]] = {}
    for chip, count in sorted(Counter(chip for chip, _ in cores).items()):
        taken.setdefault(chips_set(chip), {})[counter_name(chip)] = count
    for chip, core in sorted(cores):
        if part and chip in identity.chips:
            taken.setdefault(identity.set_name(chip), {})[core_counter(chip, core)] = 1
    return taken


def consumption(drawn: Draws) -> list[Wire]:
    """As a device's `consumesCounters`."""
    return [
        {"counterSet": name, "counters": {counter: {"value": str(value)} for counter, value in counters.items()}}
        for name, counters in drawn.items()
    ]


def shared(totals: Mapping[int, int], *, listed: Iterable[Draws], held: Iterable[Draws]) -> list[Wire]:
    """The counter sets that all listed devices draw on, `held` of them included, in the order of chips.

    A counter holds what the machine has (`totals`: physical cores by chip), or what is held where that is more.
    """
    has = {(chips_set(chip), counter_name(chip)): total for chip, total in totals.items()}
    taken = Counter(dict[tuple[str, str], int]())
    for drawn in held:
        taken.update(_flat(drawn))
    sets: dict[str, dict[str, int]] = {}
    for name, counter in {key for drawn in listed for key in _flat(drawn)}:
        there = has.get((name, counter), 0 if name.startswith(CHIPS) else 1)
        sets.setdefault(name, {})[counter] = max(there, taken[name, counter])
    return [_counter_set(name, sets[name]) for name in sorted(sets, key=_by_number)]


def chips_set(chip: int) -> str:
    """The set that counts the chip's cores: one holds 32 chips, more than any known machine has."""
    number = chip // limits.COUNTERS_PER_SET
    return f"{CHIPS}-{number}" if number else CHIPS


def counter_name(chip: int) -> str:
    """The counter of a chip."""
    return f"chip-{chip}"


def core_counter(chip: int, core: int) -> str:
    """The counter of one physical core, numbered as workloads number cores at LNC 1."""
    return f"core-{chip}-{core}"


def _flat(drawn: Draws) -> dict[tuple[str, str], int]:
    return {(name, counter): value for name, counters in drawn.items() for counter, value in counters.items()}


def _counter_set(name: str, counters: Mapping[str, int]) -> Wire:
    ordered = sorted(counters.items(), key=lambda item: _by_number(item[0]))
    return {"name": name, "counters": {counter: {"value": str(value)} for counter, value in ordered}}


def _by_number(name: str) -> tuple[str, list[int]]:
    """chip-2 before chip-10."""
    word, *numbers = name.split("-")
    return word, [int(number) for number in numbers]
