"""A machine as its size promises it, by value: for tables and tests that need many sizes and no tree of files."""

from dra_driver.neuron.catalogue import Size
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.simulator.machines import default_driver_version, made_up_serial

MAJOR = 243


def nominal(size: Size, *, driver_version: str | None = None) -> Machine:
    """What is read from the tree that `make_machine` makes of the size."""
    chips = tuple(_chip(size, index) for index in range(size.chips))
    return Machine(chips, size.name, driver_version or default_driver_version(size))


def _chip(size: Size, index: int) -> Chip:
    return Chip(
        index=index,
        major=MAJOR,
        minor=index,
        physical_cores=size.physical_cores,
        neighbours=frozenset(size.links[index]),
        serial=made_up_serial(index),
        family=size.family,
        core_architecture=size.core_architecture,
    )
