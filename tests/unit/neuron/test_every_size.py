"""Every size as a tree and back, and chips that go away while they are read."""

import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.links import Fabric
from dra_driver.neuron.machine import Machine
from dra_driver.neuron.topology import groups, topology
from dra_driver.simulator.machines import MachinePaths, make_machine, put

Read = Callable[[MachinePaths], Machine]


def reasons(machine: Machine) -> str:
    return "\n".join(f"{problem.path} {problem.reason}" for problem in machine.problems)


@pytest.mark.parametrize("name", SIZES)
def test_a_size_reads_back_as_it_was_made(name: str, tmp_path: Path, read: Read) -> None:
    size = SIZES[name]
    machine = read(make_machine(name, tmp_path, stats=False))
    assert machine.problems == ()
    assert machine.instance_type == name
    assert [chip.index for chip in machine.chips] == list(range(size.chips))
    for chip in machine.chips:
        assert chip.neighbours == set(size.links[chip.index])
        assert (chip.physical_cores, chip.family) == (size.physical_cores, size.family)
        assert chip.core_architecture == size.core_architecture
    assert topology(machine).fabric is size.fabric


def test_a_size_that_is_in_no_table_is_served_from_what_sysfs_says(tmp_path: Path, read: Read) -> None:
    paths = make_machine("trn2.48xlarge", tmp_path, stats=False)
    put(paths.sysfs / "devices/virtual/dmi/id/product_name", "trn9.metal\n")
    machine = read(paths)
    assert (machine.instance_type, machine.problems) == ("trn9.metal", ())
    assert topology(machine).fabric is Fabric.TORUS
    assert len(groups(machine)) == 15


def vanish_while_read(paths: MachinePaths, file: str, text: str) -> threading.Thread:
    """A file that gives its reader the text only when the chip is already gone: a pipe, so nothing is timed."""
    path = paths.chip(0) / file
    path.unlink()
    os.mkfifo(path)

    def serve() -> None:
        with path.open("w") as pipe:  # waits for the reader
            shutil.rmtree(paths.chip(0))
            pipe.write(text)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("dev", "243:0\n"),
        ("core_count", "2"),
        ("connected_devices", "\n"),
        ("info/serial_number", "9ff5434815c8bd80\n"),
        ("info/architecture/device_name", "Trainium1\n"),
        ("dev", ""),  # what a reader gets of a file whose device has gone
        ("core_count", ""),
    ],
)
def test_bc085_a_chip_that_vanishes_while_it_is_read_is_not_there(
    file: str, text: str, one: MachinePaths, read: Read
) -> None:
    thread = vanish_while_read(one, file, text)
    machine = read(one)
    thread.join()
    assert machine.chips == ()
    assert f"{one.chip(0)} vanished while it was read" in reasons(machine)


def test_bc085_the_other_chips_stay(tmp_path: Path, read: Read) -> None:
    paths = make_machine("inf2.24xlarge", tmp_path, stats=False)
    thread = vanish_while_read(paths, "core_count", "2")
    machine = read(paths)
    thread.join()
    assert [chip.index for chip in machine.chips] == [1, 2, 3, 4, 5]
    assert groups(machine) == ((1, 2), (2, 3), (3, 4), (4, 5), (1, 2, 3, 4), (2, 3, 4, 5))


def test_cores_without_a_folder_are_told_and_believed(tmp_path: Path, read: Read) -> None:
    paths = make_machine("trn2.3xlarge", tmp_path, stats=False)
    shutil.rmtree(paths.chip(0) / "neuron_core7")
    machine = read(paths)
    assert machine.chips[0].physical_cores == 8
    assert "core_count is 8, but there are 7 folders neuron_core<M>; the number counts" in reasons(machine)


def test_a_blank_serial_among_others_is_told(tmp_path: Path, read: Read) -> None:
    paths = make_machine("inf1.6xlarge", tmp_path, stats=False)
    put(paths.chip(2) / "info/serial_number", "\n")
    machine = read(paths)
    assert [chip.serial == "" for chip in machine.chips] == [False, False, True, False]
    assert "chip 2 has no serial number while others do" in reasons(machine)


def test_bc114_inferentia1_with_a_driver_that_left_it(tmp_path: Path, read: Read) -> None:
    machine = read(make_machine("inf1.6xlarge", tmp_path, driver_version="2.29.0.0", stats=False))
    assert machine.chips == ()
    assert reasons(machine).count("chip unsupported by driver 2.29.0.0") == 4
    assert "0 of the 4 chips of a inf1.6xlarge are usable, missing: 0, 1, 2, 3" in reasons(machine)


def test_a_scan_opens_few_files(tmp_path: Path, read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan runs every few seconds for as long as the node lives: its cost is the number of files it opens."""
    paths = make_machine("trn2.48xlarge", tmp_path, stats=False)
    opened: list[Path] = []
    plain = Path.open

    def counting(path: Path, *args: object, **kwargs: object) -> object:
        opened.append(path)
        return plain(path, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", counting)
    assert len(read(paths).chips) == 16
    assert len(opened) <= 3 + 16 * 7
