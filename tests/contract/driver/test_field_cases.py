"""Faults that were seen in the field, on the daemon as a process. Each test is named after its case."""

import itertools
import math
import threading
import time

import pytest

from dra_driver.inventory.attributes import COMMON
from dra_driver.simulator.machines import put
from tests.contract.driver.conftest import Rig, eventually

FLAPS_FOR = 5.0  # seconds
FLAP = 0.1


@pytest.mark.parametrize("version", ["2.29.0.0", "2.29", "2.x.8072.0", "garbage", "x" * 70, ""])
def test_bc014_version_is_not_semver(rig: Rig, version: str) -> None:
    """The node publishes all the same, every device with all that is common; an Event names the file."""
    put(rig.machine.sysfs / "module/neuron/version", f"{version}\n")
    rig.start()
    devices = rig.devices()
    assert devices.keys() == {"chip-0", "core-0-0", "core-0-1"}
    assert all(device["attributes"].keys() >= COMMON for device in devices.values())
    assert devices["chip-0"]["attributes"]["driverVersionText"] == {"string": version[:64]}
    assert rig.events("SliceRepaired") == []
    if version == "2.29.0.0":
        assert rig.events("HardwareProblem") == []
    else:
        (text,) = rig.wait_events("HardwareProblem")
        assert "module/neuron/version" in text


def generation(rig: Rig) -> int:
    return max(int(item["spec"]["pool"]["generation"]) for item in rig.slices())


def serials(rig: Rig) -> set[str]:
    return {each["attributes"]["serialNumber"]["string"] for name, each in rig.devices().items() if name == "chip-0"}


def test_bc030_hardware_that_flaps_does_not_flood_the_api(rig: Rig) -> None:
    """A chip that changes ten times a second costs a publication a second at most, and the last state is there."""
    rig.start("--rescan-interval=1")
    before, writes, slices = generation(rig), len(rig.server.audit.writes()), len(rig.slices())
    pause, started = threading.Event(), time.monotonic()
    for at in itertools.count():
        put(rig.machine.chip(0) / "info/serial_number", f"{at:016x}\n")
        pause.wait(FLAP)
        if time.monotonic() - started > FLAPS_FOR:
            break
    last = f"{at:016x}"
    eventually(lambda: serials(rig) == {last}, "the last state", seen=lambda: serials(rig))
    published, most = generation(rig) - before, math.ceil(time.monotonic() - started) + 1
    assert 2 <= published <= most
    written = [row for row in rig.server.audit.writes()[writes:] if "/resourceslices" in row.path]
    assert len(written) <= most * slices
