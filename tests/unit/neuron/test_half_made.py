"""Broken and hostile trees: nothing but a real chip counts, everything else is a Problem, nothing raises."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.errors import NeuronError
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.machines import MachinePaths, make_machine, put

Read = Callable[[MachinePaths], Machine]

REQUIRED = ["dev", "core_count", "connected_devices", "neuron_core0/info/architecture/arch_type"]


def reasons(machine: Machine) -> str:
    return "\n".join(f"{problem.path} {problem.reason}" for problem in machine.problems)


def second_chip(paths: MachinePaths, number: str = "243:1") -> Path:
    """A sound neuron1 beside neuron0, without its class entry."""
    shutil.copytree(paths.chip(0), paths.chip(1))
    put(paths.chip(1) / "dev", f"{number}\n")
    return paths.class_entry(1)


@pytest.mark.parametrize("name", ["ng0n1", "ng1n1", "nvme0", "neuron_monitor", "neuron", "neuron01", "neuron1x"])
def test_decoys_in_the_class_folder_never_count(one: MachinePaths, read: Read, name: str) -> None:
    shutil.copytree(one.chip(0), one.chip(0).with_name(name))
    entry = one.class_entry(0).with_name(name)
    entry.symlink_to(Path("../../devices/virtual/neuron_device") / name)
    machine = read(one)
    assert [chip.index for chip in machine.chips] == [0]
    assert machine.problems == ()


def test_a_number_in_other_digits_is_no_chip(one: MachinePaths, read: Read) -> None:
    one.class_entry(0).with_name("neuron٣").symlink_to("../../devices/virtual/neuron_device/neuron0")
    assert [chip.index for chip in read(one).chips] == [0]


def test_a_regular_file_is_no_chip(one: MachinePaths, read: Read) -> None:
    one.class_entry(1).write_text("243:1\n")
    machine = read(one)
    assert [chip.index for chip in machine.chips] == [0]
    assert str(one.class_entry(1)) in reasons(machine)


def test_a_foreign_link_is_no_chip(one: MachinePaths, read: Read, tmp_path: Path) -> None:
    second_chip(one)
    foreign = tmp_path / "elsewhere/neuron_device/neuron1"
    foreign.parent.mkdir(parents=True)
    one.chip(1).rename(foreign)
    one.class_entry(1).symlink_to(foreign)
    machine = read(one)
    assert [chip.index for chip in machine.chips] == [0]
    assert f"leads to {foreign}" in reasons(machine)


def test_a_link_to_another_chip_is_no_chip(one: MachinePaths, read: Read) -> None:
    one.class_entry(1).symlink_to("../../devices/virtual/neuron_device/neuron0")
    machine = read(one)
    assert [chip.index for chip in machine.chips] == [0]
    assert str(one.class_entry(1)) in reasons(machine)


def test_a_dangling_link_and_a_circle(one: MachinePaths, read: Read) -> None:
    one.class_entry(1).symlink_to("../../devices/virtual/neuron_device/neuron1")
    one.class_entry(2).symlink_to("neuron2")
    machine = read(one)
    assert [chip.index for chip in machine.chips] == [0]
    assert [Path(problem.path).name for problem in machine.problems[:2]] == ["neuron1", "neuron2"]


def test_a_sound_second_chip_counts(one: MachinePaths, read: Read) -> None:
    """The tests around this one would pass for nothing if it didn't."""
    second_chip(one).symlink_to("../../devices/virtual/neuron_device/neuron1")
    assert [chip.index for chip in read(one).chips] == [0, 1]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("246:1", "has major 246"),  # nvme-generic's
        ("1:1", "has major 1,"),
        ("259:1", "has major 259"),  # a block device's major
        ("243:0", "has minor 0, expected 1"),
        ("243:2", "has minor 2, expected 1"),
        ("243", "not major:minor"),
        ("-243:1", "not major:minor"),
        ("243:1:1", "not major:minor"),
        ("243:99999999999999999999", "not major:minor"),
        ("", "not major:minor"),
    ],
)
def test_a_device_number_that_does_not_fit(one: MachinePaths, read: Read, number: str, text: str) -> None:
    second_chip(one, number).symlink_to("../../devices/virtual/neuron_device/neuron1")
    machine = read(one)
    assert [chip.index for chip in machine.chips] == [0]
    assert text in reasons(machine)
    assert str(one.chip(1) / "dev") in reasons(machine)


