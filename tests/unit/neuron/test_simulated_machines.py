"""The simulated trees are as on a node, and break as a node does."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.neuron.machine import Machine
from dra_driver.simulator.machines import (
    MachineError,
    MachinePaths,
    blank_serial,
    make_machine,
    reboot,
    unused_major,
    use_memory,
)

Read = Callable[[MachinePaths], Machine]

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_formats(one: MachinePaths) -> None:
    chip = one.chip(0)
    assert (chip / "core_count").read_bytes() == b"2"
    assert (chip / "connected_devices").read_bytes() == b"\n"
    assert (chip / "dev").read_bytes() == b"243:0\n"
    assert (chip / "info/serial_number").read_bytes() == b"9ff5434815c8bd80\n"
    assert (chip / "info/architecture/instance_type").read_bytes() == b"Trn1\n"
    assert (chip / "stats/power/utilization").read_text().startswith("POWER_STATUS_VALID,")
    assert (chip / "neuron_core1/stats/memory_usage/device_mem/tensors/present").read_bytes() == b"0\n"
    assert not (chip / "neuron_core2").exists()
    assert (one.sysfs / "module/neuron/version").read_bytes() == b"2.30.2.0\n"
    assert " 243 neuron" in " " + (one.proc / "devices").read_text().replace("\n", "\n ")


@pytest.mark.parametrize(
    ("file", "bits"),
    [
        ("core_count", 0o400),
        ("connected_devices", 0o400),
        ("reset", 0o600),
        ("info/serial_number", 0o644),
        ("dev", 0o444),
    ],
)
def test_modes(one: MachinePaths, file: str, bits: int) -> None:
    assert mode(one.chip(0) / file) == bits


def test_class_entries_are_relative_links(one: MachinePaths) -> None:
    assert one.class_entry(0).readlink() == Path("../../devices/virtual/neuron_device/neuron0")


def test_nvme_nodes_stand_beside_the_neuron_ones(one: MachinePaths) -> None:
    assert {path.name for path in one.dev.iterdir()} == {"neuron0", "ng0n1", "ng1n1", "nvme0n1", "nvme1n1"}
    assert (mode(one.dev / "neuron0"), mode(one.dev / "ng0n1")) == (0o666, 0o600)


def test_serials_are_given_or_made_up(tmp_path: Path, read: Read) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path, serials=["19fcda00f5ff6eb9"])
    assert read(paths).chips[0].serial == "19fcda00f5ff6eb9"
    blank_serial(paths, 0)
    assert read(paths).chips[0].serial == ""


def test_a_major_and_a_version_of_choice(tmp_path: Path, read: Read) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path, major=239, driver_version="2.26.5.0")
    assert read(paths).chips[0].major == 239
    assert read(paths).driver_version == "2.26.5.0"


def test_a_reboot_changes_boot_id_and_major(one: MachinePaths, read: Read) -> None:
    reboot(one, "11111111-2222-4333-8444-555555555555", major=240)
    chip = read(one).chips[0]
    assert (chip.major, chip.minor) == (240, 0)
    boot_id = (one.proc / "sys/kernel/random/boot_id").read_text()
    assert boot_id == "11111111-2222-4333-8444-555555555555\n"
    assert mode(one.proc / "devices") == 0o444


def test_memory_in_use_and_freed(one: MachinePaths) -> None:
    folder = one.chip(0) / "neuron_core1/stats/memory_usage/device_mem"
    use_memory(one, 0, 1, 4096)
    use_memory(one, 0, 1, 1024, category="constants")
    assert [(folder / name).read_text() for name in ("tensors/present", "present")] == ["4096\n", "5120\n"]
    use_memory(one, 0, 1, 0)
    assert (folder / "present").read_text() == "1024\n"
    other = one.chip(0) / "neuron_core0/stats/memory_usage/device_mem/present"
    assert other.read_text() == "0\n"


def test_an_unknown_size(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"trn9.*trn1\.2xlarge"):
        make_machine("trn9.2xlarge", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_machine_is_never_made_over_another(one: MachinePaths) -> None:
    with pytest.raises(MachineError, match="exists already"):
        make_machine("trn1.2xlarge", one.sysfs.parent)


@root_only
def test_real_nodes_are_character_devices_that_nobody_serves(tmp_path: Path, read: Read) -> None:
    major = unused_major()
    paths = make_machine("trn1.2xlarge", tmp_path, major=major, real_nodes=True)
    node = (paths.dev / "neuron0").stat()
    assert stat.S_ISCHR(node.st_mode)
    assert (os.major(node.st_rdev), os.minor(node.st_rdev)) == (major, 0)
    assert stat.S_IMODE(node.st_mode) == 0o666
    decoy = (paths.dev / "ng0n1").stat()
    assert stat.S_ISCHR(decoy.st_mode)
    assert os.major(decoy.st_rdev) != major
    with pytest.raises(OSError, match="No such device or address"):
        os.open(paths.dev / "neuron0", os.O_RDWR)
    assert read(paths).chips[0].major == major


def test_real_nodes_of_a_major_in_use_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="belongs to a driver of this host"):
        make_machine("trn1.2xlarge", tmp_path, major=1, real_nodes=True)
    assert list(tmp_path.iterdir()) == []
