"""What a ResourceSlice lists: cores and chips as devices that draw on shared counters."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class DeviceType(StrEnum):
    """The published `type` attribute."""

    CORE = "core"
    CORE_RUN = "core-run"
    CHIP = "chip"
    CHIP_GROUP = "chip-group"


@dataclass(frozen=True)
class Device:
    """One allocatable device. Cores are logical, chips are host indices, ascending and contiguous."""

    name: str
    type: DeviceType
    chips: tuple[int, ...]
    first_core: int  # within the first chip; 0 for chips and groups
    cores: int  # in all
    lnc: int  # physical cores per logical core
    wire: Mapping[str, Any]  # exactly as published: name, attributes, capacity, consumesCounters
