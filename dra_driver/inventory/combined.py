"""What fits in the one slice that Kubernetes 1.34 takes counters and devices in, and what to say of the rest. Pure.

What is held has its place already. Then whole chips come, then groups, large ones first, then single cores, chip by
chip, while there is room; a size of groups or a chip's cores are listed as a whole or not at all. Core runs need a
counter for each core, for which there is no room.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import groupby

from dra_driver.inventory import limits
from dra_driver.inventory.devices import Device, DeviceType


def fit(free: Iterable[Device], held: Iterable[Device]) -> list[Device]:
    """Those of the free devices that fit besides what is held."""
    listed = {device.name: device for device in held}
    fitting = []
    for _, bundle in groupby(sorted(free, key=_bundle), key=_bundle):
        added = {device.name: device for device in bundle if device.type is not DeviceType.CORE_RUN}
        if _fits((listed | added).values()):
            listed |= added
            fitting += list(added.values())
    return fitting


def left_out(free: Collection[Device], fitting: Collection[Device], minor: int) -> str:
    """In words what of the free devices doesn't fit, and why; empty where all do."""
    found = [text for kind in DeviceType if (text := _lost(kind, free, fitting))]
    if not found:
        return ""
    return (
        f"Kubernetes 1.{minor} keeps counters beside the devices only, in one slice of at most "
        f"{limits.DEVICES_PER_COMBINED_SLICE} devices and {limits.COUNTERS_PER_COMBINED_SLICE} counters: "
        f"here {'; '.join(found)}; from 1.35 on all are offered"
    )


def _bundle(device: Device) -> tuple[int, int]:
    match device.type:
        case DeviceType.CHIP:
            return (0, device.chips[0])
        case DeviceType.CHIP_GROUP:
            return (1, -len(device.chips))
        case DeviceType.CORE:
            return (2, device.chips[0])
        case DeviceType.CORE_RUN:
            return (3, 0)


def _fits(devices: Collection[Device]) -> bool:
    drawn = [chip for device in devices for chip in device.chips]
    return (
        len(devices) <= limits.DEVICES_PER_COMBINED_SLICE
        and len(set(drawn)) <= limits.COUNTERS_PER_COMBINED_SLICE
        and len(drawn) <= limits.DRAWS_PER_COMBINED_SLICE
    )


def _lost(kind: DeviceType, free: Iterable[Device], fitting: Iterable[Device]) -> str:
    due, there = ([device for device in of if device.type is kind] for of in (free, fitting))
    if len(there) == len(due):
        return ""
    match kind:
        case DeviceType.CORE:
            return f"single cores are offered on {_chips(there)} of {_chips(due)} chips only"
        case DeviceType.CORE_RUN:
            return "core runs aren't offered"
        case DeviceType.CHIP:
            return f"{len(there)} of {len(due)} chips are offered"
        case DeviceType.CHIP_GROUP:
            sizes = sorted({len(device.chips) for device in due} - {len(device.chips) for device in there})
            return f"groups of {', '.join(map(str, sizes))} chips aren't offered"


def _chips(devices: Sequence[Device]) -> int:
    return len({device.chips[0] for device in devices})
