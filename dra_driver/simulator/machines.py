"""Makes the sysfs, /proc and /dev trees of a Neuron machine, and breaks them on request.

The trees have the paths, formats and modes of the kernel driver (`chip_tree`): class entries as symbolic
links, root-only files, NVMe nodes beside the Neuron ones in /dev. Whole faults by name: `faults`. With
`real_nodes` the nodes are real character devices of a major that no driver of this host owns, so that they
can be injected but never opened (ENXIO).
"""

import os
import shutil
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from dra_driver.errors import CoresliceError
from dra_driver.neuron.catalogue import SIZES, Size, lookup
from dra_driver.simulator.chip_tree import ULTRASERVER, Files, chip_files, has

DRIVER_VERSION = "2.30.2.0"
INFERENTIA1_DRIVER_VERSION = "2.21.37.0"  # the last line of drivers that runs these chips
BOOT_ID = "6f1c1d5e-0b5e-4a53-9d61-2d1f3a7c9e10"
_DYNAMIC_MAJORS = range(234, 251)  # where the kernel hands out majors, less the room for the NVMe decoys
_NVME_OFFSET = 3  # the decoys' major stands above Neuron's, as on a trn1.2xlarge


class MachineError(CoresliceError):
    """A machine that can't be made; the text says why and what to do."""


@dataclass(frozen=True)
class MachinePaths:
    """The roots of one machine: what the daemon gets as --sysfs-root and --proc-root, and its /dev."""

    sysfs: Path
    proc: Path
    dev: Path

    def chip(self, index: int) -> Path:
        """A chip's folder in sysfs."""
        return self.sysfs / "devices/virtual/neuron_device" / f"neuron{index}"

    def class_entry(self, index: int) -> Path:
        """The link that lists the chip."""
        return self.sysfs / "class/neuron_device" / f"neuron{index}"


def make_machine(
    size: str | Size,
    root: Path,
    *,
    major: int = 243,
    serials: Sequence[str] | None = None,
    driver_version: str | None = None,
    real_nodes: bool = False,
    stats: bool = True,
) -> MachinePaths:
    """A whole machine of that EC2 size in `root/sys`, `root/proc` and `root/dev`.

    A size that isn't in the catalogue is given as a row of its own. `serials` are by chip, made up when not given.
    Without `stats` the counters are left out: nine of ten files, and a scan reads none of them.
    Raises MachineError for an unknown size, a folder that holds a machine, or nodes that can't be made.
    """
    row = size if isinstance(size, Size) else lookup(size)
    if row is None:
        raise MachineError(f"size {size!r} isn't known; known are {', '.join(SIZES)}")
    paths = MachinePaths(root / "sys", root / "proc", root / "dev")
    if existing := [str(path) for path in (paths.sysfs, paths.proc, paths.dev) if path.exists()]:
        raise MachineError(f"{', '.join(existing)} exists already; choose an empty folder")
    if real_nodes:
        _check_major(major)
    version = driver_version or default_driver_version(row)
    _host(paths, size if isinstance(size, str) else size.name, major, version)
    for index in range(row.chips):
        serial = serials[index] if serials is not None else made_up_serial(index)
        files = chip_files(row, index, major=major, serial=serial, driver_version=version)
        _chip(paths, index, files if stats else {name: files[name] for name in files if "stats/" not in name})
    make_nodes(paths, range(row.chips), major, real_nodes=real_nodes)
    return paths


def default_driver_version(size: Size) -> str:
    """A kernel driver that runs the chips of that size."""
    return INFERENTIA1_DRIVER_VERSION if size.device_architecture == "NDv1" else DRIVER_VERSION


def made_up_serial(index: int) -> str:
    """The serial number of the chip of that index, unless others are given."""
    return f"9ff5434815c8{0xBD80 + index:04x}"


def unused_major() -> int:
    """A major that, with the decoys' beside it, no driver of this host owns."""
    taken = _host_majors()
    free = (major for major in _DYNAMIC_MAJORS if taken.isdisjoint({major, major + _NVME_OFFSET}))
    if (major := next(free, None)) is None:
        raise MachineError("every dynamic character major is taken in /proc/devices")
    return major


def remove_chip(paths: MachinePaths, index: int) -> None:
    """The chip as if unbound from its driver: no class entry, no folder, no node."""
    paths.class_entry(index).unlink()
    shutil.rmtree(paths.chip(index))
    (paths.dev / f"neuron{index}").unlink()


def shut_down_module(paths: MachinePaths) -> None:
    """As if the kernel module had gone: no class, no chip, no major, no node. DMI still says what the machine is."""
    for index in [int(path.name.removeprefix("neuron")) for path in paths.dev.glob("neuron[0-9]*")]:
        (paths.dev / f"neuron{index}").unlink()
    for folder in (paths.chip(0).parent, paths.class_entry(0).parent, paths.sysfs / "module/neuron"):
        shutil.rmtree(folder)
    lines = (paths.proc / "devices").read_text().splitlines(keepends=True)
    put(paths.proc / "devices", "".join(line for line in lines if not line.endswith(" neuron\n")))


def make_unreadable(paths: MachinePaths, index: int, file: str = "core_count") -> None:
    """A file of the chip that nobody can read, root included."""
    path = paths.chip(index) / file
    path.unlink()
    path.mkdir()


