"""Reads a node's Neuron hardware from sysfs, /proc/devices and DMI, under configurable roots.

Invariants: only class entries `neuron<N>` whose device number has the major that /proc/devices gives to
`neuron` and the minor N count; no name in /dev is ever looked at (`/dev/ng0n1` and its like are raw NVMe
disks). A chip that can't be read in full is left out with a Problem that names the path and the remedy,
never guessed at and never the end of the scan. Problems come in the order of the chips.

A scan opens files only: no device node, no ioctl, nothing is written.
"""

import errno
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from dra_driver.errors import NeuronError
from dra_driver.neuron import version
from dra_driver.neuron.contradictions import contradictions
from dra_driver.neuron.machine import Chip, Machine, Problem

CLASS = Path("class/neuron_device")
DRIVER_VERSION = Path("module/neuron/version")
PRODUCT_NAME = Path("devices/virtual/dmi/id/product_name")

MAX_CORES = 32  # the kernel driver's own limit is 8; a larger number is a misread file, not a chip

_CHIP = re.compile(r"neuron(0|[1-9][0-9]{0,3})")
_CORE = re.compile(r"neuron_core[0-9]{1,3}")
_NUMBER = re.compile(r"[0-9]{1,9}")
_DEVICE_NUMBER = re.compile(r"([0-9]{1,7}):([0-9]{1,7})")
_MAJOR = re.compile(r"\s*([0-9]{1,7})\s+neuron\s*")
_SERIAL = re.compile(r"[0-9a-fA-F]{16}")
_SIZE = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+){1,2}")
_NO_SERIALS = {
    "0" * 16,
    "f" * 16,
    "deadbeef" * 2,
}  # what a register reads as when the hardware doesn't answer
_CORE_ARCHITECTURES = {"NCv1", "NCv2", "NCv3", "NCv4"}
_LONGEST = 1 << 16  # bytes read of a file; sysfs gives 4096, /proc/devices may be longer


@dataclass(frozen=True)
class Layout:
    """Where one generation of the kernel driver keeps what, relative to a chip's folder."""

    name: str
    core_count: str
    connected_devices: str
    core_architecture: str
    device_architecture: str
    serial: str
    family: str

    @property
    def required(self) -> tuple[str, ...]:
        """The files without which a chip can't be published."""
        return (self.core_count, self.connected_devices, self.core_architecture)


# Driver 2.31 announced a reorganised tree (BC-031). A layout is added here once its paths are known from the
# source or a machine; until then such a chip is a Problem that names the missing path.
LAYOUTS = (
    Layout(
        name="2.15 to 2.30",
        core_count="core_count",
        connected_devices="connected_devices",
        core_architecture="neuron_core0/info/architecture/arch_type",
        device_architecture="info/architecture/arch_type",
        serial="info/serial_number",
        family="info/architecture/device_name",
    ),
)


class _Unusable(Exception):  # noqa: N818 - no failure of the program: a finding about the hardware
    """A chip, or a part of it, that can't be used."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(reason)
        self.problem = Problem(str(path), reason)


def read_machine(*, sysfs_root: Path, proc_root: Path) -> Machine:
    """One snapshot of the hardware; a node without Neuron hardware is a Machine without chips.

    Raises NeuronError when the roots themselves can't be read.
    """
    driver_version, size = _line(sysfs_root / DRIVER_VERSION), _line(sysfs_root / PRODUCT_NAME)
    folders = _class_entries(sysfs_root)
    problems = _about_version(sysfs_root / DRIVER_VERSION, driver_version) if folders else []
    majors = _majors(proc_root / "devices") if folders else frozenset()
    chips = []
    for index, entry in folders:
        try:
            chip, told = _scan(sysfs_root, entry, index, majors, proc_root, driver_version)
            chips.append(chip)
            problems += told
        except _Unusable as unusable:
            problems.append(unusable.problem)
    machine = Machine(tuple(chips), size if _SIZE.fullmatch(size) else "", driver_version)
    problems += [Problem(str(sysfs_root / CLASS), text) for text in contradictions(machine)]
    return replace(machine, problems=tuple(problems))


def _scan(
    sysfs_root: Path, entry: Path, index: int, majors: frozenset[int], proc_root: Path, driver_version: str
) -> tuple[Chip, list[Problem]]:
    """One chip and what was odd about it. A chip that goes away meanwhile isn't there, whatever was read of it."""
    folder = _resolve(sysfs_root, entry)
    problems: list[Problem] = []
    try:
        major = _device_number(folder, index, majors, proc_root)
        chip = _chip(folder, index, major, driver_version, problems)
    except _Unusable:
        _still_there(folder)
        raise
    _still_there(folder)
    return chip, problems


