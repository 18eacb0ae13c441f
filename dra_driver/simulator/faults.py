"""Faults of a made machine by name, as `coreslice machine make --fault NAME[=VALUE]` takes them.

Each leaves the tree as the kernel driver leaves it in that case, as far as that is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_driver.simulator.machines import (
    MachineError,
    MachinePaths,
    blank_serial,
    make_unreadable,
    put,
    reboot,
    remove_chip,
    shut_down_module,
)

OTHER_BOOT_ID = "0d9f7a52-6c1b-4f0e-8a35-b1c7e2d4f688"


@dataclass(frozen=True)
class Fault:
    """What a fault's value is, and what it does."""

    value: str  # as a metavar; empty where it takes none
    text: str
    apply: Callable[[MachinePaths, str], None]


def apply(paths: MachinePaths, faults: Sequence[str]) -> None:
    """Applies `name` or `name=value` in that order. Raises MachineError for one that doesn't exist or fit."""
    for each in faults:
        name, given, value = each.partition("=")
        fault = FAULTS.get(name)
        if fault is None:
            raise MachineError(f"fault {name!r} isn't known; known are {', '.join(FAULTS)}")
        if bool(given) != bool(fault.value):
            raise MachineError(f"fault {name} takes {f'a value: {name}={fault.value}' if fault.value else 'no value'}")
        fault.apply(paths, value)


def _missing(paths: MachinePaths, value: str) -> None:
    """Never probed, so the driver counts one chip less, and most print links for a complete machine only."""
    gone = _chip(paths, value)
    family = (paths.chip(gone) / "info/architecture/instance_type").read_text().strip()
    remove_chip(paths, gone)
    left = _indices(paths)
    complete = len(left) in (6, 12) if family == "Inf2" else len(left) % 16 == 0
    for index in left:
        if family == "Inf1":  # its links are read live from the hardware
            _set_links(paths, index, [link for link in _links(paths, index) if link != gone])
        elif not complete:
            _set_links(paths, index, [])


def _vanished(paths: MachinePaths, value: str) -> None:
    """Gone under a reader's eyes: listed in the class, but the folder isn't there any more."""
    index = _chip(paths, value)
    link = paths.class_entry(index).readlink()
    remove_chip(paths, index)
    paths.class_entry(index).symlink_to(link)


def _duplicate_id(paths: MachinePaths, value: str) -> None:
    """The chip says the number of the one before it (the first: of the second)."""
    index = _chip(paths, value)
    major, _ = _device_number(paths, index)
    put(paths.chip(index) / "dev", f"{major}:{index - 1 if index else 1}\n")


def _blank_serial(paths: MachinePaths, value: str) -> None:
    blank_serial(paths, _chip(paths, value))


def _same_serial(paths: MachinePaths, value: str) -> None:
    a, b = _two_chips(paths, value)
    put(paths.chip(b) / "info/serial_number", (paths.chip(a) / "info/serial_number").read_text())


def _unreadable(paths: MachinePaths, value: str) -> None:
    index, _, file = value.partition(":")
    chip, file = _chip(paths, index), file or "core_count"
    if not (paths.chip(chip) / file).is_file():
        raise MachineError(f"chip {chip} has no file {file}")
    make_unreadable(paths, chip, file)


def _dead_link(paths: MachinePaths, value: str) -> None:
    a, b = _two_chips(paths, value)
    _unlink(paths, a, b)
    _unlink(paths, b, a)


def _one_way_link(paths: MachinePaths, value: str) -> None:
    _unlink(paths, *_two_chips(paths, value))


def _renumbered(paths: MachinePaths, _: str) -> None:
    """Another boot: every chip has moved up by one index, the last is first, and the major is another."""
    files = [paths.chip(index) / "info/serial_number" for index in _indices(paths)]
    serials = [file.read_text() for file in files]
    for file, serial in zip(files, serials[-1:] + serials[:-1], strict=True):
        put(file, serial)
    reboot(paths, OTHER_BOOT_ID, major=_device_number(paths, _indices(paths)[0])[0] - 1)


