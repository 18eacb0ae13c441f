"""Which published devices share cores, told from what is published alone.

Independent of the driver's own arithmetic on purpose: a device is the cores that its
attributes say, and two devices that have one in common must both draw on counters.
"""

from collections.abc import Iterable
from itertools import combinations

from testbed.api import Object


def devices(slices: Iterable[Object]) -> list[Object]:
    """Every device that the slices list."""
    return [device for item in slices for device in item["spec"].get("devices") or []]


def cores(device: Object) -> set[tuple[int, int]]:
    """(chip, logical core) pairs of a device."""
    value = {name: entry.get("int", 0) for name, entry in device["attributes"].items()}
    each = value["cores"] // value["chips"]
    chips = range(value["index"], value["index"] + value["chips"])
    return {(chip, core) for chip in chips for core in range(value["firstCore"], value["firstCore"] + each)}


def overlapping(slices: Iterable[Object]) -> list[tuple[str, str]]:
    """Names of every two devices that share a core."""
    return [(a["name"], b["name"]) for a, b in combinations(devices(slices), 2) if cores(a) & cores(b)]


def unprotected(slices: Iterable[Object]) -> list[tuple[str, str]]:
    """Those of the overlapping pairs of which at least one draws on no counter: a core twice, sooner or later."""
    counted = {device["name"] for device in devices(slices) if device.get("consumesCounters")}
    return [pair for pair in overlapping(slices) if not set(pair) <= counted]
