"""Which of sysfs's cores a logical core is: on trn2 and trn3 workloads count cores in another order than sysfs.

Needed wherever a counter or a fault of `neuron_core<M>` is to be told of the core that a pod holds. Pure. The
order depends on the platform, and on UltraServers on the server's place in it; where it isn't known the answer
is None, and what is read belongs to the chip as a whole. Physical pairs (0 and 1, 2 and 3 …) stay pairs in every
order, so a logical core of LNC 2 is always one pair.
"""

from dra_driver.neuron.catalogue import unprefixed
from dra_driver.neuron.links import BLOCK, ROW
from dra_driver.neuron.machine import Chip, Machine

Order = tuple[int, ...]  # by logical core at LNC 1: the sysfs core

# By row (even, odd), then column (even, odd).
_TRN2: tuple[tuple[Order, Order], tuple[Order, Order]] = (
    ((4, 5, 6, 7, 2, 3, 0, 1), (2, 3, 0, 1, 4, 5, 6, 7)),
    ((0, 1, 2, 3, 6, 7, 4, 5), (6, 7, 4, 5, 0, 1, 2, 3)),
)
_TRN3_SWITCHED: tuple[Order, Order] = ((4, 5, 6, 7, 2, 3, 0, 1), (6, 7, 4, 5, 0, 1, 2, 3))
_FLIP = 0x6  # on the UltraServer nodes 1 and 3: of the logical index

_STANDARD_SIZES = {"trn2.3xlarge", "trn2.48xlarge"}
_ULTRASERVER_SIZES = {"trn2u.48xlarge"}
_SWITCHED_SIZES = {"trn3.48xlarge", "trn3s-es.48xlarge", "trn3sn.48xlarge", "trn3sn-es.48xlarge"}


def default(machine: Machine) -> int:
    """The LNC that the runtime takes unless it is told otherwise: 2 on trn2, so AWS documents it, presumed on trn3."""
    return machine.max_lnc


def sysfs_cores(
    machine: Machine, chip: Chip, core: int, *, lnc: int = 1, ultraserver_node: int | None = None
) -> tuple[int, ...] | None:
    """The numbers M of `neuron_core<M>` behind a logical core of the chip, ascending; None where not known.

    `ultraserver_node` is the server's number in its UltraServer, 0 to 3, or -1 for one that is in none. Raises
    ValueError for a core or an LNC that the chip doesn't have.
    """
    if lnc not in (1, chip.max_lnc):
        raise ValueError(f"chip {chip.index} has no LNC {lnc}, at most {chip.max_lnc}")
    if not 0 <= core < chip.physical_cores // lnc:
        raise ValueError(f"chip {chip.index} has no core {core} at LNC {lnc}")
    known = order(machine, chip, ultraserver_node=ultraserver_node)
    return None if known is None else tuple(sorted(known[core * lnc : (core + 1) * lnc]))


def order(machine: Machine, chip: Chip, *, ultraserver_node: int | None = None) -> Order | None:
    """The sysfs core of each logical core at LNC 1; None where it isn't known."""
    if chip.max_lnc == 1:
        return tuple(range(chip.physical_cores))
    size = unprefixed(machine.instance_type)
    if chip.physical_cores != len(_TRN2[0][0]) or chip.index >= BLOCK:
        return None
    if size in _SWITCHED_SIZES:
        return _TRN3_SWITCHED[chip.index % 2]
    standard = _TRN2[chip.index // ROW % 2][chip.index % 2]
    if size in _STANDARD_SIZES:
        return standard
    if size in _ULTRASERVER_SIZES and ultraserver_node in range(-1, 4):
        flip = _FLIP if ultraserver_node in (1, 3) else 0
        return tuple(standard[index ^ flip] for index in range(len(standard)))
    return None
