"""When a claim that comes or goes makes the driver look at its slices again: exactly when they may become others."""

from itertools import product
from pathlib import Path

import pytest

from dra_driver.cluster.slices import Server
from dra_driver.inventory.devices import Device
from dra_driver.settings import Granularity
from dra_driver.simulator import machines
from tests.contract.driver.conftest import Rig, eventually, result
from tests.contract.driver.desk import COUNTED, OWNER, UNCOUNTED, Desk

CYCLES = 20


@pytest.mark.parametrize(("minor", "device"), [(37, "core-0-0"), (37, "chip-0"), (34, "chip-0")])
def test_claims_cost_one_read_each_and_nothing_else(rig: Rig, minor: int, device: str) -> None:
    """Looking at Node and slices for each of them was two thirds of all requests of a busy node."""
    rig.store.minor = minor
    rig.start()
    refs = [rig.claim(f"c{number}", result(device)) for number in range(CYCLES)]
    before = rig.wait_idle()
    for ref in refs:
        rig.prepare(ref)
        rig.unprepare(ref)
    rig.prepare(rig.claim("last", result(device)))  # what follows from the others has surely been begun by then
    asked = [(row.verb, row.path.rpartition("/")[2]) for row in rig.server.audit.rows()[before:]]
    assert asked == [("get", name) for name in (*(ref.name for ref in refs), "last")]


def test_without_counters_a_claim_of_another_granularity_takes_the_chip_away_and_gives_it_back(rig: Rig) -> None:
    """By the next rescan it would be too late: the chip would be given out over the core."""
    rig.store.partitionable = False
    rig.start("--rescan-interval=3600")
    assert rig.device_names() == ["chip-0"]
    rig.prepare(ref := rig.core("a"))
    eventually(lambda: rig.device_names() == [], "the chip taken away", seen=rig.device_names)
    rig.unprepare(ref)
    eventually(lambda: rig.device_names() == ["chip-0"], "the chip given back", seen=rig.device_names)


def test_records_of_a_node_without_hardware_are_published_until_the_last_is_undone(rig: Rig) -> None:
    rig.start("--rescan-interval=1")
    refs = [rig.core("a"), rig.core("b", "core-0-1")]
    for ref in refs:
        rig.prepare(ref)
    machines.remove_chip(rig.machine, 0)
    eventually(lambda: rig.device_names() == ["core-0-0", "core-0-1"], "what is held", seen=rig.device_names)
    rig.unprepare(refs[0])
    eventually(lambda: rig.device_names() == ["core-0-1"], "one less", seen=rig.device_names)
    rig.unprepare(refs[1])
    eventually(lambda: rig.slices() == [], "nothing", seen=rig.device_names)


# The decision by itself


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_before_the_first_look_every_claim_calls_for_one(desk: Desk) -> None:
    assert desk.publishing.outdated()
    desk.look()
    assert not desk.publishing.outdated()


def test_a_claim_that_comes_while_a_look_is_under_way_is_in_it(desk: Desk) -> None:
    """Compared with the look before it would change nothing; with what this look has read so far it does."""
    core, gone = desk.device("core-0-0"), dict(desk.device("core-0-1").wire) | {"name": "core-0-7"}
    desk.hold(core)
    desk.look()
    desk.books.now["core-0-7"] = gone
    called: list[bool] = []

    def undo_it() -> None:
        """The last moment: records were read, and nothing is decided yet."""
        if desk.books.now.pop("core-0-7", None):
            called.append(desk.publishing.outdated())

    desk.books.meanwhile = undo_it
    built = desk.publishing.build(COUNTED, 1, OWNER)
    assert called == [False], "nobody calls for another look"
    assert built == desk.look()
    assert not desk.publishing.outdated()


def test_a_claim_that_changes_nothing_calls_for_no_look_while_one_is_under_way(desk: Desk) -> None:
    """Else a busy node would look for ever: each look would meet a claim."""
    desk.look()
    called: list[bool] = []

    def come() -> None:
        desk.hold(desk.device("core-0-0"))
        called.append(desk.publishing.outdated())

    desk.books.meanwhile = come
    desk.look()
    assert called == [False, False]


def test_a_scan_that_finds_the_same_makes_no_difference(desk: Desk) -> None:
    desk.look()
    assert not desk.hardware.rescan()
    desk.hold(desk.device("core-0-0"))
    assert not desk.publishing.outdated()


def test_other_hardware_calls_for_a_look(desk: Desk) -> None:
    desk.look()
    machines.remove_chip(desk.machine, 0)
    assert desk.hardware.rescan()
    assert desk.publishing.outdated()


@pytest.mark.parametrize("server", [COUNTED, UNCOUNTED])
@pytest.mark.parametrize("granularity", list(Granularity))
@pytest.mark.parametrize("chips", [1, 0])
def test_whoever_is_not_called_would_have_found_the_same(
    tmp_path: Path, server: Server, granularity: Granularity, chips: int
) -> None:
    """Every step between two states of the records, with devices that have gone, or are offered otherwise now."""
    desk = Desk(tmp_path, granularity)
    core, other, chip = (desk.device(name) for name in ("core-0-0", "core-0-1", "chip-0"))
    gone = Device("core-0-7", core.type, (0,), 7, 1, 1, {**core.wire, "name": "core-0-7"})
    before = Device(core.name, core.type, core.chips, 0, 1, 1, {**core.wire, "capacity": {"memory": {"value": "1"}}})
    states = [(), (core,), (core, other), (chip,), (gone,), (core, gone), (before,), (before, other), (before, gone)]
    if not chips:
        machines.remove_chip(desk.machine, 0)
        assert desk.hardware.rescan()
    spared = 0
    for first, then in product(states, states):
        desk.hold(*first)
        was = desk.look(server)
        desk.hold(*then)
        if not desk.publishing.outdated():
            assert desk.look(server) == was, (first, then)
            spared += first != then
    assert spared == 0 if not chips else spared > 0
