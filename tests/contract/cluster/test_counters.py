"""Counters that vanish: overlapping devices must never be usable, and never stand in the API by our hand.

With the gate off an API server answers 201 and leaves counters out; three pods ran on the same two cores so.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cluster.client import Api
from dra_driver.cluster.slices import Phase, SlicePublisher
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import DRIVER, NODE, SLICES, Model, Rig, Witness, eventually, overlaps, usable


def device_names(rig: Rig) -> list[str]:
    return sorted(device["name"] for row in rig.slices() for device in row["spec"].get("devices") or [])


CHIPS = ["chip-0", "chip-1"]
EVERYTHING = ["chip-0", "chip-1", "core-0-0", "core-0-1", "core-1-0", "core-1-1"]


def gate(rig: Rig, *, on: bool) -> None:
    """As when an API server is restarted with another set of gates: its watches end."""
    rig.server.store.partitionable = on
    rig.server.cut_connections()


def test_the_witness_sees_overlap_where_there_is_some() -> None:
    model = Model(chips=1)
    rows = [
        model.slice(0, _owner(), {"pool": {"generation": 1, "resourceSliceCount": 1}, **model.devices(0, counted=True)})
    ]
    assert overlaps(rows) == []
    assert usable(rows) == []  # its counter set is missing
    for device in rows[0]["spec"]["devices"]:
        device.pop("consumesCounters")
    assert len(overlaps(rows)) == 2
    assert usable(rows) == rows


def _owner() -> Any:
    from dra_driver.cluster.slices import Owner  # noqa: PLC0415

    return Owner(NODE, "u")


def test_where_counters_hold_the_trial_leaves_nothing_behind(rig: Rig) -> None:
    rig.start().published(counters=True)
    trial = rig.server.audit.rows("create")[0]
    assert (trial.dry_run, trial.query) == (True, "dryRun=All")
    assert device_names(rig) == EVERYTHING


def test_with_the_gate_off_only_chips_are_ever_written(rig: Rig) -> None:
    rig.server.store.partitionable = False
    state = rig.start().published(counters=False, slices=2)
    assert "feature gate DRAPartitionableDevices is off" in state.text
    assert device_names(rig) == CHIPS
    assert (rig.witness.in_api, rig.witness.usable) == ([], [])


def test_with_the_gate_off_nothing_is_written_on_and_on(rig: Rig) -> None:
    rig.server.store.partitionable = False
    rig.start().published(counters=False)
    writes = len(rig.server.audit.writes())
    rig.publisher.poke()
    eventually(lambda: len(rig.server.audit.rows("list")) >= 3)
    assert len(rig.server.audit.writes()) == writes


def test_a_gate_that_goes_off_later_withdraws_devices_first(rig: Rig) -> None:
    rig.start().published(counters=True)
    gate(rig, on=False)
    rig.published(counters=False, generation=2, slices=2)
    assert device_names(rig) == CHIPS
    deleted = [
        change.obj["metadata"]["name"][:5]
        for change in rig.server.store.history
        if change.plural == "resourceslices" and change.type == "DELETED"
    ]
    assert deleted == ["00001", "00002", "00000"]
    assert (rig.witness.in_api, rig.witness.usable) == ([], [])


def test_a_reconnect_without_counters_as_before_changes_nothing(rig: Rig) -> None:
    rig.server.store.partitionable = False
    rig.start().published(counters=False)
    writes, told = len(rig.server.audit.writes()), len(rig.states)
    rig.server.cut_connections()
    eventually(lambda: sum(row.dry_run for row in rig.server.audit.rows("create")) == 2)
    rig.published(counters=False, watch="")
    assert len(rig.server.audit.writes()) == writes
    assert {state.phase for state in rig.states[told:]} == {Phase.PUBLISHED}


def test_that_counters_went_is_a_state_that_is_told(rig: Rig) -> None:
    rig.start().published(counters=True)
    gate(rig, on=False)
    rig.published(counters=False)
    withdrawn = [state for state in rig.states if state.phase is Phase.WITHDRAWN]
    assert len(withdrawn) == 1
    assert not withdrawn[0].ready
    assert "DRAPartitionableDevices" in withdrawn[0].why_no_counters


def test_a_gate_that_comes_back_publishes_everything_again(rig: Rig) -> None:
    rig.server.store.partitionable = False
    rig.start().published(counters=False)
    gate(rig, on=True)
    rig.published(counters=True, slices=3)
    assert device_names(rig) == EVERYTHING
    assert rig.state.why_no_counters == ""
    assert (rig.witness.in_api, rig.witness.usable) == ([], [])


def test_gates_that_flap_never_show_overlap(rig: Rig) -> None:
    rig.start().published(counters=True)
    for on in (False, True, False, True):
        gate(rig, on=on)
        rig.published(counters=on)
    assert device_names(rig) == EVERYTHING
    assert (rig.witness.in_api, rig.witness.usable) == ([], [])


def test_a_gate_that_goes_off_between_trial_and_write_is_noticed_at_the_first_answer(rig: Rig) -> None:
    """As with several API servers during an upgrade: the trial asked another one."""

    def off() -> None:
        rig.server.store.partitionable = False

    rig.server.faults.plant(Fault(), verb="create", prefix=SLICES)  # the trial
    rig.server.faults.plant(Fault(before=off), verb="create", prefix=SLICES)
    state = rig.start().published(counters=False, slices=2)
    assert "came back without the counters it was sent with" in state.why_no_counters
    assert device_names(rig) == CHIPS
    assert rig.witness.usable == []
    stripped = [
        change.obj["metadata"]["name"][:5]
        for change in rig.server.store.history
        if change.plural == "resourceslices" and change.type == "ADDED"
    ]
    assert stripped[0] == "00001"  # one slice of a pool of three: never whole
    assert stripped.count("00001") == 2


@pytest.mark.parametrize("number", [1, 2, 3])
def test_at_whichever_write_the_gate_goes_off_the_pool_is_never_usable(rig: Rig, number: int) -> None:
    def off() -> None:
        rig.server.store.partitionable = False

    for _ in range(number):
        rig.server.faults.plant(Fault(), verb="create", prefix=SLICES)
    rig.server.faults.plant(Fault(before=off), verb="create", prefix=SLICES)
    rig.start().published(counters=False, slices=2)
    assert device_names(rig) == CHIPS
    assert rig.witness.usable == []


def test_while_the_withdrawal_is_slow_the_pool_is_not_usable(rig: Rig) -> None:
    hold = threading.Event()
    rig.start().published(counters=True)
    rig.server.faults.plant(Fault(), verb="delete")
    rig.server.faults.plant(Fault(hold=hold), verb="delete")
    gate(rig, on=False)
    eventually(lambda: len(rig.slices()) == 2)
    assert usable(rig.slices()) == []
    assert not rig.state.ready
    hold.set()
    rig.published(counters=False)
    assert rig.witness.in_api == []


def test_a_withdrawal_that_is_refused_is_tried_until_it_succeeds(rig: Rig) -> None:
    rig.start().published(counters=True)
    rig.server.faults.plant(Fault(code=503), verb="delete", times=3)
    gate(rig, on=False)
    rig.published(counters=False, slices=2)
    assert (device_names(rig), rig.witness.in_api) == (CHIPS, [])


def test_a_builder_that_fails_does_not_keep_slices_whose_counters_went(rig: Rig) -> None:
    rig.start().published(counters=True)
    rig.model.fails = ValueError("planted")
    gate(rig, on=False)
    eventually(lambda: rig.slices() == [])
    eventually(lambda: rig.state.phase is Phase.FAILED)
    assert rig.witness.in_api == []
    rig.model.fails = None
    rig.published(counters=False, slices=2)


def test_what_a_dead_publisher_left_unprotected_is_deleted_before_anything_is_written(rig: Rig) -> None:
    store = rig.server.store
    owner = store.get("nodes", NODE)["metadata"]["uid"]
    store.partitionable = False
    for row in Model().build(*_counted(owner)):
        store.create("resourceslices", row)
    assert overlaps(rig.slices())
    before = len(store.history)
    rig.start().published(counters=False, slices=2)
    changes = [change.type for change in store.history[before:] if change.plural == "resourceslices"]
    assert changes.index("DELETED") == 0
    assert changes.index("ADDED") >= 2
    assert device_names(rig) == CHIPS


def _counted(owner: str) -> Any:
    from dra_driver.cluster.slices import Owner, Server  # noqa: PLC0415

    return Server(37, counters=True), 1, Owner(NODE, owner)


def test_a_trial_that_is_refused_as_invalid_is_a_layout_that_is_not_taken(rig: Rig) -> None:
    rig.server.faults.plant(Fault(code=422, message="no counters without devices"), verb="create")
    state = rig.start().published(counters=False, slices=2)
    assert "1.37 doesn't take a slice of counters" in state.why_no_counters
    assert "no counters without devices" in state.why_no_counters


@pytest.mark.parametrize("code", [401, 403, 429, 500])
def test_a_trial_that_fails_otherwise_decides_nothing(rig: Rig, code: int) -> None:
    met = rig.server.faults.plant(Fault(code=code), verb="create", times=None)
    rig.start()
    eventually(lambda: met() >= 2)
    assert (rig.state.phase, rig.state.counters, rig.slices()) == (Phase.FAILED, None, [])
    rig.server.faults.clear()
    rig.published(counters=True)


def test_an_ordinary_reconnect_tries_counters_again_and_writes_nothing(rig: Rig) -> None:
    rig.start().published(counters=True)
    writes = len(rig.server.audit.writes())
    rig.server.cut_connections()
    eventually(lambda: sum(row.dry_run for row in rig.server.audit.rows("create")) == 2)
    rig.published(counters=True)
    assert len(rig.server.audit.writes()) == writes


@pytest.fixture
def old_server() -> Iterator[ApiServer]:
    with ApiServer(minor=34) as server:
        server.store.create("nodes", {"metadata": {"name": NODE}})
        yield server


def test_the_builder_is_told_the_minor(old_server: ApiServer, tmp_path: Path) -> None:
    witness = Witness(old_server)
    with Api(kubeconfig=old_server.kubeconfig(tmp_path / "kubeconfig")) as api:
        publisher = SlicePublisher(api, driver=DRIVER, node_name=NODE, build=Model().build)
        publisher.start()
        eventually(lambda: publisher.state.ready and old_server.watches)
        rows = old_server.store.list("resourceslices")
        assert [sorted(row["spec"]) for row in rows] == [["devices", "driver", "nodeName", "pool", "sharedCounters"]]
        old_server.store.partitionable = False
        old_server.cut_connections()
        eventually(lambda: publisher.state.ready and publisher.state.counters is False)
        publisher.stop()
    assert (witness.in_api, witness.usable) == ([], [])


def test_an_upgrade_of_the_server_changes_the_layout(old_server: ApiServer, tmp_path: Path) -> None:
    witness = Witness(old_server)
    with Api(kubeconfig=old_server.kubeconfig(tmp_path / "kubeconfig")) as api:
        publisher = SlicePublisher(api, driver=DRIVER, node_name=NODE, build=Model().build)
        publisher.start()
        eventually(lambda: publisher.state.ready and old_server.watches)
        old_server.store.minor = 37
        old_server.cut_connections()
        eventually(lambda: publisher.state.slices == 3)
        publisher.stop()
    assert publisher.state.ready
    assert witness.usable == []


@pytest.mark.parametrize(("told", "minor"), [("37+", 37), ("35", 35)])
def test_a_providers_minor_version_is_understood(rig: Rig, told: Any, minor: int) -> None:
    rig.server.store.minor = told
    seen: list[int] = []
    build = rig.model.build

    def spy(server: Any, generation: int, owner: Any) -> Any:
        seen.append(server.minor)
        return build(server, generation, owner)

    rig.server.store.minor = minor
    rig.server.faults.plant(Fault(before=lambda: setattr(rig.server.store, "minor", told)), prefix="/version")
    rig.server.faults.plant(Fault(before=lambda: setattr(rig.server.store, "minor", minor)), verb="create", times=None)
    rig.publisher._build = spy
    rig.start().published()
    assert set(seen) == {minor}


def test_a_version_without_a_minor_is_told(rig: Rig) -> None:
    rig.server.faults.plant(
        Fault(before=lambda: setattr(rig.server.store, "minor", "x")), prefix="/version", times=None
    )
    rig.start()
    eventually(lambda: rig.state.phase is Phase.FAILED)
    assert "no minor version" in rig.state.text
