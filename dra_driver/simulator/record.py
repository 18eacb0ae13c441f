"""Writes a tree of the machine that is here, so that its owner can send it: what a scan reads, and the counters.

Only files are read, nothing is opened under /dev, nothing is written outside the new folder. What names the
machine or its owner is replaced: serial numbers and UltraServer ids by made-up ones (equal ones stay equal),
the boot id by the simulator's. Host name, addresses, processes, logs and other drivers aren't looked at.
"""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dra_driver.neuron.sysfs import CLASS, DRIVER_VERSION, PRODUCT_NAME, read_machine, serial_number
from dra_driver.simulator.machines import BOOT_ID, MachineError, MachinePaths, make_nodes, put

_CHIPS = Path("devices/virtual/neuron_device")
_LONGEST = 1 << 16
_IDENTITY = re.compile(r"[0-9a-fA-F]{16}")
_IDENTITIES = ("server_id", "reservation_id")  # of the class: UltraServer and reservation


@dataclass
class Recording:
    """Where the tree is, how many files it has, and what couldn't be read."""

    paths: MachinePaths
    files: int = 0
    unreadable: list[str] = field(default_factory=list)
    _aliases: dict[str, str] = field(default_factory=dict)

    def keep(self, source: Path, target: Path) -> None:
        """Copies a file with its mode."""
        try:
            text = _read(source)
            mode = stat.S_IMODE(source.stat().st_mode)
        except OSError as error:
            self.unreadable.append(f"{source}: {error.strerror}")
            return
        put(target, self._anonymous(source.name, text), mode)
        self.files += 1

    def _anonymous(self, name: str, text: str) -> str:
        if name == "serial_number" or name.startswith(_IDENTITIES):
            return self._alias(text.strip()) + "\n" if text.strip() else text
        return text

    def _alias(self, text: str) -> str:
        """A number that is nobody's for one that is somebody's; what a dead register reads as stays."""
        if _IDENTITY.fullmatch(text):
            return (
                self._aliases.setdefault(text, f"c0ffee{len(self._aliases) + 1:010x}") if serial_number(text) else text
            )
        return "x" * len(text)


def record(root: Path, *, sysfs_root: Path, proc_root: Path) -> Recording:
    """The tree of this machine under `root`, an empty or new folder.

    Raises MachineError when there is a machine already or nothing to record, NeuronError when the roots can't be read.
    """
    paths = MachinePaths(root / "sys", root / "proc", root / "dev")
    if existing := [str(path) for path in (paths.sysfs, paths.proc, paths.dev) if path.exists()]:
        raise MachineError(f"{', '.join(existing)} exists already; choose an empty folder")
    machine = read_machine(sysfs_root=sysfs_root, proc_root=proc_root)
    if not (sysfs_root / CLASS).is_dir():
        raise MachineError(f"nothing to record: there is no {sysfs_root / CLASS} (is the neuron module loaded?)")
    recording = Recording(paths)
    for name in (DRIVER_VERSION, PRODUCT_NAME):
        if (sysfs_root / name).exists():
            recording.keep(sysfs_root / name, paths.sysfs / name)
    _class(recording, sysfs_root)
    for folder in sorted((sysfs_root / _CHIPS).glob("neuron[0-9]*")):
        _folder(recording, folder, paths.sysfs / _CHIPS / folder.name)
    put(paths.proc / "devices", _majors(proc_root / "devices"), 0o444)
    put(paths.proc / "sys/kernel/random/boot_id", f"{BOOT_ID}\n", 0o444)
    make_nodes(paths, [chip.index for chip in machine.chips], machine.chips[0].major if machine.chips else 0)
    return recording


def _class(recording: Recording, sysfs_root: Path) -> None:
    target = recording.paths.sysfs / CLASS
    target.mkdir(parents=True)
    for entry in sorted((sysfs_root / CLASS).iterdir()):
        if entry.is_symlink():
            (target / entry.name).symlink_to(Path("../..") / _CHIPS / entry.readlink().name)
        elif entry.is_file():
            recording.keep(entry, target / entry.name)


def _folder(recording: Recording, source: Path, target: Path) -> None:
    for path in _files(source):
        recording.keep(path, target / path.relative_to(source))


def _files(folder: Path) -> Iterator[Path]:
    """Regular files below; links (`subsystem`) lead out of the chip and are left."""
    for base, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(base, name)
            if not path.is_symlink() and path.is_file():
                yield path


def _majors(devices: Path) -> str:
    """Neuron's lines of /proc/devices; other drivers are none of our business."""
    lines = devices.read_text().partition("Block devices:")[0].splitlines()
    own = [line for line in lines if line.split()[1:2] in (["neuron"], ["nvme-generic"])]
    return "\n".join(["Character devices:", *own, "", "Block devices:", ""])


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_LONGEST).decode(errors="replace")