def _still_there(folder: Path) -> None:
    if not os.path.exists(folder):  # noqa: PTH110 - Path.exists raises where it may not look
        raise _Unusable(folder, "vanished while it was read: unbound, or the kernel module was unloaded; chip left out")


def _class_entries(sysfs_root: Path) -> list[tuple[int, Path]]:
    """The class entries by ascending index; others there (`node_id_2`, decoys) are none of ours."""
    if not os.path.isdir(sysfs_root):  # noqa: PTH112 - Path.is_dir raises where it may not look
        raise NeuronError(f"no sysfs at {sysfs_root}: mount the host's /sys there or correct --sysfs-root")
    folder = sysfs_root / CLASS
    try:
        entries = list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NeuronError(f"can't list {folder}: {_why(error)}") from error
    return sorted((int(match[1]), entry) for entry in entries if (match := _CHIP.fullmatch(entry.name)))


def _majors(devices: Path) -> frozenset[int]:
    """The character majors registered as `neuron`: empty while the module isn't loaded, else one."""
    try:
        text = _read(devices)
    except OSError as error:
        text = f"can't read {devices}: {_why(error)}; mount the host's /proc there or correct --proc-root"
        raise NeuronError(text) from error
    characters = text.partition("Block devices:")[0]
    matches = (_MAJOR.fullmatch(line) for line in characters.splitlines())
    return frozenset(int(match[1]) for match in matches if match)


def _resolve(sysfs_root: Path, entry: Path) -> Path:
    """The chip's folder: the entry has to lead to a neuron_device of its own name inside this sysfs."""
    try:
        folder = entry.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise _Unusable(entry, f"leads nowhere ({error}): is all of /sys mounted, and the driver well?") from error
    inside = folder.is_relative_to(sysfs_root.resolve() / "devices")
    if not (inside and folder.is_dir() and folder.name == entry.name and folder.parent.name == CLASS.name):
        raise _Unusable(entry, f"leads to {folder}, which is no neuron_device of this sysfs; left out")
    return folder


def _device_number(folder: Path, index: int, majors: frozenset[int], proc_root: Path) -> int:
    """The major of the chip's node. It decides what a container gets, so all of the number must fit."""
    path = folder / "dev"
    text = _required(path)
    match = _DEVICE_NUMBER.fullmatch(text)
    if match is None:
        raise _Unusable(path, f"is {text[:40]!r}, not major:minor; chip left out")
    major, minor = int(match[1]), int(match[2])
    if major not in majors:
        known = ", ".join(map(str, sorted(majors))) or "none: is the neuron module loaded?"
        where = proc_root / "devices"
        raise _Unusable(path, f"has major {major}, but {where} gives 'neuron' {known}; chip left out")
    if minor != index:
        raise _Unusable(path, f"has minor {minor}, expected {index} as in the name; chip left out")
    return major


def _chip(folder: Path, index: int, major: int, driver_version: str, problems: list[Problem]) -> Chip:
    layout = _layout(folder, driver_version)
    _refuse_unsupported(folder / layout.device_architecture, driver_version)
    cores = _core_count(folder / layout.core_count)
    architecture = _core_architecture(folder / layout.core_architecture)
    chip = Chip(
        index=index,
        major=major,
        minor=index,
        physical_cores=cores,
        neighbours=_neighbours(folder / layout.connected_devices),
        serial=_serial(folder / layout.serial, problems),
        family=_line(folder / layout.family),
        core_architecture=architecture,
    )
    _count_folders(folder, cores, problems)
    if cores % chip.max_lnc:
        reason = f"is {cores}, but {architecture} cores come in pairs; chip left out"
        raise _Unusable(folder / layout.core_count, reason)
    return chip


