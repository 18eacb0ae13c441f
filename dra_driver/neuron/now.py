"""Two questions to sysfs at the moment a chip is given: is it still that chip, and does a process hold memory on it?

The scan is a snapshot that may be half a minute old; these read a few files of one chip, each in microseconds.
"""

from collections.abc import Iterable
from pathlib import Path

from dra_driver.neuron.machine import Chip
from dra_driver.neuron.sysfs import CLASS, serial_number

# What the kernel driver allocates for itself is there without any process.
_OWN = {"driver_memory"}


def changed(chip: Chip, *, sysfs_root: Path) -> str | None:
    """What is otherwise than in the snapshot: gone, another device number or serial. None when it still holds."""
    folder = sysfs_root / CLASS / f"neuron{chip.index}"
    number = _text(folder / "dev")
    if number is None:
        return f"{folder} is gone or can't be read; is the kernel module still loaded?"
    if number != f"{chip.major}:{chip.minor}":
        return f"its device number is {number} now, it was {chip.major}:{chip.minor}"
    serial = serial_number(_text(folder / "info/serial_number") or "")
    if chip.serial and serial and serial != chip.serial:
        return f"its serial is {serial} now, it was {chip.serial}"
    return None


def memory_held(chip: Chip, cores: Iterable[int], *, sysfs_root: Path) -> str | None:
    """Which of these cores, by their numbers in sysfs, a process holds device memory on; None when none is seen.

    Kernel drivers before 2.30 don't tell.
    """
    holding = [core for core in cores if _present(_core(sysfs_root, chip.index, core))]
    return f"device memory is in use on core {holding[0]} of chip {chip.index}" if holding else None


def _core(sysfs_root: Path, chip: int, core: int) -> Path:
    return sysfs_root / CLASS / f"neuron{chip}" / f"neuron_core{core}" / "stats/memory_usage/device_mem"


def _present(folder: Path) -> bool:
    """Whether any category that a process owns is above zero."""
    owned = (path for path in folder.glob("*/present") if path.parent.name not in _OWN)
    return any((_text(path) or "0") not in ("", "0") for path in owned)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