def blank_serial(paths: MachinePaths, index: int) -> None:
    """The serial number as the kernel driver prints it when the register can't be read: a blank line."""
    put(paths.chip(index) / "info/serial_number", "\n")


def use_memory(paths: MachinePaths, chip: int, core: int, size: int, *, category: str = "tensors") -> None:
    """Device memory in bytes that some process holds on a physical core; 0 frees it."""
    folder = paths.chip(chip) / f"neuron_core{core}/stats/memory_usage/device_mem"
    put(folder / category / "present", f"{size}\n")
    held = sum(int(file.read_text()) for file in folder.glob("*/present"))
    put(folder / "present", f"{held}\n")


def reboot(paths: MachinePaths, boot_id: str, *, major: int) -> None:
    """Another boot: a new boot id, and the dynamic major may be another. Nodes in /dev stay as they are."""
    put(paths.proc / "sys/kernel/random/boot_id", f"{boot_id}\n")
    put(paths.proc / "devices", _proc_devices(major))
    for folder in sorted((paths.sysfs / "devices/virtual/neuron_device").iterdir()):
        index = folder.name.removeprefix("neuron")
        put(folder / "dev", f"{major}:{index}\n")
        put(folder / "uevent", f"MAJOR={major}\nMINOR={index}\nDEVNAME=neuron{index}\n")


def put(path: Path, text: str, mode: int = 0o644) -> None:
    """Writes one file of the tree with its folders, at once as a reader sees it; an old file's mode stays."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text)
    fresh.chmod(mode)
    fresh.rename(path)


def _host(paths: MachinePaths, size: str, major: int, driver_version: str) -> None:
    """What belongs to no chip."""
    put(paths.sysfs / "module/neuron/version", f"{driver_version}\n", 0o444)
    put(paths.sysfs / "devices/virtual/dmi/id/product_name", f"{size}\n", 0o444)
    put(paths.proc / "devices", _proc_devices(major), 0o444)
    put(paths.proc / "sys/kernel/random/boot_id", f"{BOOT_ID}\n", 0o444)
    if not has(driver_version, ULTRASERVER):
        return
    of_class = {"node_id_2": "-1", "node_id_4": "-1", "server_id_2": "0" * 16, "server_id_4": "0" * 16}
    for name, text in (of_class | {"ultraserver_mode": ""}).items():
        put(paths.sysfs / "class/neuron_device" / name, f"{text}\n", 0o444)


def _proc_devices(major: int) -> str:
    characters = [(1, "mem"), (5, "/dev/tty"), (major, "neuron"), (major + _NVME_OFFSET, "nvme-generic")]
    lines = [f"{number:3d} {name}" for number, name in characters]
    return "\n".join(["Character devices:", *lines, "", "Block devices:", "259 blkext", ""])


def _chip(paths: MachinePaths, index: int, files: Files) -> None:
    _write_tree(paths.chip(index), files)
    link = paths.class_entry(index)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(Path("../../devices/virtual/neuron_device") / link.name)


def _write_tree(root: Path, files: Files) -> None:
    """Fresh files under a fresh folder. A machine has up to twelve thousand, so each costs few system calls."""
    root.mkdir(parents=True)
    folders = {str(parent) for name in files for parent in PurePath(name).parents}
    for folder in sorted(folders - {"."}):  # a parent sorts before what it holds
        os.mkdir(f"{root}/{folder}")  # noqa: PTH102
    base = os.fspath(root)
    for name, (text, mode) in files.items():
        file = os.open(f"{base}/{name}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode)
        os.fchmod(file, mode)  # whatever the umask
        os.write(file, text.encode())
        os.close(file)


def make_nodes(paths: MachinePaths, chips: Iterable[int], major: int, *, real_nodes: bool = False) -> None:
    """/dev: Neuron's nodes for everybody (a udev rule does that on AWS images), the NVMe disks' for root."""
    paths.dev.mkdir(parents=True)
    for index in chips:
        _node(paths.dev / f"neuron{index}", 0o666, stat.S_IFCHR, os.makedev(major, index), real=real_nodes)
    for controller in (0, 1):
        number = os.makedev(major + _NVME_OFFSET, controller)
        _node(paths.dev / f"ng{controller}n1", 0o600, stat.S_IFCHR, number, real=real_nodes)
        _node(paths.dev / f"nvme{controller}n1", 0o660, stat.S_IFREG, 0, real=False)


def _node(path: Path, mode: int, kind: int, number: int, *, real: bool) -> None:
    if not real:
        put(path, "", mode)
        return
    try:
        os.mknod(path, kind | mode, number)
    except PermissionError as error:
        raise MachineError(f"can't make the node {path}: {error.strerror}; real nodes need root") from error
    path.chmod(mode)  # mknod's mode goes through the umask


def _check_major(major: int) -> None:
    """A node of a major that a driver here owns could be opened: that would be somebody's real device."""
    if not _host_majors().isdisjoint({major, major + _NVME_OFFSET}):
        text = f"major {major} or {major + _NVME_OFFSET} belongs to a driver of this host; take unused_major()"
        raise MachineError(text)


def _host_majors() -> set[int]:
    words = (line.split() for line in Path("/proc/devices").read_text().splitlines())
    return {int(first) for first, *_ in filter(None, words) if first.isdecimal()}
