"""Slices in numbers: how many of what they list, and what that costs whoever looks for a device."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dra_driver.inventory.devices import DeviceType

SCAN_COST = 5e-6  # seconds of the scheduler for a device that it looks at, per node and attempt; measured on 1.37.2


@dataclass(frozen=True)
class Summary:
    """What the slices of one pool hold."""

    by_type: Mapping[DeviceType, int]
    slices: int
    counter_sets: int
    counters: int

    @property
    def devices(self) -> int:
        """How many devices in all."""
        return sum(self.by_type.values())

    @property
    def scan(self) -> float:
        """Seconds of the scheduler for a request that finds nothing here: it looks at each device."""
        return self.devices * SCAN_COST


def summarise(slices: Iterable[Mapping[str, Any]]) -> Summary:
    """Of the finished objects of one pool."""
    specs = [each["spec"] for each in slices]
    devices = [device for spec in specs for device in spec.get("devices") or ()]
    sets = [entry for spec in specs for entry in spec.get("sharedCounters") or ()]
    kinds = Counter(DeviceType(device["attributes"]["type"]["string"]) for device in devices)
    counters = sum(len(entry["counters"]) for entry in sets)
    return Summary({kind: kinds[kind] for kind in DeviceType}, len(specs), len(sets), counters)
