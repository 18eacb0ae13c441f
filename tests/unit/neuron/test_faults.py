"""Faults by name: what the tree looks like, and what the reader makes of it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.neuron.topology import groups
from dra_driver.simulator import faults
from dra_driver.simulator.faults import FAULTS
from dra_driver.simulator.machines import MachineError, MachinePaths, make_machine

Read = Callable[[MachinePaths], Machine]
Break = Callable[..., MachinePaths]


@pytest.fixture
def broken(tmp_path: Path) -> Break:
    def make(size: str, *names: str) -> MachinePaths:
        paths = make_machine(size, tmp_path, stats=False)
        faults.apply(paths, names)
        return paths

    return make


def reasons(machine: Machine) -> str:
    return "\n".join(f"{problem.path} {problem.reason}" for problem in machine.problems)


def indices(machine: Machine) -> list[int]:
    return [chip.index for chip in machine.chips]


def links(machine: Machine) -> list[set[int]]:
    return [set(chip.neighbours) for chip in machine.chips]


def but(count: int, *missing: int) -> list[int]:
    return [index for index in range(count) if index not in missing]


@pytest.mark.parametrize(("size", "chips"), [("trn1.32xlarge", 16), ("trn2.48xlarge", 16), ("inf2.48xlarge", 12)])
def test_a_missing_chip_silences_the_links_of_a_table(size: str, chips: int, broken: Break, read: Read) -> None:
    machine = read(broken(size, "missing-chip=3"))
    assert indices(machine) == but(chips, 3)
    assert links(machine) == [set()] * (chips - 1)
    assert groups(machine) == ()
    assert "missing: 3" in reasons(machine)
    assert "no chip reports a link" in reasons(machine)


def test_a_missing_inferentia1_chip_is_missed_by_its_neighbours_only(broken: Break, read: Read) -> None:
    machine = read(broken("inf1.6xlarge", "missing-chip=3"))
    assert links(machine) == [{1}, {0, 2}, {1}]
    assert groups(machine) == ((0, 1), (1, 2), (0, 1, 2))


def test_bc085_a_chip_that_vanishes(broken: Break, read: Read) -> None:
    paths = broken("trn2.48xlarge", "vanish=3")
    machine = read(paths)
    assert indices(machine) == but(16, 3)
    assert f"{paths.class_entry(3)} leads nowhere" in reasons(machine)
    assert {len(group) for group in groups(machine)} == {2, 4, 8}
    assert all(3 not in group for group in groups(machine))


@pytest.mark.parametrize(("fault", "file"), [("unreadable=2", "core_count"), ("unreadable=2:dev", "dev")])
def test_an_unreadable_file(fault: str, file: str, broken: Break, read: Read) -> None:
    paths = broken("inf2.24xlarge", fault)
    machine = read(paths)
    assert indices(machine) == but(6, 2)
    assert f"{paths.chip(2) / file} can't be read" in reasons(machine)
    assert groups(machine) == ((0, 1), (3, 4), (4, 5))


@pytest.mark.parametrize(("chip", "minor"), [(0, 1), (5, 4)])
def test_a_duplicate_id(chip: int, minor: int, broken: Break, read: Read) -> None:
    machine = read(broken("inf2.24xlarge", f"duplicate-id={chip}"))
    assert indices(machine) == but(6, chip)
    assert f"has minor {minor}, expected {chip}" in reasons(machine)
    assert len({(each.major, each.minor) for each in machine.chips}) == len(machine.chips)


def test_a_blank_serial(broken: Break, read: Read) -> None:
    machine = read(broken("inf2.24xlarge", "blank-serial=4"))
    assert [each.serial == "" for each in machine.chips] == [False] * 4 + [True, False]
    assert "chip 4 has no serial number" in reasons(machine)


def test_two_chips_with_one_serial(broken: Break, read: Read) -> None:
    machine = read(broken("inf2.24xlarge", "same-serial=1-4"))
    assert machine.chips[1].serial == machine.chips[4].serial
    assert "chips 1, 4 share serial" in reasons(machine)
    assert len(machine.chips) == 6


def test_a_dead_link(broken: Break, read: Read) -> None:
    machine = read(broken("inf2.24xlarge", "dead-link=2-3"))
    assert links(machine)[2:4] == [{1}, {4}]
    assert groups(machine) == ((0, 1), (1, 2), (3, 4), (4, 5))
    assert "aren't reported: 2-3" in reasons(machine)


def test_a_link_that_one_end_reports(broken: Break, read: Read) -> None:
    machine = read(broken("inf2.24xlarge", "one-way-link=2-3"))
    assert links(machine)[2:4] == [{1}, {2, 4}]
    assert groups(machine) == ((0, 1), (1, 2), (3, 4), (4, 5))
    assert "(3-2) don't count" in reasons(machine)


def test_bc096_renumbered_after_a_reboot(tmp_path: Path, broken: Break, read: Read) -> None:
    before = read(make_machine("inf2.24xlarge", tmp_path / "before", stats=False))
    paths = broken("inf2.24xlarge", "renumbered")
    after = read(paths)
    serials = [chip.serial for chip in before.chips]
    assert [chip.serial for chip in after.chips] == [serials[-1], *serials[:-1]]
    assert {chip.major for chip in after.chips} == {242}
    assert after.problems == ()
    boot_ids = [
        (where.proc / "sys/kernel/random/boot_id").read_text() for where in (paths, with_root(tmp_path / "before"))
    ]
    assert boot_ids[0] != boot_ids[1]


def with_root(root: Path) -> MachinePaths:
    return MachinePaths(root / "sys", root / "proc", root / "dev")


def test_decoys_are_no_chips(broken: Break, read: Read) -> None:
    paths = broken("inf2.24xlarge", "decoys")
    machine = read(paths)
    assert indices(machine) == list(range(6))
    assert [Path(problem.path).name for problem in machine.problems] == ["neuron6"]
    names = {path.name for path in paths.dev.iterdir()}
    assert names >= {"ng0n1", "nvme0", "nvme0n1", "neuron_monitor", "neuron6", "neuron7"}
    assert (paths.dev / "neuron7").is_symlink()


def test_bc031_a_layout_that_is_not_known(broken: Break, read: Read) -> None:
    paths = broken("trn2.3xlarge", "layout-2.31")
    machine = read(paths)
    assert machine.chips == ()
    assert machine.driver_version == "2.31.7.0"
    assert f"{paths.chip(0)}/core_count is missing: kernel driver 2.31.7.0" in reasons(machine)


@pytest.mark.parametrize("version", ["2.x.8072.0", "2.29", "garbage", "x" * 70])
def test_bc014_an_odd_driver_version(version: str, broken: Break, read: Read) -> None:
    machine = read(broken("trn1.2xlarge", f"driver-version={version}"))
    assert (len(machine.chips), machine.driver_version) == (1, version)
    assert "driverVersion is published as 0.0.0-unknown" in reasons(machine)


def test_bc026_the_module_unloads_itself(broken: Break, read: Read) -> None:
    paths = broken("trn2.3xlarge", "unloaded")
    machine = read(paths)
    assert (machine.chips, machine.instance_type) == ((), "trn2.3xlarge")
    assert "0 of the 1 chips of a trn2.3xlarge are usable" in reasons(machine)
    assert not list(paths.dev.glob("neuron*"))


def test_faults_add_up(broken: Break, read: Read) -> None:
    machine = read(broken("inf2.48xlarge", "vanish=0", "dead-link=5-6", "blank-serial=9", "driver-version=2.x"))
    assert indices(machine) == but(12, 0)
    assert (1, 2, 3, 4) in groups(machine)
    assert not any({5, 6} <= set(group) for group in groups(machine))
    assert len(machine.problems) >= 4


def test_nothing_is_left_to_break(broken: Break) -> None:
    with pytest.raises(MachineError, match="no chip is left"):
        broken("trn1.2xlarge", "missing-chip=0", "blank-serial=0")


VALUES = {"N": "1", "N[:FILE]": "1", "A-B": "0-1", "V": "2.26.5.0", "": ""}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("size", ["inf1.6xlarge", "inf2.24xlarge"])
def test_every_fault_leaves_a_tree_that_can_be_read(name: str, size: str, broken: Break, read: Read) -> None:
    value = VALUES[FAULTS[name].value]
    whole: Sequence[int] = range(SIZES[size].chips)
    machine = read(broken(size, f"{name}={value}" if value else name))
    assert set(indices(machine)) <= set(whole)
    assert machine.problems or name in {"renumbered", "driver-version"}
