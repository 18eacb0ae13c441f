"""Which attributes and capacities a device carries: the common ones on every device, the rest on chips and groups.

Invariants: a key has one type for ever; a common attribute is on every device of every size, since one
device without it stops, through a CEL runtime error, pods on all nodes. An unknown string is empty, an
unknown number -1. Bare keys live in the driver's own domain; the same name is never also published qualified
(BC-019). Keys of other domains are only on chips and groups of sizes where their values are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.inventory.limits import STRING_BYTES
from dra_driver.neuron import catalogue, numa, topology
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.version import semver

Wire = dict[str, Any]

_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
NUMA_NODE = "resource.kubernetes.io/numaNode"
AWS_DOMAIN = "resource.aws.com"

# On every device of every size: what classes and users may select on.
COMMON = frozenset(
    (
        *("type", "index", "chips", "cores", "firstCore"),
        *("logicalNeuronCore", "maxLogicalNeuronCore", "family", "instanceType", "driverVersion"),
    )
)


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


def whole_chips(machine: Machine, chips: Sequence[Chip]) -> dict[str, Wire]:
    """What only chips and groups say: for people and for `matchAttribute`, too dear on every core.

    Of a group its first chip speaks, except where all its chips must agree (NUMA node, AWS's device groups).
    """
    first = chips[0]
    row, column = topology.position(machine, first.index)
    return {
        "physicalCores": integer(sum(chip.physical_cores for chip in chips)),
        "serialNumber": string(first.serial),
        "coreArchitecture": string(first.core_architecture),
        "driverVersionText": string(machine.driver_version),
        "row": integer(row),
        "column": integer(column),
        "deviceId": integer(first.index),
        **_numa_node(machine, chips),
        **_device_groups(machine, chips),
    }


def memory(machine: Machine, chips: Sequence[Chip], *, physical_cores: int) -> dict[str, Wire]:
    """The share of the chips' memory as capacity; empty where the size is unknown or contradicts the chips.

    `physical_cores` of all that the chips have together.
    """
    size = catalogue.lookup(machine.instance_type)
    if size is None or any(size.family != chip.family for chip in chips):
        return {}
    share = size.memory * len(chips) * physical_cores // sum(chip.physical_cores for chip in chips)
    return {"memory": {"value": quantity(share)}}


def _numa_node(machine: Machine, chips: Sequence[Chip]) -> dict[str, Wire]:
    """Left out rather than -1: all devices that have none would match each other."""
    nodes = {numa.node(machine, chip.index) for chip in chips}
    [node] = nodes if len(nodes) == 1 else [None]
    return {} if node is None else {NUMA_NODE: integer(node)}


def _device_groups(machine: Machine, chips: Sequence[Chip]) -> dict[str, Wire]:
    """The ids that all the chips share, under the names that AWS's drivers for chips and network adapters use."""
    of_each = [topology.device_groups(machine, chip.index) for chip in chips]
    shared = {size: value for size, value in of_each[0].items() if all(ids.get(size) == value for ids in of_each)}
    return {f"{AWS_DOMAIN}/devicegroup{size}_id": string(value) for size, value in shared.items()}


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
