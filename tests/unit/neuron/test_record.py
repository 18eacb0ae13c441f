"""A recorded tree reads back as the machine it was taken from, and doesn't say whose it was."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator import faults
from dra_driver.simulator.machines import MachineError, MachinePaths, make_machine, put, use_memory
from dra_driver.simulator.record import Recording, record

Read = Callable[[MachinePaths], Machine]


def recorded(paths: MachinePaths, root: Path) -> Recording:
    return record(root, sysfs_root=paths.sysfs, proc_root=paths.proc)


def without_serials(machine: Machine) -> Machine:
    chips = tuple(replace(chip, serial="") for chip in machine.chips)
    return replace(machine, chips=chips, problems=())


def modes(root: Path) -> dict[str, tuple[int, int]]:
    """Size and mode of each file; serials have one length."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mode)
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.parametrize("name", SIZES)
def test_a_recorded_machine_reads_back(name: str, tmp_path: Path, read: Read) -> None:
    paths = make_machine(name, tmp_path / "real", stats=False)
    recording = recorded(paths, tmp_path / "copy")
    before, after = read(paths), read(recording.paths)
    assert without_serials(after) == without_serials(before)
    assert after.problems == ()
    assert recording.unreadable == []
    assert all(chip.serial for chip in after.chips)
    assert {chip.serial for chip in after.chips}.isdisjoint(chip.serial for chip in before.chips)
    assert len({chip.serial for chip in after.chips}) == len(before.chips)


def test_every_file_is_there_with_its_mode(tmp_path: Path) -> None:
    paths = make_machine("trn2.3xlarge", tmp_path / "real")
    use_memory(paths, 0, 3, 4096)
    recording = recorded(paths, tmp_path / "copy")
    assert modes(recording.paths.sysfs) == modes(paths.sysfs)
    assert recording.files == len(modes(paths.sysfs))
    held = recording.paths.chip(0) / "neuron_core3/stats/memory_usage/device_mem/tensors/present"
    assert held.read_text() == "4096\n"


@pytest.mark.parametrize(
    "fault",
    [
        "same-serial=1-4",
        "blank-serial=2",
        "dead-link=2-3",
        "vanish=3",
        "duplicate-id=5",
        "layout-2.31",
        "missing-chip=0",
    ],
)
def test_what_is_broken_stays_broken(fault: str, tmp_path: Path, read: Read) -> None:
    paths = make_machine("inf2.24xlarge", tmp_path / "real", stats=False)
    faults.apply(paths, [fault])
    recording = recorded(paths, tmp_path / "copy")
    before, after = read(paths), read(recording.paths)
    assert without_serials(after) == without_serials(before)
    assert len(after.problems) == len(before.problems) > 0


def test_odd_and_blank_serials_keep_their_kind(tmp_path: Path, read: Read) -> None:
    paths = make_machine("inf2.24xlarge", tmp_path / "real", stats=False)
    for chip, text in enumerate(["\n", "0000000000000000\n", "DEADBEEFDEADBEEF\n", "ffffffffffffffff\n", "SN-12345\n"]):
        put(paths.chip(chip) / "info/serial_number", text)
    copy = recorded(paths, tmp_path / "copy").paths
    assert [(copy.chip(chip) / "info/serial_number").read_text() for chip in range(6)] == [
        "\n",
        "0000000000000000\n",
        "DEADBEEFDEADBEEF\n",
        "ffffffffffffffff\n",
        "xxxxxxxx\n",
        "c0ffee0000000001\n",
    ]
    assert [bool(chip.serial) for chip in read(copy).chips] == [bool(chip.serial) for chip in read(paths).chips]


def test_nothing_that_names_the_machine_is_in_it(tmp_path: Path) -> None:
    paths = make_machine(
        "trn2u.48xlarge", tmp_path / "real", stats=False, serials=[f"5ec4e7{i:010x}" for i in range(16)]
    )
    entries = paths.sysfs / "class/neuron_device"
    put(entries / "server_id_4", "5ec4e7aaaaaaaaaa\n")
    put(entries / "reservation_id", "cr-5ec4e7\n")
    put(paths.proc / "sys/kernel/random/boot_id", "5ec4e7-boot\n")
    put(paths.proc / "devices", "Character devices:\n243 neuron\n 99 5ec4e7-driver\n\nBlock devices:\n259 5ec4e7\n")
    put(paths.sysfs / "devices/virtual/dmi/id/board_asset_tag", "i-5ec4e7\n")
    copy = recorded(paths, tmp_path / "copy").paths
    files = [path for path in (tmp_path / "copy").rglob("*") if path.is_file()]
    assert len(files) > 16 * 10
    assert [path for path in files if "5ec4e7" in path.read_text()] == []
    assert (copy.sysfs / "class/neuron_device/node_id_4").read_text() == "-1\n"
    assert (copy.sysfs / "class/neuron_device/reservation_id").read_text() == "xxxxxxxxx\n"


def test_links_out_of_the_chip_are_left(tmp_path: Path, read: Read) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path / "real", stats=False)
    (tmp_path / "secret").write_text("5ec4e7\n")
    (paths.chip(0) / "subsystem").symlink_to(tmp_path / "secret")
    copy = recorded(paths, tmp_path / "copy").paths
    assert not os.path.lexists(copy.chip(0) / "subsystem")
    assert len(read(copy).chips) == 1


def test_a_file_that_cannot_be_read_is_named(open_folder: Path, as_nobody: Callable[[], None], read: Read) -> None:
    paths = make_machine("trn1.2xlarge", open_folder / "real", stats=False)
    target = open_folder / "copy"
    target.mkdir(mode=0o777)
    target.chmod(0o777)
    (paths.chip(0) / "reset").chmod(0o600 if os.geteuid() == 0 else 0)
    (paths.chip(0) / "core_count").chmod(0o444)
    (paths.chip(0) / "connected_devices").chmod(0o444)
    as_nobody()
    recording = recorded(paths, target)
    assert recording.unreadable == [f"{paths.chip(0) / 'reset'}: Permission denied"]
    assert len(read(recording.paths).chips) == 1


def test_nothing_is_written_over_a_machine(one: MachinePaths) -> None:
    with pytest.raises(MachineError, match="exists already"):
        recorded(one, one.sysfs.parent)


def test_nothing_to_record(tmp_path: Path) -> None:
    for name in ("sys", "proc"):
        (tmp_path / name).mkdir()
    with pytest.raises(MachineError, match="nothing to record"):
        record(tmp_path / "copy", sysfs_root=tmp_path / "sys", proc_root=tmp_path / "proc")
    assert not (tmp_path / "copy").exists()
