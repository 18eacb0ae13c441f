"""The node's hardware as the daemon sees it: one snapshot, replaced as a whole."""

import logging
import shutil
from pathlib import Path

import pytest

from dra_driver.errors import NeuronError
from dra_driver.hardware import NodeHardware
from dra_driver.simulator.machines import MachinePaths, make_machine, put, remove_chip, use_memory


@pytest.fixture
def hardware(machine: MachinePaths) -> NodeHardware:
    return NodeHardware(sysfs_root=machine.sysfs, proc_root=machine.proc)


def test_a_snapshot_stays_what_it_was_while_a_new_one_takes_its_place(
    hardware: NodeHardware, machine: MachinePaths
) -> None:
    before = hardware.snapshot()
    assert not hardware.rescan()
    assert hardware.snapshot() == before
    remove_chip(machine, 3)
    assert hardware.rescan()
    assert "chip-3" in before.devices
    assert "chip-3" not in hardware.devices()
    assert hardware.machine().chip(3) is None
    assert hardware.snapshot().devices == hardware.devices()


def test_a_tree_that_cannot_be_scanned_leaves_the_last_snapshot(
    hardware: NodeHardware, machine: MachinePaths, caplog: pytest.LogCaptureFixture
) -> None:
    before = hardware.snapshot()
    folder = machine.sysfs / "class/neuron_device"
    shutil.rmtree(folder)
    folder.write_text("")
    assert not hardware.rescan()
    assert hardware.snapshot() is before
    assert str(folder) in caplog.text


def test_a_tree_that_cannot_be_scanned_at_the_start_is_an_error(machine: MachinePaths) -> None:
    folder = machine.sysfs / "class/neuron_device"
    shutil.rmtree(folder)
    folder.write_text("")
    with pytest.raises(NeuronError, match=str(folder)):
        NodeHardware(sysfs_root=machine.sysfs, proc_root=machine.proc)


def test_a_problem_is_logged_when_it_comes_and_not_at_each_scan(
    hardware: NodeHardware, machine: MachinePaths, caplog: pytest.LogCaptureFixture
) -> None:
    put(machine.chip(2) / "core_count", "many")
    with caplog.at_level(logging.WARNING):
        hardware.rescan()
        hardware.rescan()
    assert len([record for record in caplog.records if "core_count" in record.getMessage()]) == 1


def test_a_neuron_instance_without_chips_is_missing_them(machine: MachinePaths, hardware: NodeHardware) -> None:
    assert hardware.missing() is None
    for chip in range(4):
        remove_chip(machine, chip)
    hardware.rescan()
    assert "inf2.24xlarge" in str(hardware.missing())
    put(machine.sysfs / "devices/virtual/dmi/id/product_name", "m7i.large\n")
    hardware.rescan()
    assert hardware.missing() is None


def test_memory_on_a_core_is_in_use_for_the_core_its_chip_and_its_groups_only(
    hardware: NodeHardware, machine: MachinePaths
) -> None:
    use_memory(machine, 1, 1, 4096)
    busy = {name for name, device in hardware.devices().items() if hardware.busy(device)}
    assert busy == {"core-1-1", "chip-1"} | {f"chips-{first}-{n}" for first, n in ((0, 2), (1, 2), (0, 4))}
    assert hardware.busy(hardware.devices()["chip-1"]) == "device memory is in use on core 1 of chip 1"


@pytest.mark.parametrize(
    ("chip", "core", "pair"),
    [(0, 0, {4, 5}), (0, 3, {0, 1}), (1, 0, {2, 3}), (4, 0, {0, 1}), (5, 0, {6, 7})],
    ids=["row 0, column 0", "its last core", "column 1", "row 1", "both"],
)
def test_a_logical_core_is_in_use_where_sysfs_has_it(chip: int, core: int, pair: set[int], tmp_path: Path) -> None:
    """Memory of a neighbour on the same chip says nothing of it, whatever its number."""
    big = make_machine("trn2.48xlarge", tmp_path / "big", stats=False)
    hardware = NodeHardware(sysfs_root=big.sysfs, proc_root=big.proc)
    device = hardware.devices()[f"core-{chip}-{core}-lnc2"]
    seen = set()
    for held in range(8):
        use_memory(big, chip, held, 4096)
        if text := hardware.busy(device):
            assert text == f"device memory is in use on core {held} of chip {chip}"
            seen.add(held)
        use_memory(big, chip, held, 0)
    assert seen == pair


def test_at_lnc_1_a_core_is_one_of_sysfs(tmp_path: Path) -> None:
    one = make_machine("trn2.3xlarge", tmp_path / "one", stats=False)
    hardware = NodeHardware(sysfs_root=one.sysfs, proc_root=one.proc, lnc=lambda _: 1)
    use_memory(one, 0, 2, 4096)
    busy = {name for name, device in hardware.devices().items() if hardware.busy(device)}
    assert busy == {"core-0-4-lnc1", "cores-0-4-2-lnc1", "cores-0-4-4-lnc1", "chip-0-lnc1"}


def test_where_the_order_of_cores_is_not_known_the_chip_counts_as_a_whole(tmp_path: Path) -> None:
    """As in an UltraServer, where it depends on the server's place."""
    big = make_machine("trn2u.48xlarge", tmp_path / "big", stats=False)
    hardware = NodeHardware(sysfs_root=big.sysfs, proc_root=big.proc)
    use_memory(big, 2, 7, 4096)
    cores = [f"core-{chip}-{core}-lnc2" for chip in (1, 2) for core in range(4)]
    assert [name for name in cores if hardware.busy(hardware.devices()[name])] == cores[4:]


def test_a_chip_is_compared_with_sysfs_as_it_is_now(hardware: NodeHardware, machine: MachinePaths) -> None:
    chip = hardware.machine().chips[0]
    assert hardware.changed(chip) is None
    put(machine.chip(0) / "dev", "240:0\n")
    assert "240:0" in str(hardware.changed(chip))
