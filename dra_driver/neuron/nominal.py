"""A machine as its size promises it, as a value: for tables and tests that need many sizes and no tree of files."""

from dra_driver.neuron.catalogue import Size
from dra_driver.neuron.machine import Chip, Machine

DRIVER_VERSION = "2.30.2.0"
MAJOR = 243


def nominal(size: Size, *, driver_version: str = DRIVER_VERSION) -> Machine:
    """All chips of the size with all their links, serials made up."""
    return Machine(tuple(_chip(size, index) for index in range(size.chips)), size.name, driver_version)


def _chip(size: Size, index: int) -> Chip:
    return Chip(
        index=index,
        major=MAJOR,
        minor=index,
        physical_cores=size.physical_cores,
        neighbours=frozenset(size.links[index]),
        serial=f"9ff5434815c8{0xBD80 + index:04x}",
        family=size.family,
        core_architecture=size.core_architecture,
    )