@pytest.mark.parametrize(
    "devices",
    [
        "",
        "Character devices:\n  1 mem\n246 nvme-generic\n",
        "Character devices:\n243 neuron_monitor\n",
        "Character devices:\n243 neurone\nx243 neuron\n",
        "Character devices:\n  1 mem\n\nBlock devices:\n243 neuron\n",  # a block major is another number space
    ],
)
def test_without_a_neuron_major_no_chip_counts(one: MachinePaths, read: Read, devices: str) -> None:
    put(one.proc / "devices", devices)
    machine = read(one)
    assert machine.chips == ()
    assert "is the neuron module loaded?" in reasons(machine)


@pytest.mark.parametrize("file", REQUIRED)
def test_a_missing_file_is_named(one: MachinePaths, read: Read, file: str) -> None:
    (one.chip(0) / file).unlink()
    machine = read(one)
    assert machine.chips == ()
    assert str(one.chip(0) / file) in reasons(machine)


@pytest.mark.parametrize("file", REQUIRED)
def test_a_root_only_file_is_named_with_the_remedy(
    open_folder: Path, as_nobody: Callable[[], None], read: Read, file: str
) -> None:
    paths = make_machine("trn1.2xlarge", open_folder)
    (paths.chip(0) / file).chmod(0o400 if os.geteuid() == 0 else 0)
    others = {paths.chip(0) / name for name in REQUIRED} - {paths.chip(0) / file}
    for other in others:
        other.chmod(0o444)
    assert len(read(paths).chips) == (1 if os.geteuid() == 0 else 0)
    as_nobody()
    machine = read(paths)
    assert machine.chips == ()
    assert f"{paths.chip(0) / file} can't be read: Permission denied" in reasons(machine)
    assert "run as uid 0" in reasons(machine)


def test_a_class_folder_for_root_only_is_an_error(open_folder: Path, as_nobody: Callable[[], None], read: Read) -> None:
    paths = make_machine("trn1.2xlarge", open_folder)
    (paths.sysfs / "class/neuron_device").chmod(0o700 if os.geteuid() == 0 else 0)
    as_nobody()
    with pytest.raises(NeuronError, match=r"can't list .*neuron_device.*run as uid 0"):
        read(paths)
    if os.geteuid() != 0:
        os.seteuid(os.getuid())
    (paths.sysfs / "class/neuron_device").chmod(0o755)


@pytest.mark.parametrize("text", ["", "0", "-2", "2.0", "two", "33", "9" * 30, "0x2"])
def test_a_core_count_that_is_none(one: MachinePaths, read: Read, text: str) -> None:
    put(one.chip(0) / "core_count", text)
    machine = read(one)
    assert machine.chips == ()
    assert "not a number of cores" in reasons(machine)


def test_an_odd_number_of_cores_where_cores_pair_up(torus: MachinePaths, read: Read) -> None:
    put(torus.chip(2) / "core_count", "7")
    machine = read(torus)
    assert [chip.index for chip in machine.chips] == [i for i in range(16) if i != 2]
    assert "NCv3 cores come in pairs" in reasons(machine)


@pytest.mark.parametrize("text", ["NCv9", "", "NDv2", "ncv2"])
def test_an_unknown_core_architecture_is_not_guessed_at(one: MachinePaths, read: Read, text: str) -> None:
    put(one.chip(0) / "neuron_core0/info/architecture/arch_type", f"{text}\n")
    machine = read(one)
    assert machine.chips == ()
    assert "known are NCv1, NCv2, NCv3, NCv4" in reasons(machine)


@pytest.mark.parametrize("text", ["busy", "1, x", "1;2", "-1"])
def test_links_that_are_none(one: MachinePaths, read: Read, text: str) -> None:
    put(one.chip(0) / "connected_devices", text)
    machine = read(one)
    assert machine.chips == ()
    assert "not a list of chip numbers" in reasons(machine)


def test_optional_files_may_all_be_missing(one: MachinePaths, read: Read) -> None:
    shutil.rmtree(one.chip(0) / "info")
    shutil.rmtree(one.chip(0) / "stats")
    shutil.rmtree(one.sysfs / "devices/virtual/dmi")
    machine = read(one)
    assert [(chip.serial, chip.family) for chip in machine.chips] == [("", "")]
    assert machine.instance_type == ""


FILES = [*REQUIRED, "info/serial_number", "info/architecture/device_name", "info/architecture/arch_type"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(file=st.sampled_from(FILES), content=st.binary(max_size=200))
def test_whatever_a_file_holds_the_scan_ends(one: MachinePaths, read: Read, file: str, content: bytes) -> None:
    path = one.chip(0) / file
    before = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content)
    machine = read(one)
    path.write_bytes(before)
    assert machine.chips or machine.problems
    assert all(1 <= chip.physical_cores <= 32 for chip in machine.chips)
