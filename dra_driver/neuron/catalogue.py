"""What each EC2 size with Neuron hardware is built of: one row a size.

The tables serve three ends: memory per chip (sysfs doesn't tell it), alarms when a node has less than its
size says, and machines for the simulator. Counts that are published come from the hardware, never from here.
"""

import re
from dataclasses import dataclass

GIB = 1 << 30

_NEURON_SIZE = re.compile(r"(?:ml\.)?(?:inf|trn)[0-9][a-z0-9-]*\.[a-z0-9-]+")


@dataclass(frozen=True)
class Size:
    """One EC2 size; spellings are those of sysfs."""

    name: str
    physical_cores: int  # per chip
    memory: int  # bytes per chip
    family: str  # info/architecture/device_name
    instance_family: str  # info/architecture/instance_type
    device_architecture: str  # info/architecture/arch_type
    core_architecture: str  # neuron_core<M>/info/architecture/arch_type
    links: tuple[tuple[int, ...], ...]  # neighbours of each chip, in the order the kernel driver prints them

    @property
    def chips(self) -> int:
        """How many chips a whole machine of this size has."""
        return len(self.links)


SIZES: dict[str, Size] = {
    size.name: size
    for size in (
        Size(
            name="trn1.2xlarge",
            physical_cores=2,
            memory=32 * GIB,
            family="Trainium1",
            instance_family="Trn1",
            device_architecture="NDv2",
            core_architecture="NCv2",
            links=((),),
        ),
    )
}


def lookup(product_name: str) -> Size | None:
    """The row of a DMI product name, None when the size isn't known.

    SageMaker hosts are the same hardware under the prefix `ml.`.
    """
    return SIZES.get(product_name.removeprefix("ml."))


def instance_is_neuron(product_name: str) -> bool:
    """Whether DMI promises Neuron hardware, known size or not.

    Where it does and sysfs shows no chip, the node isn't ready; where it doesn't, nothing is to be published.
    """
    return _NEURON_SIZE.fullmatch(product_name) is not None
