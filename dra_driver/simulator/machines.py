"""Makes the sysfs, /proc and /dev trees of a Neuron machine, and breaks them on request.

The trees have the paths, formats and modes that kernel driver 2.30 has: `core_count` without a newline,
root-only files, class entries as symbolic links, NVMe nodes beside the Neuron ones in /dev. With
`real_nodes` the nodes are real character devices of a major that no driver of this host owns, so that they
can be injected but never opened (ENXIO).
"""

import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_driver.errors import CoresliceError
from dra_driver.neuron.catalogue import SIZES, Size, lookup

DRIVER_VERSION = "2.30.2.0"
BOOT_ID = "6f1c1d5e-0b5e-4a53-9d61-2d1f3a7c9e10"
_DYNAMIC_MAJORS = range(234, 251)  # where the kernel hands out majors, less the room for the NVMe decoys
_NVME_OFFSET = 3  # the decoys' major stands above Neuron's, as on a trn1.2xlarge


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_HOST_MEMORY = _words(
    "dma_buffers tensors constants application_memory driver_memory notifications dma_rings uncategorized"
)
_DEVICE_MEMORY = _words(
    "model_code tensors constants model_shared_scratchpad runtime_memory driver_memory collectives "
    "nonshared_scratchpad notifications dma_rings uncategorized"
)
_STATUS = _words(
    "success failure timeout exec_bad_input hw_error execute_completed_with_error "
    "execute_completed_with_num_error generic_error resource_error resource_nc_error execute_failed_to_queue "
    "invalid_error unsupported_neff_version oob_error hw_collectives_error hw_hbm_ue_error hw_nc_ue_error "
    "hw_dma_abort_error execute_sw_nq_overflow execute_sw_semaphore_error execute_sw_event_error "
    "execute_sw_psum_collision execute_sw_sequencer_fatal hw_repairable_hbm_ue_error"
)
_ECC = _words(
    "sram_ecc_uncorrected mem_ecc_uncorrected mem_ecc_repairable_uncorrected sram_ecc_corrected mem_ecc_corrected"
)


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
    driver_version: str = DRIVER_VERSION,
    real_nodes: bool = False,
) -> MachinePaths:
    """A whole machine of that EC2 size in `root/sys`, `root/proc` and `root/dev`.

    A size that isn't in the catalogue is given as a row of its own. `serials` are by chip, made up when not given.
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
    _host(paths, size if isinstance(size, str) else size.name, major, driver_version)
    for index in range(row.chips):
        serial = serials[index] if serials is not None else f"9ff5434815c8{0xBD80 + index:04x}"
        _chip(paths, row, index, f"{major}:{index}", serial)
    _nodes(paths, row.chips, major, real_nodes=real_nodes)
    return paths


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
    held = sum(int((folder / name / "present").read_text()) for name in _DEVICE_MEMORY)
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
    of_class = {"node_id_2": "-1", "node_id_4": "-1", "server_id_2": "0" * 16, "server_id_4": "0" * 16}
    for name, text in (of_class | {"ultraserver_mode": ""}).items():
        put(paths.sysfs / "class/neuron_device" / name, f"{text}\n", 0o444)


def _proc_devices(major: int) -> str:
    characters = [(1, "mem"), (5, "/dev/tty"), (major, "neuron"), (major + _NVME_OFFSET, "nvme-generic")]
    lines = [f"{number:3d} {name}" for number, name in characters]
    return "\n".join(["Character devices:", *lines, "", "Block devices:", "259 blkext", ""])


def _chip(paths: MachinePaths, size: Size, index: int, number: str, serial: str) -> None:
    folder = paths.chip(index)
    for name, (text, mode) in _chip_files(size, index, number, serial).items():
        put(folder / name, text, mode)
    for core in range(size.physical_cores):
        _core(folder / f"neuron_core{core}", size)
    link = paths.class_entry(index)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(Path("../../devices/virtual/neuron_device") / folder.name)


def _chip_files(size: Size, index: int, number: str, serial: str) -> Mapping[str, tuple[str, int]]:
    major, minor = number.split(":")
    files = {
        "dev": (f"{number}\n", 0o444),
        "uevent": (f"MAJOR={major}\nMINOR={minor}\nDEVNAME=neuron{index}\n", 0o644),
        "core_count": (str(size.physical_cores), 0o400),  # no newline, as on a node
        "connected_devices": (", ".join(map(str, size.links[index])) + "\n", 0o400),
        "reset": ("1\n", 0o600),
        "info/notify_delay": ("-1\n", 0o644),
        "info/serial_number": (f"{serial}\n", 0o644),
        "info/architecture/arch_type": (f"{size.device_architecture}\n", 0o644),
        "info/architecture/instance_type": (f"{size.instance_family}\n", 0o644),
        "info/architecture/device_name": (f"{size.family}\n", 0o644),
        "stats/power/utilization": ("POWER_STATUS_VALID,1789180860,0.00,0.00,0.00\n", 0o644),
    }
    files |= {f"stats/hardware/{name}": ("0\n", 0o644) for name in _ECC}
    return files | _counters("stats/memory_usage/host_mem", _HOST_MEMORY, ("total", "present", "peak"))


def _core(folder: Path, size: Size) -> None:
    put(folder / "info/architecture/arch_type", f"{size.core_architecture}\n")
    usage = ("total", "present", "peak")
    files = _counters("stats/status", _STATUS, ("total", "present"))
    files |= _counters("stats/memory_usage/host_mem", (), usage)
    files |= _counters("stats/memory_usage/device_mem", _DEVICE_MEMORY, usage)
    for name, (text, mode) in files.items():
        put(folder / name, text, mode)


def _counters(base: str, names: Sequence[str], kinds: Sequence[str]) -> dict[str, tuple[str, int]]:
    """`<base>/<name>/<kind>` for each, all zero; memory has sums of its own directly under `<base>`."""
    folders = [f"{base}/{name}" for name in names] + ([base] if "peak" in kinds else [])
    return {f"{folder}/{kind}": ("0\n", 0o644) for folder in folders for kind in kinds}


def _nodes(paths: MachinePaths, chips: int, major: int, *, real_nodes: bool) -> None:
    """/dev: Neuron's nodes for everybody (a udev rule does that on AWS images), the NVMe disks' for root."""
    paths.dev.mkdir(parents=True)
    for index in range(chips):
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
