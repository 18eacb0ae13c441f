"""Which NUMA node each chip is on, by EC2 size: sysfs doesn't tell, since the chips' entries have no PCI parent.

The tables are from captures of such machines; a size that isn't here has none.
"""

from dra_driver.neuron.machine import Machine

_NODES: dict[str, tuple[int, ...]] = {
    "trn2.3xlarge": (0,),
    "trn2.48xlarge": (1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1),
}


def node(machine: Machine, chip: int) -> int | None:
    """The NUMA node of the chip of that host index, None where it isn't known."""
    nodes = _NODES.get(machine.instance_type.removeprefix("ml."), ())
    return nodes[chip] if chip < len(nodes) else None
