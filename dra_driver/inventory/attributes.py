"""Which attributes and capacities a device carries: the common ones on every device, the rest on whole chips.

Invariants: a key has one type for ever; a common attribute is on every device of every size, since one
device without it stops, through a CEL runtime error, pods on all nodes. An unknown string is empty, an
unknown number -1. Bare keys live in the driver's own domain; the same name is never also published qualified
(BC-019).
"""

from collections.abc import Mapping
from typing import Any

from dra_driver.inventory.limits import STRING_BYTES
from dra_driver.neuron import catalogue
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.version import semver

Wire = dict[str, Any]

_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
UNKNOWN_NUMBER = -1


def common(machine: Machine, chip: Chip, *, lnc: int) -> dict[str, Wire]:
    """What every device of that chip says about the hardware."""
    return {
        "logicalNeuronCore": integer(lnc),
        "maxLogicalNeuronCore": integer(chip.max_lnc),
        "family": string(chip.family),
        "instanceType": string(machine.instance_type),
        "driverVersion": {"version": semver(machine.driver_version)},
    }


def place(*, kind: str, chips: tuple[int, ...], first_core: int, cores: int) -> dict[str, Wire]:
    """What every device says about itself; `cores` are logical ones, in all."""
    return {
        "type": string(kind),
        "index": integer(chips[0]),
        "chips": integer(len(chips)),
        "cores": integer(cores),
        "firstCore": integer(first_core),
    }


def whole_chip(machine: Machine, chip: Chip) -> dict[str, Wire]:
    """What only chips say: for people and for `matchAttribute`, too dear on every core.

    No size without a torus has a row or column.
    """
    return {
        "physicalCores": integer(chip.physical_cores),
        "serialNumber": string(chip.serial),
        "coreArchitecture": string(chip.core_architecture),
        "driverVersionText": string(machine.driver_version),
        "row": integer(UNKNOWN_NUMBER),
        "column": integer(UNKNOWN_NUMBER),
        "deviceId": integer(chip.index),
    }


def memory(machine: Machine, chip: Chip, *, physical_cores: int) -> dict[str, Wire]:
    """The share of the chip's memory as capacity; empty where the size is unknown or contradicts the chip."""
    size = catalogue.lookup(machine.instance_type)
    if size is None or size.family != chip.family:
        return {}
    return {"memory": {"value": quantity(size.memory * physical_cores // chip.physical_cores)}}


def integer(value: int) -> Wire:
    """An int attribute."""
    return {"int": value}


def string(value: str) -> Wire:
    """A string attribute, cut to what the API takes without splitting a character."""
    return {"string": value.encode()[:STRING_BYTES].decode(errors="ignore")}


def quantity(count: int) -> str:
    """A byte count, rounded down to whole KiB, in the form that the API server gives back.

    Written so, comparing with the stored object needs no parser: `32768Mi` would come back as `32Gi`.
    """
    count, unit = count // 1024, 1
    while count and count % 1024 == 0 and unit < len(_UNITS) - 1:
        count, unit = count // 1024, unit + 1
    return f"{count}{_UNITS[unit]}" if count else "0"


def read_integer(wire: Mapping[str, Any], key: str) -> int:
    """An int attribute of a published device; KeyError or TypeError when it has none."""
    value = wire["attributes"][key]["int"]
    if not isinstance(value, int):
        raise TypeError(f"attribute {key} is {value!r}, not an int")
    return value
