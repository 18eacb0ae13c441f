"""A node's Neuron hardware as one immutable snapshot."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """One Neuron device, `/dev/neuron<index>` on the host."""

    index: int
    major: int
    minor: int
    physical_cores: int
    neighbours: frozenset[int]  # host indices of linked chips; order in sysfs means nothing
    serial: str = ""  # 16 hex digits, empty when the hardware doesn't tell
    family: str = ""  # "Trainium1"
    core_architecture: str = ""  # "NCv2"

    @property
    def max_lnc(self) -> int:
        """How many physical cores a logical core may span: 2 from NCv3 on (trn2, trn3), 1 before."""
        return 2 if self.core_architecture in {"NCv3", "NCv4"} else 1


@dataclass(frozen=True)
class Problem:
    """Something a scan couldn't use, and what was done about it."""

    path: str
    reason: str


@dataclass(frozen=True)
class Machine:
    """All usable chips by ascending index, and what was left out."""

    chips: tuple[Chip, ...] = ()
    instance_type: str = ""  # EC2 size from DMI, empty when unknown
    driver_version: str = ""  # as the kernel module says it, empty when unknown
    problems: tuple[Problem, ...] = ()

    @property
    def max_lnc(self) -> int:
        """The most that any of its chips knows; 1 without chips."""
        return max((chip.max_lnc for chip in self.chips), default=1)

    def chip(self, index: int) -> Chip | None:
        """The chip of that host index, None when it isn't there."""
        return next((chip for chip in self.chips if chip.index == index), None)
