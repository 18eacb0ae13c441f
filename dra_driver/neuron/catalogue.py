"""What each EC2 size with Neuron hardware is built of: one row a size.

The tables serve three ends: memory per chip (sysfs doesn't tell it), alarms when a node has less than its
size says, and machines for the simulator. Counts that are published come from the hardware, never from here.
"""

import re
from dataclasses import dataclass

from dra_driver.neuron import links
from dra_driver.neuron.links import Fabric, Links

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
    links: Links  # neighbours of each chip, in the order the kernel driver prints them
    fabric: Fabric = Fabric.UNKNOWN
    unconfirmed: str = ""  # what of this row no public source or capture confirms; empty where all is

    @property
    def chips(self) -> int:
        """How many chips a whole machine of this size has."""
        return len(self.links)


def _inf1(name: str, wiring: Links, fabric: Fabric, unconfirmed: str = "") -> Size:
    return Size(name, 4, 8 * GIB, "Inferentia", "Inf1", "NDv1", "NCv1", wiring, fabric, unconfirmed)


def _inf2(name: str, wiring: Links, fabric: Fabric) -> Size:
    return Size(name, 2, 32 * GIB, "Inferentia2", "Inf2", "NDv3", "NCv2", wiring, fabric)  # NDv3, but NCv2: so it is


def _trn1(name: str, wiring: Links, fabric: Fabric) -> Size:
    return Size(name, 2, 32 * GIB, "Trainium1", "Trn1", "NDv2", "NCv2", wiring, fabric)


def _trn2(name: str, wiring: Links, fabric: Fabric, unconfirmed: str = "") -> Size:
    return Size(name, 8, 96 * GIB, "Trainium2", "Trn2", "NDv3", "NCv3", wiring, fabric, unconfirmed)


def _trn3(name: str, wiring: Links, fabric: Fabric, unconfirmed: str) -> Size:
    return Size(name, 8, 144 * GIB, "Trainium3", "Trn3", "NDv4", "NCv4", wiring, fabric, unconfirmed)


_ONE = links.none(1)
_DRIVER_ONLY = "named by the kernel driver only"

SIZES: dict[str, Size] = {
    size.name: size
    for size in (
        *(_inf1(f"inf1.{size}", _ONE, Fabric.SINGLE) for size in ("xlarge", "2xlarge")),
        _inf1("inf1.6xlarge", links.reverse(links.line(4)), Fabric.LINE),
        _inf1("inf1.24xlarge", links.reverse(links.ring(16)), Fabric.RING, "order of links"),
        *(_inf2(f"inf2.{size}", _ONE, Fabric.SINGLE) for size in ("xlarge", "8xlarge")),
        _inf2("inf2.24xlarge", links.line(6), Fabric.LINE),
        _inf2("inf2.48xlarge", links.ring(12), Fabric.RING),
        _trn1("trn1.2xlarge", _ONE, Fabric.SINGLE),
        *(_trn1(name, links.torus(), Fabric.TORUS) for name in ("trn1.32xlarge", "trn1n.32xlarge")),
        _trn2("trn2.3xlarge", _ONE, Fabric.SINGLE),
        *(_trn2(name, links.trn2_torus(), Fabric.TORUS) for name in ("trn2.48xlarge", "trn2u.48xlarge")),
        _trn2("trn2en.24xlarge", links.none(4), Fabric.UNKNOWN, _DRIVER_ONLY),
        # The driver prints the torus lists on the switched machines too.
        *(
            _trn3(name, links.trn2_torus(), Fabric.SWITCHED, "public figures are few")
            for name in ("trn3.48xlarge", "trn3s-es.48xlarge")
        ),
        *(
            _trn3(name, links.trn2_torus(), Fabric.SWITCHED, _DRIVER_ONLY)
            for name in ("trn3sn.48xlarge", "trn3sn-es.48xlarge")
        ),
        _trn3("trn3p.48xlarge", links.trn2_torus(), Fabric.TORUS, _DRIVER_ONLY),
        _trn3("trn3e.24xlarge", links.none(4), Fabric.SWITCHED, f"{_DRIVER_ONLY}; fabric"),
        *(
            _trn3(f"{family}.3xlarge", _ONE, Fabric.SINGLE, _DRIVER_ONLY)
            for family in ("trn3pd98", "trn3s-es", "trn3sn", "trn3sn-es")
        ),
    )
}


def lookup(product_name: str) -> Size | None:
    """The row of a DMI product name, None when the size isn't known.

    SageMaker hosts are the same hardware under the prefix `ml.`.
    """
    return SIZES.get(unprefixed(product_name))


def unprefixed(product_name: str) -> str:
    """A size without SageMaker's `ml.`."""
    return product_name.removeprefix("ml.")


def instance_is_neuron(product_name: str) -> bool:
    """Whether DMI promises Neuron hardware, known size or not.

    Where it does and sysfs shows no chip, the node isn't ready; where it doesn't, nothing is to be published.
    """
    return _NEURON_SIZE.fullmatch(product_name) is not None
