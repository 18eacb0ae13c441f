"""`coreslice slices --all-sizes`: what a node of each size publishes at each LNC, in numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dra_driver.cli.columns import aligned
from dra_driver.inventory.devices import DeviceType
from dra_driver.inventory.summary import SCAN_COST, Summary
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal

COUNTED = {
    "CHIPS": DeviceType.CHIP,
    "CORES": DeviceType.CORE,
    "RUNS": DeviceType.CORE_RUN,
    "GROUPS": DeviceType.CHIP_GROUP,
}
HEADING = ("SIZE", "LNC", *COUNTED, "DEVICES", "SLICES", "SETS", "COUNTERS", "SCAN")
LEGEND = (
    f"SCAN: what a request that finds nothing there costs the scheduler, at {SCAN_COST * 1e6:.0f} µs a device.\n"
    "SETS, COUNTERS: what the devices draw on."
)

Published = Callable[[Machine, int], Summary]


@dataclass(frozen=True)
class Row:
    """A size at an LNC, and what is published of it."""

    size: str
    lnc: int
    summary: Summary

    @property
    def words(self) -> tuple[str, ...]:
        """A cell for each column."""
        found = self.summary
        kinds = [found.by_type[kind] for kind in COUNTED.values()]
        numbers = (self.lnc, *kinds, found.devices, found.slices, found.counter_sets, found.counters)
        return (self.size, *map(str, numbers), f"{found.scan * 1e3:.2f} ms")

    @property
    def json(self) -> dict[str, Any]:
        """The same as plain data; the scan in seconds."""
        found = self.summary
        return {
            "instanceType": self.size,
            "logicalNeuronCore": self.lnc,
            **{kind.value: count for kind, count in found.by_type.items()},
            "devices": found.devices,
            "slices": found.slices,
            "counterSets": found.counter_sets,
            "counters": found.counters,
            "scanSeconds": found.scan,
        }


def rows(published: Published, *, lnc: int | None) -> Iterator[Row]:
    """One for each size at each LNC that it has, or at that one."""
    for size in SIZES.values():
        machine = nominal(size)
        for each in range(1, machine.max_lnc + 1):
            if lnc in (None, each):
                yield Row(size.name, each, published(machine, each))


def table(found: list[Row]) -> str:
    """A line for each."""
    return "\n".join([*aligned([HEADING, *(row.words for row in found)], right=True), LEGEND, ""])
