"""What claims need to know of the node's hardware at the moment they are prepared."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from dra_driver.inventory.devices import Device
from dra_driver.neuron.machine import Chip, Machine


@dataclass(frozen=True)
class Snapshot:
    """One look at the machine, and every device that this node could offer of it, by name."""

    machine: Machine
    devices: Mapping[str, Device]

    @cached_property
    def lnc(self) -> int:
        """What its devices were cut at; 1 without any, and on hardware that knows nothing else."""
        return max((device.lnc for device in self.devices.values()), default=1)


class Hardware(Protocol):
    """The machine as the driver last scanned it, and two questions to sysfs itself."""

    def snapshot(self) -> Snapshot:
        """The last scan, all of one moment, at the node's LNC as this instance saw it last."""

    def changed(self, chip: Chip) -> str | None:
        """What sysfs says otherwise of the chip now (device number, serial, gone); None when it still holds."""

    def busy(self, device: Device) -> str | None:
        """Which of the device's cores a process still holds memory on; None when none is seen."""