def _layout(folder: Path, driver_version: str) -> Layout:
    """The layout of which all required files are there."""
    for layout in LAYOUTS:
        if all(os.path.lexists(folder / path) for path in layout.required):
            return layout
    missing = next(path for path in LAYOUTS[-1].required if not os.path.lexists(folder / path))
    known = ", ".join(layout.name for layout in LAYOUTS)
    reason = f"is missing: kernel driver {driver_version or 'of unknown version'} lays sysfs out in a way that"
    raise _Unusable(folder / missing, f"{reason} isn't known here (known: {known}); chip left out")


def _refuse_unsupported(path: Path, driver_version: str) -> None:
    """Inferentia1 left the kernel driver by 2.25: its chips show up but can't be used (BC-114)."""
    if _line(path) == "NDv1" and version.parts(driver_version) >= (2, 25):
        reason = f"says NDv1: chip unsupported by driver {driver_version}, 2.21 is the last that runs it; left out"
        raise _Unusable(path, reason)


def _core_count(path: Path) -> int:
    text = _required(path)
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_CORES:
        raise _Unusable(path, f"is {text[:40]!r}, not a number of cores from 1 to {MAX_CORES}; chip left out")
    return int(text)


def _count_folders(folder: Path, cores: int, problems: list[Problem]) -> None:
    """`core_count` is what the kernel driver and the runtime go by; the folders of the cores should agree."""
    there = sum(1 for name in _names(folder) if _CORE.fullmatch(name))
    if there != cores:
        reason = f"is {cores}, but there are {there} folders neuron_core<M>; the number counts"
        problems.append(Problem(str(folder / "core_count"), reason))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return []


def _core_architecture(path: Path) -> str:
    """It decides whether cores pair up (LNC), so an unknown one can't be published."""
    text = _required(path)
    if text not in _CORE_ARCHITECTURES:
        known = ", ".join(sorted(_CORE_ARCHITECTURES))
        raise _Unusable(path, f"is {text[:40]!r}, known are {known}; chip left out")
    return text


def _neighbours(path: Path) -> frozenset[int]:
    """`12, 3, 4, 1` in any order; a lone newline or nothing where there are no links."""
    text = _required(path)
    numbers = text.replace(",", " ").split()
    if not all(_NUMBER.fullmatch(number) for number in numbers):
        raise _Unusable(path, f"is {text[:40]!r}, not a list of chip numbers; chip left out")
    return frozenset(map(int, numbers))


def _serial(path: Path, problems: list[Problem]) -> str:
    """The chip's serial number. A blank is no problem, anything else that is none is told."""
    text = _line(path)
    serial = serial_number(text)
    if text and not serial and text.lower() not in _NO_SERIALS:
        problems.append(Problem(str(path), f"is {text[:40]!r}, not 16 hex digits; chip has no serial number"))
    return serial


def serial_number(text: str) -> str:
    """16 hex digits in lower case; empty where the hardware doesn't tell or the text is something else."""
    serial = text.strip().lower()
    return serial if _SERIAL.fullmatch(serial) and serial not in _NO_SERIALS else ""


def _about_version(path: Path, text: str) -> list[Problem]:
    if version.semver(text) != version.UNKNOWN:
        return []
    said = f"is {text[:40]!r}, not a.b.c.d" if text else "is missing or empty"
    return [Problem(str(path), f"{said}; driverVersion is published as {version.UNKNOWN}")]


def _required(path: Path) -> str:
    """A file's text without the space around it: `core_count` has no newline, others may be one."""
    try:
        return _read(path).strip()
    except OSError as error:
        raise _Unusable(path, f"can't be read: {_why(error)}; chip left out") from error


def _line(path: Path) -> str:
    """An optional file's text; empty when it isn't there or can't be read."""
    try:
        return _read(path).strip()
    except OSError:
        return ""


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LONGEST).decode(errors="replace")


def _why(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{reason} (some files are for root only: run as uid 0)"
    return reason
