"""API servers that keep counters beside the devices only, and the way to newer ones and back."""

from pathlib import Path
from typing import Any

from dra_driver.simulator.apiserver.store import Change
from dra_driver.simulator.machines import make_machine
from tests.contract.driver.conftest import Rig, eventually, result

ALL = ["chip-0", "core-0-0", "core-0-1"]


Obj = dict[str, Any]


def slices(rig: Rig) -> list[Obj]:
    return rig.store.list("resourceslices")


def names(rig: Rig) -> list[str]:
    return sorted(rig.device_names())


def switched(rig: Rig, minor: int) -> None:
    """As when the API server is replaced by one of another version: its watches end."""
    rig.store.minor = minor
    rig.server.cut_connections()


def test_bc032_an_old_server_gets_all_in_one_slice(rig: Rig) -> None:
    rig.store.minor = 34
    rig.start()
    assert names(rig) == ALL
    [only] = slices(rig)
    assert only["spec"]["sharedCounters"] == [{"name": "chips", "counters": {"chip-0": {"value": "2"}}}]
    ref = rig.claim("a", result("core-0-1"))
    rig.prepare(ref)
    rig.unprepare(ref)
    assert rig.events("LayoutLimited") == []
    assert rig.events("CountersDropped") == []


def test_bc032_with_the_gate_off_an_old_server_gets_chips_only(rig: Rig) -> None:
    rig.store.minor = 34
    rig.store.partitionable = False
    rig.start()
    assert names(rig) == ["chip-0"]
    assert slices(rig)[0]["spec"].get("sharedCounters") is None
    assert rig.wait_events("CountersDropped")


def test_bc032_what_has_no_room_there_is_told_once(rig: Rig, tmp_path: Path) -> None:
    rig.machine = make_machine("inf1.xlarge", tmp_path)
    rig.store.minor = 34
    rig.start()
    assert names(rig) == ["chip-0", *(f"core-0-{core}" for core in range(4))]
    (text,) = rig.wait_events("LayoutLimited")
    assert "Kubernetes 1.34" in text
    assert "core runs aren't offered" in text
    ref = rig.claim("a", result("core-0-3"))
    rig.prepare(ref)
    rig.unprepare(ref)
    assert len(rig.said("core runs aren't offered")) == 1


def test_bc032_after_an_upgrade_runs_and_counters_of_their_own_come_without_a_restart(rig: Rig, tmp_path: Path) -> None:
    rig.machine = make_machine("inf1.xlarge", tmp_path)
    rig.store.minor = 34
    rig.start()
    switched(rig, 35)
    eventually(lambda: len(names(rig)) == 7, "core runs", seen=rig.process.tail)
    rig.wait_ready()
    counters, devices = slices(rig)
    assert [entry["name"] for entry in counters["spec"]["sharedCounters"]] == ["chips", "cores-0"]
    assert "devices" not in counters["spec"]
    assert "sharedCounters" not in devices["spec"]


def test_bc032_back_on_an_old_server_nothing_is_written_while_devices_lack_their_counters(rig: Rig) -> None:
    """To a scheduler of 1.34 a counter in another slice is no limit at all."""
    rig.store.minor = 35
    rig.start()
    follower = Follower(slices(rig))
    rig.store.observers.append(follower.saw)
    switched(rig, 34)
    eventually(lambda: len(slices(rig)) == 1, "the one slice", seen=rig.process.tail)
    rig.wait_ready()
    assert names(rig) == ALL
    assert follower.writes == [[]]


class Follower:
    """Keeps, for each write of a slice, which devices a scheduler of 1.34 would take for free then."""

    def __init__(self, rows: list[Obj]) -> None:
        self.rows = {row["metadata"]["name"]: row for row in rows}
        self.writes: list[list[str]] = []

    def saw(self, change: Change) -> None:
        if change.plural != "resourceslices":
            return
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self.rows.pop(name, None)
            return
        self.rows[name] = change.obj
        bare = [row["spec"] for row in self.rows.values() if not row["spec"].get("sharedCounters")]
        self.writes.append([device["name"] for spec in bare for device in spec.get("devices") or []])


def test_an_offer_shapes_what_is_published(rig: Rig) -> None:
    rig.start("--offer-types", "core")
    assert names(rig) == ["core-0-0", "core-0-1"]


def test_an_offer_of_nothing_is_ready_and_says_so(rig: Rig) -> None:
    rig.start("--offer-types", "none")
    assert slices(rig) == []
    assert "offer nothing" in rig.wait_ready_because("offer")
