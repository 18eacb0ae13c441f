"""Values that the API server would refuse are left out before they are sent; the rest of the node is published.

The daemon makes no such values of any hardware that is known. Here it is one with a defect: it thinks that texts may
have 200 bytes, while sysfs has such texts and the server takes 64.
"""

from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path

import pytest

from dra_driver.cluster.slices import Server
from dra_driver.inventory import attributes
from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import Device, InventoryError, devices
from dra_driver.inventory.lint.linter import lint
from dra_driver.settings import Granularity
from dra_driver.simulator import machines
from dra_driver.simulator.machines import make_machine
from tests.contract.driver.conftest import Rig, listed
from tests.contract.driver.desk import COUNTED, OWNER, UNCOUNTED, Desk

LONG = "2.30.2.0-" + "x" * 100
FAMILY = "info/architecture/device_name"
DEFECT = """
from dra_driver.inventory import attributes
attributes.STRING_BYTES = 200
"""


@pytest.fixture
def defect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this process."""
    devices.cache_clear()
    monkeypatch.setattr(attributes, "STRING_BYTES", 200)
    yield
    devices.cache_clear()


@pytest.fixture
def defective(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """In the daemon's process, on a machine of six chips."""
    (tmp_path / "sitecustomize.py").write_text(DEFECT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rig.machine = make_machine("inf2.24xlarge", rig.paths.root / "six", driver_version=LONG)
    return rig


def told_families(rig: Rig, *chips: int) -> None:
    """Chips that say more than 64 bytes about their family, a common attribute."""
    for chip in chips:
        machines.put(rig.machine.chip(chip) / FAMILY, "F" * 90)


def value(rig: Rig, name: str) -> float:
    ((_, found),) = rig.metrics(name)
    return found


def test_bc014_a_refused_optional_value_costs_the_attribute_and_is_told(defective: Rig) -> None:
    defective.start()
    found = defective.devices()
    whole = [name for name in found if name.startswith("chip")]
    assert len(found) > 12
    assert whole
    assert all("driverVersionText" not in device["attributes"] for device in found.values())
    assert all("serialNumber" in found[name]["attributes"] for name in whole)
    assert all(device["attributes"].keys() >= COMMON for device in found.values())
    (text,) = defective.wait_events("SliceRepaired")
    assert "attribute 'driverVersionText' of device 'chip" in text
    assert f"(and {len(whole) - 1} more)" in text
    assert value(defective, "coreslice_slice_faults") == len(whole)
    assert len(defective.said("driverVersionText")) == 1
    writes = [row.verb for row in defective.server.audit.writes() if row.path.endswith("resourceslices")]
    assert writes == ["create"] * len(defective.slices()), "nothing was tried that the server refuses"


def test_bc014_a_refused_common_value_costs_the_device_and_not_the_node(defective: Rig) -> None:
    told_families(defective, 1)
    defective.start()
    found = defective.devices()
    assert {device["attributes"]["index"]["int"] for device in found.values()} == {0, 2, 3, 4, 5}
    assert {"core-0-0", "core-0-1", "chip-0", "chip-5"} < found.keys()
    assert any("device 'chips-0-6' left out" in text for text in defective.wait_events("SliceRepaired"))
    defective.prepare(defective.core("a", "core-0-0"))


def test_bc015_no_driver_version_leaves_nothing_to_repair(rig: Rig) -> None:
    (rig.machine.sysfs / "module/neuron/version").unlink()
    rig.start()
    assert len(rig.device_names()) == 3
    assert value(rig, "coreslice_slice_faults") == 0
    assert rig.events("SliceRepaired") == []


def test_bc014_claims_on_a_device_that_lost_an_attribute_change_nothing(defective: Rig) -> None:
    """The record has the attribute: that is no other device than the one that is listed."""
    defective.start()
    before = defective.slices()
    defective.prepare(ref := defective.core("a", "chip-0"))
    defective.unprepare(ref)
    defective.prepare(defective.core("b", "chip-0"))
    assert [each["metadata"]["resourceVersion"] for each in defective.slices()] == [
        each["metadata"]["resourceVersion"] for each in before
    ]


def test_bc014_what_a_claim_holds_is_never_left_out(defective: Rig) -> None:
    """Its cores would look free to groups. What stands in the API stays, and people are told, until it is free."""
    defective.start("--rescan-interval=1")
    told_families(defective, 1)
    defective.wait_said("^slices published: generation 2 ")
    assert "core-1-0" not in defective.device_names()
    before = defective.slices()
    defective.prepare(ref := defective.core("a", "core-1-0"))  # allocated while it was still listed
    why = defective.wait_not_ready("would refuse")
    assert "spec.devices[14].attributes[family].string: 90 bytes" in why
    assert why in defective.wait_events("PublishFailed")
    assert defective.slices() == before
    assert value(defective, "coreslice_slice_faults") > 0
    defective.unprepare(ref)
    defective.wait_ready()
    assert defective.slices() == before
    defective.prepare(defective.core("b", "core-0-0"))


# The decision by itself


@pytest.fixture
def desk(tmp_path: Path, defect: None) -> Desk:
    del defect
    return Desk(tmp_path, size="inf2.24xlarge", driver_version=LONG)


def spoil(desk: Desk, *chips: int) -> None:
    for chip in chips:
        machines.put(desk.machine.chip(chip) / FAMILY, "F" * 90)
    assert desk.hardware.rescan() == bool(chips)


@pytest.mark.parametrize("server", [COUNTED, UNCOUNTED, Server(34, counters=True), Server(35, counters=True)])
def test_what_is_built_is_what_the_server_takes(desk: Desk, server: Server) -> None:
    spoil(desk, 2)
    built = desk.look(server)
    features = {"DRAPartitionableDevices": server.counters}
    assert [each for each in lint(built, minor=server.minor, features=features) if each.severity != "harmful"] == []
    assert {device["attributes"]["index"]["int"] for device in listed(built).values()} == {0, 1, 3, 4, 5}


def test_a_fault_is_told_once_and_again_after_it_was_gone(desk: Desk) -> None:
    for _ in range(3):
        desk.look()
    assert [reason for reason, _ in desk.told] == ["SliceRepaired"]
    machines.put(desk.machine.sysfs / "module/neuron/version", "2.30.2.0\n")
    assert desk.hardware.rescan()
    desk.look()
    assert desk.faults[-2:] == [desk.faults[0], 0]
    machines.put(desk.machine.sysfs / "module/neuron/version", LONG)
    assert desk.hardware.rescan()
    desk.look()
    assert [reason for reason, _ in desk.told] == ["SliceRepaired"] * 2


def test_a_held_device_that_would_have_to_go_ends_in_an_error_that_names_it(desk: Desk) -> None:
    spoil(desk, 1)
    desk.look()
    desk.hold(desk.device("core-1-0"))
    assert desk.publishing.outdated()
    with pytest.raises(InventoryError, match=r"would refuse this node's slices: .*family.*can't|can't.*family"):
        desk.publishing.build(COUNTED, 1, OWNER)
    assert desk.faults[-1] > 0
    desk.hold()
    assert desk.publishing.outdated()
    assert "core-1-0" not in listed(desk.look())


def states(desk: Desk) -> list[tuple[Device, ...]]:
    """What may be held, of chips with faults and without."""
    some = [desk.device(name) for name in ("core-0-0", "chip-0", "core-1-0", "chip-1", "chip-3")]
    gone = Device("core-9-0", some[0].type, (9,), 0, 1, 1, {**some[0].wire, "name": "core-9-0"})
    apart = [(one, other) for one, other in combinations(some, 2) if set(one.chips).isdisjoint(other.chips)]
    return [(), *((each,) for each in (*some, gone)), *apart]


def outcome(desk: Desk, server: Server) -> object:
    try:
        return desk.look(server)
    except InventoryError as error:
        return str(error)


@pytest.mark.parametrize("server", [COUNTED, UNCOUNTED])
@pytest.mark.parametrize("granularity", list(Granularity))
def test_whoever_is_not_called_would_have_found_the_same(
    tmp_path: Path, defect: None, server: Server, granularity: Granularity
) -> None:
    """With faults as without: every step between two states of the records."""
    del defect
    desk = Desk(tmp_path, granularity, size="inf2.24xlarge", driver_version=LONG)
    spoil(desk, 1)
    spared = 0
    for first, then in product(states(desk), repeat=2):
        desk.hold(*first)
        was = outcome(desk, server)
        desk.hold(*then)
        if not desk.publishing.outdated():
            assert outcome(desk, server) == was, (first, then)
            spared += first != then
    assert spared > 0
