"""The questions asked at the moment a chip is given: is it still that chip, and is its memory in use?"""

from collections.abc import Callable

import pytest

from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.now import changed, memory_held
from dra_driver.simulator.machines import MachinePaths, blank_serial, put, reboot, remove_chip, use_memory

Read = Callable[[MachinePaths], Machine]


@pytest.fixture
def chip(one: MachinePaths, read: Read) -> Chip:
    return read(one).chips[0]


def test_nothing_changed(one: MachinePaths, chip: Chip) -> None:
    assert changed(chip, sysfs_root=one.sysfs) is None


def test_gone(one: MachinePaths, chip: Chip) -> None:
    remove_chip(one, 0)
    assert "is gone or can't be read" in str(changed(chip, sysfs_root=one.sysfs))


def test_another_device_number(one: MachinePaths, chip: Chip) -> None:
    reboot(one, "another-boot", major=240)
    assert changed(chip, sysfs_root=one.sysfs) == "its device number is 240:0 now, it was 243:0"


def test_another_serial(one: MachinePaths, chip: Chip) -> None:
    put(one.chip(0) / "info/serial_number", "19fcda00f5ff6eb9\n")
    assert "its serial is 19fcda00f5ff6eb9 now" in str(changed(chip, sysfs_root=one.sysfs))


@pytest.mark.parametrize(
    "text", ["0000000000000000\n", "ffffffffffffffff\n", "deadbeefdeadbeef\n", "9FF5434815C8BD80\n"]
)
def test_a_serial_that_tells_nothing_new_is_no_change(one: MachinePaths, chip: Chip, text: str) -> None:
    put(one.chip(0) / "info/serial_number", text)
    assert changed(chip, sysfs_root=one.sysfs) is None
    blank_serial(one, 0)
    assert changed(chip, sysfs_root=one.sysfs) is None


def test_memory_is_seen_on_the_core_that_holds_it(one: MachinePaths, chip: Chip) -> None:
    use_memory(one, 0, 1, 4096)
    assert memory_held(chip, range(1), sysfs_root=one.sysfs) is None
    assert memory_held(chip, range(1, 2), sysfs_root=one.sysfs) == "device memory is in use on core 1 of chip 0"
    use_memory(one, 0, 1, 0)
    assert memory_held(chip, range(2), sysfs_root=one.sysfs) is None


def test_what_the_kernel_driver_holds_for_itself_blocks_nobody(one: MachinePaths, chip: Chip) -> None:
    use_memory(one, 0, 0, 4096, category="driver_memory")
    assert memory_held(chip, range(2), sysfs_root=one.sysfs) is None


def test_memory_is_that_of_one_chip(torus: MachinePaths, read: Read) -> None:
    use_memory(torus, 3, 7, 4096)
    chips = read(torus).chips
    assert memory_held(chips[3], [5, 7], sysfs_root=torus.sysfs) == "device memory is in use on core 7 of chip 3"
    assert memory_held(chips[3], range(7), sysfs_root=torus.sysfs) is None
    assert memory_held(chips[2], range(8), sysfs_root=torus.sysfs) is None


def test_an_older_kernel_driver_shows_no_memory(one: MachinePaths, chip: Chip) -> None:
    (one.chip(0) / "neuron_core0").rename(one.chip(0) / "other")
    assert memory_held(chip, range(1), sysfs_root=one.sysfs) is None