def _decoys(paths: MachinePaths, _: str) -> None:
    """What has a similar name and is no chip, in the class and in /dev."""
    after = _indices(paths)[-1] + 1
    entries = paths.sysfs / "class/neuron_device"
    for name in ("neuron_monitor", "ng0n1", "neuron00"):
        (entries / name).symlink_to("../../devices/virtual/neuron_device/neuron0")
    put(entries / f"neuron{after}", "243:1\n")
    put(paths.dev / "neuron_monitor", "")
    put(paths.dev / "nvme0", "", 0o600)
    put(paths.dev / f"neuron{after}", "")
    (paths.dev / f"neuron{after + 1}").symlink_to("ng0n1")


def _layout_231(paths: MachinePaths, _: str) -> None:
    """Driver 2.31 moved files: where to isn't known here, so they are where no reader of older drivers finds them."""
    put(paths.sysfs / "module/neuron/version", "2.31.7.0\n")
    for index in _indices(paths):
        for name in ("core_count", "connected_devices"):
            (paths.chip(index) / name).unlink()


def _driver_version(paths: MachinePaths, value: str) -> None:
    put(paths.sysfs / "module/neuron/version", f"{value}\n")


def _unloaded(paths: MachinePaths, _: str) -> None:
    shut_down_module(paths)


FAULTS = {
    "missing-chip": Fault("N", "chip N was never found by the kernel driver", _missing),
    "vanish": Fault("N", "chip N is listed, and gone when it is looked at", _vanished),
    "unreadable": Fault("N[:FILE]", "a file of chip N (core_count) that can't be read", _unreadable),
    "duplicate-id": Fault("N", "chip N has the device number of another", _duplicate_id),
    "blank-serial": Fault("N", "chip N has no serial number", _blank_serial),
    "same-serial": Fault("A-B", "chip B has chip A's serial number", _same_serial),
    "dead-link": Fault("A-B", "no link between chips A and B", _dead_link),
    "one-way-link": Fault("A-B", "chip A doesn't report its link to B, B does", _one_way_link),
    "renumbered": Fault("", "another boot: the chips have other indices, the major is another", _renumbered),
    "decoys": Fault("", "entries that look like chips and are none", _decoys),
    "layout-2.31": Fault("", "kernel driver 2.31, which moved files", _layout_231),
    "driver-version": Fault("V", "the kernel driver says it is version V", _driver_version),
    "unloaded": Fault("", "the kernel module unloaded itself, as on two chips with one routing id", _unloaded),
}


def _indices(paths: MachinePaths) -> list[int]:
    names = (path.name.removeprefix("neuron") for path in paths.chip(0).parent.glob("neuron[0-9]*"))
    if not (found := sorted(map(int, names))):
        raise MachineError("no chip is left that the fault could concern")
    return found


def _chip(paths: MachinePaths, text: str) -> int:
    if not text.isdecimal() or int(text) not in _indices(paths):
        raise MachineError(f"there is no chip {text!r}; chips are {', '.join(map(str, _indices(paths)))}")
    return int(text)


def _two_chips(paths: MachinePaths, text: str) -> tuple[int, int]:
    first, _, second = text.partition("-")
    return _chip(paths, first), _chip(paths, second)


def _device_number(paths: MachinePaths, index: int) -> tuple[int, int]:
    major, _, minor = (paths.chip(index) / "dev").read_text().strip().partition(":")
    return int(major), int(minor)


def _links(paths: MachinePaths, index: int) -> list[int]:
    return [int(link) for link in _links_file(paths, index).read_text().split(",") if link.strip()]


def _set_links(paths: MachinePaths, index: int, links: Sequence[int]) -> None:
    put(_links_file(paths, index), ", ".join(map(str, links)) + "\n")


def _links_file(paths: MachinePaths, index: int) -> Path:
    return paths.chip(index) / "connected_devices"


def _unlink(paths: MachinePaths, chip: int, other: int) -> None:
    links = _links(paths, chip)
    if other not in links:
        raise MachineError(f"chip {chip} has no link to chip {other}, only to {', '.join(map(str, links)) or 'none'}")
    _set_links(paths, chip, [link for link in links if link != other])
