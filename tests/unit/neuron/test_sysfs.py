"""What the reader makes of whole trees: golden captures, the traps of the formats, layouts, sizes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.errors import NeuronError
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.machines import MachinePaths, make_machine, make_unreadable, put, remove_chip

Read = Callable[[MachinePaths], Machine]

# Captured on a trn1.2xlarge with driver 2.26.5.0, as bytes: written here without the simulator.
CAPTURE = {
    "sys/module/neuron/version": b"2.26.5.0\n",
    "sys/devices/virtual/dmi/id/product_name": b"trn1.2xlarge\n",
    "sys/devices/virtual/neuron_device/neuron0/dev": b"243:0\n",
    "sys/devices/virtual/neuron_device/neuron0/core_count": b"2",
    "sys/devices/virtual/neuron_device/neuron0/connected_devices": b"\n",
    "sys/devices/virtual/neuron_device/neuron0/info/serial_number": b"9ff5434815c8bd80\n",
    "sys/devices/virtual/neuron_device/neuron0/info/architecture/arch_type": b"NDv2\n",
    "sys/devices/virtual/neuron_device/neuron0/info/architecture/instance_type": b"Trn1\n",
    "sys/devices/virtual/neuron_device/neuron0/info/architecture/device_name": b"Trainium1\n",
    "sys/devices/virtual/neuron_device/neuron0/neuron_core0/info/architecture/arch_type": b"NCv2\n",
    "sys/devices/virtual/neuron_device/neuron0/neuron_core1/info/architecture/arch_type": b"NCv2\n",
    "proc/devices": b"Character devices:\n  1 mem\n243 neuron\n246 nvme-generic\n\nBlock devices:\n259 blkext\n",
}


def capture(root: Path) -> MachinePaths:
    for name, content in CAPTURE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    entries = root / "sys/class/neuron_device"
    entries.mkdir(parents=True)
    (entries / "neuron0").symlink_to("../../devices/virtual/neuron_device/neuron0")
    return MachinePaths(root / "sys", root / "proc", root / "dev")


def reasons(machine: Machine) -> str:
    return "\n".join(f"{problem.path} {problem.reason}" for problem in machine.problems)


def test_a_captured_trn1_2xlarge(tmp_path: Path, read: Read) -> None:
    chip = Chip(
        index=0,
        major=243,
        minor=0,
        physical_cores=2,
        neighbours=frozenset(),
        serial="9ff5434815c8bd80",
        family="Trainium1",
        core_architecture="NCv2",
    )
    assert read(capture(tmp_path)) == Machine((chip,), "trn1.2xlarge", "2.26.5.0")
    assert chip.max_lnc == 1


def test_the_simulated_trn1_2xlarge_reads_as_the_captured_one(one: MachinePaths, tmp_path: Path, read: Read) -> None:
    assert read(one).chips == read(capture(tmp_path / "captured")).chips
    assert read(one).problems == ()


def test_no_dev_folder_is_needed(tmp_path: Path, read: Read) -> None:
    """BC-055: numbers come from sysfs, whether or not udev has made the nodes yet."""
    paths = capture(tmp_path)
    assert not paths.dev.exists()
    assert len(read(paths).chips) == 1


def test_a_torus_is_read_in_the_order_of_its_indices(torus: MachinePaths, read: Read) -> None:
    machine = read(torus)
    assert [chip.index for chip in machine.chips] == list(range(16))  # 10 after 9, not after 1
    assert [chip.minor for chip in machine.chips] == list(range(16))
    assert {chip.max_lnc for chip in machine.chips} == {2}
    first = machine.chip(0)
    assert first is not None
    assert first.neighbours == {1, 3, 4, 12}
    assert machine.chip(16) is None


@pytest.mark.parametrize("text", ["12, 3, 4, 1\n", "1,3,4,12", "4 12 1 3\n"])
def test_the_order_of_links_means_nothing(one: MachinePaths, read: Read, text: str) -> None:
    put(one.chip(0) / "connected_devices", text)
    assert read(one).chips[0].neighbours == {1, 3, 4, 12}


@pytest.mark.parametrize("text", ["", "\n", "  \n"])
def test_no_links_are_an_empty_set(one: MachinePaths, read: Read, text: str) -> None:
    put(one.chip(0) / "connected_devices", text)
    assert read(one).chips[0].neighbours == frozenset()


@pytest.mark.parametrize("text", ["2", "2\n"])
def test_core_count_with_and_without_a_newline(one: MachinePaths, read: Read, text: str) -> None:
    put(one.chip(0) / "core_count", text)
    assert read(one).chips[0].physical_cores == 2


@pytest.mark.parametrize("text", ["\n", "", "0000000000000000\n", "ffffffffffffffff\n", "DEADBEEFDEADBEEF\n"])
def test_a_blank_serial_is_no_problem(one: MachinePaths, read: Read, text: str) -> None:
    put(one.chip(0) / "info/serial_number", text)
    machine = read(one)
    assert machine.chips[0].serial == ""
    assert machine.problems == ()


def test_an_odd_serial_is_dropped_and_told(one: MachinePaths, read: Read) -> None:
    put(one.chip(0) / "info/serial_number", "unknown\n")
    machine = read(one)
    assert machine.chips[0].serial == ""
    assert "info/serial_number is 'unknown'" in reasons(machine)


def test_chips_that_share_a_serial_are_told(tmp_path: Path, torus: MachinePaths, read: Read) -> None:
    for index in (3, 7):
        put(torus.chip(index) / "info/serial_number", "19fcda00f5ff6eb9\n")
    machine = read(torus)
    assert len(machine.chips) == 16
    assert "chips 3, 7 share serial 19fcda00f5ff6eb9" in reasons(machine)


@pytest.mark.parametrize("version", ["", "\n", "2.29", "2.x.8072.0", "garbage", "x" * 70, "2.29.0.0\0", "٢.٢.٢.٢"])
def test_bc014_an_odd_driver_version_is_told_and_stops_nothing(one: MachinePaths, read: Read, version: str) -> None:
    put(one.sysfs / "module/neuron/version", version)
    machine = read(one)
    assert len(machine.chips) == 1
    assert machine.driver_version == version.strip()
    assert "module/neuron/version" in reasons(machine)
    assert "driverVersion is published as 0.0.0-unknown" in reasons(machine)


def test_bc015_no_driver_version(one: MachinePaths, read: Read) -> None:
    (one.sysfs / "module/neuron/version").unlink()
    machine = read(one)
    assert (len(machine.chips), machine.driver_version) == (1, "")
    assert "module/neuron/version is missing or empty" in reasons(machine)


@pytest.mark.parametrize("name", ["", "Standard PC (i440FX + PIIX, 1996)", "KVM", "t3"])
def test_what_is_no_ec2_size_is_no_instance_type(one: MachinePaths, read: Read, name: str) -> None:
    put(one.sysfs / "devices/virtual/dmi/id/product_name", f"{name}\n")
    assert read(one).instance_type == ""


@pytest.mark.parametrize("name", ["trn2u-ac.24xlarge", "trn3-dev0.48xlarge", "ml.trn1.2xlarge"])
def test_odd_sizes_are_kept(one: MachinePaths, read: Read, name: str) -> None:
    put(one.sysfs / "devices/virtual/dmi/id/product_name", f"{name}\n")
    assert read(one).instance_type == name


def test_bc031_an_unknown_layout_names_the_missing_path_and_the_driver(one: MachinePaths, read: Read) -> None:
    put(one.sysfs / "module/neuron/version", "2.31.7.0\n")
    (one.chip(0) / "core_count").rename(one.chip(0) / "info/core_count")
    machine = read(one)
    assert machine.chips == ()
    assert f"{one.chip(0)}/core_count is missing" in reasons(machine)
    assert "2.31.7.0" in reasons(machine)


def test_bc031_the_old_layout_counts_whatever_the_version_says(one: MachinePaths, read: Read) -> None:
    put(one.sysfs / "module/neuron/version", "2.31.7.0\n")
    assert len(read(one).chips) == 1


def test_bc114_a_chip_that_the_driver_no_longer_runs(one: MachinePaths, read: Read) -> None:
    put(one.chip(0) / "info/architecture/arch_type", "NDv1\n")
    put(one.sysfs / "module/neuron/version", "2.29.0.0\n")
    machine = read(one)
    assert machine.chips == ()
    assert "chip unsupported by driver 2.29.0.0" in reasons(machine)


def test_bc114_the_same_chip_with_a_driver_that_runs_it(one: MachinePaths, read: Read) -> None:
    put(one.chip(0) / "info/architecture/arch_type", "NDv1\n")
    put(one.sysfs / "module/neuron/version", "2.21.37.0\n")
    assert len(read(one).chips) == 1


def test_bc085_a_chip_that_is_gone_is_missed(tmp_path: Path, read: Read) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path / "m")
    remove_chip(paths, 0)
    machine = read(paths)
    assert machine.chips == ()
    assert "0 of the 1 chips of a trn1.2xlarge are usable" in reasons(machine)


def test_fewer_cores_than_the_size_has_are_told_but_believed(one: MachinePaths, read: Read) -> None:
    put(one.chip(0) / "core_count", "1")
    machine = read(one)
    assert machine.chips[0].physical_cores == 1
    assert "chip 0 hasn't the 2 cores" in reasons(machine)


def test_bc026_a_node_without_neuron_hardware_has_no_chips_and_no_problems(tmp_path: Path) -> None:
    for name in ("sys/class", "proc"):
        (tmp_path / name).mkdir(parents=True)
    assert read_machine(sysfs_root=tmp_path / "sys", proc_root=tmp_path / "proc") == Machine()


def test_bc026_chips_appear_in_a_later_scan(tmp_path: Path, read: Read) -> None:
    paths = capture(tmp_path)
    entries = paths.sysfs / "class/neuron_device"
    entries.rename(tmp_path / "later")
    before = read(paths)
    (tmp_path / "later").rename(entries)
    after = read(paths)
    assert (len(before.chips), len(after.chips)) == (0, 1)
    assert before.instance_type == "trn1.2xlarge"
    assert "0 of the 1 chips" in reasons(before)


def test_no_sysfs_is_an_error_that_names_the_flag(tmp_path: Path) -> None:
    with pytest.raises(NeuronError, match=r"no sysfs at .*/nowhere.*--sysfs-root"):
        read_machine(sysfs_root=tmp_path / "nowhere", proc_root=tmp_path)


def test_no_proc_is_an_error_that_names_the_flag(one: MachinePaths, tmp_path: Path) -> None:
    with pytest.raises(NeuronError, match=r"can't read .*/nowhere/devices.*--proc-root"):
        read_machine(sysfs_root=one.sysfs, proc_root=tmp_path / "nowhere")


def test_a_class_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class/neuron_device").write_text("")
    with pytest.raises(NeuronError, match=r"can't list .*class/neuron_device"):
        read_machine(sysfs_root=tmp_path, proc_root=tmp_path)


def test_one_unreadable_chip_leaves_the_others(torus: MachinePaths, read: Read) -> None:
    make_unreadable(torus, 5)
    machine = read(torus)
    assert [chip.index for chip in machine.chips] == [i for i in range(16) if i != 5]
    assert str(torus.chip(5) / "core_count") in reasons(machine)
