"""What a node's owner offers of what the hardware could offer: less of it, never anything else.

Names, shapes and counters of what is left are those that it has without an offer, so a claim that was allocated
under another offer still means the same device.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from dra_driver.inventory.attributes import read_integer
from dra_driver.inventory.devices import Device, DeviceType

EVERY_TYPE = frozenset(DeviceType)


class Runs(StrEnum):
    """Where core runs are offered."""

    AUTO = "auto"  # on hardware without LNC 2: whether the runtime takes a run of logical cores there is unproven
    ON = "on"
    OFF = "off"


@dataclass(frozen=True)
class Offer:
    """What is left out of what the hardware has. The default leaves out core runs where they are unproven."""

    types: frozenset[DeviceType] = EVERY_TYPE
    core_counts: Collection[int] = ()  # of cores and runs, in logical cores; empty for all
    chip_counts: Collection[int] = ()  # of chips and groups; empty for all
    chips_with_cores: int | None = None  # cores and runs on the first so many chips only; None for all
    runs: Runs = Runs.AUTO

    def of(self, devices: Iterable[Device]) -> list[Device]:
        """Those of a machine's devices that are offered, in their order."""
        everything = list(devices)
        chips = sorted({chip for device in everything for chip in device.chips})
        with_cores = frozenset(chips[: self.chips_with_cores])
        return [device for device in everything if self._has(device, with_cores)]

    def _has(self, device: Device, with_cores: Collection[int]) -> bool:
        if device.type not in self.types:
            return False
        if not device.part:
            return _in(len(device.chips), self.chip_counts)
        offered = device.type is not DeviceType.CORE_RUN or self._has_run(device)
        return offered and device.chips[0] in with_cores and _in(device.cores, self.core_counts)

    def _has_run(self, device: Device) -> bool:
        proven = read_integer(device.wire, "maxLogicalNeuronCore") == 1
        return self.runs is Runs.ON or (self.runs is Runs.AUTO and proven)


def _in(count: int, counts: Collection[int]) -> bool:
    return not counts or count in counts
