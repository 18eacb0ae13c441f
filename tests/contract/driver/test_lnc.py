"""The node's LNC: what is wished for, what is in force, and that a change never becomes another grant."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from dra_driver.claims.refusals import Reason
from dra_driver.simulator.apiserver.store import Change
from dra_driver.simulator.kubelet import PrepareError
from dra_driver.simulator.machines import make_machine, put
from tests.contract.cluster.conftest import usable
from tests.contract.driver.conftest import DRIVER, NODE, Rig, eventually

Obj = dict[str, Any]
CORES = {1: 128, 2: 64}
SOON = "--rescan-interval=1"
SLOW = "--rescan-interval=3600"
GROUPS_AND_CHIPS = 16 + 15


class Node:
    """A trn2.48xlarge, and the file in which it says its LNC."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        rig.machine = make_machine("trn2.48xlarge", rig.paths.root / "trn2", stats=False)
        self.file = rig.paths.root / "opt/logical_nc_config"

    def says(self, text: str) -> None:
        put(self.file, text)

    def start(self, *options: str) -> None:
        self.rig.start(f"--lnc-file={self.file}", "--prepare-wait=0", *options)

    def names(self) -> list[str]:
        return self.rig.device_names()

    def at(self, lnc: int) -> bool:
        """Whether everything that is published is at that LNC, and all of it is."""
        names = self.names()
        return len(names) == CORES[lnc] + GROUPS_AND_CHIPS and all(name.endswith(f"-lnc{lnc}") for name in names)

    def wait_at(self, lnc: int) -> None:
        eventually(
            lambda: self.at(lnc), f"LNC {lnc} published", seen=lambda: (self.names()[:3], self.rig.log()[-2000:])
        )

    def in_force(self) -> Any:
        """What the file beside the records says."""
        path = self.rig.paths.plugins / DRIVER / "claims/lnc.state"
        return json.loads(path.read_bytes().partition(b"\n")[0])["value"]

    def metric(self) -> dict[str, float]:
        return {labels["state"]: value for labels, value in self.rig.metrics("coreslice_logical_neuron_core")}


class Observer:
    """Follows each write of a slice: which LNCs stood in the API then, and were to be had, beside each other."""

    def __init__(self, rig: Rig) -> None:
        self._rows: dict[str, Obj] = {}
        self.seen: set[frozenset[str]] = set()
        self.usable: set[frozenset[str]] = set()
        rig.store.observers.append(self._saw)

    def _saw(self, change: Change) -> None:
        if change.plural != "resourceslices":
            return
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self._rows.pop(name, None)
        else:
            self._rows[name] = change.obj
        rows = list(self._rows.values())
        self.seen.add(_lncs(rows))
        self.usable.add(_lncs(usable(rows)))


def _lncs(rows: Sequence[Obj]) -> frozenset[str]:
    names = [device["name"] for row in rows for device in row["spec"].get("devices") or ()]
    return frozenset(name.rpartition("-")[2] for name in names)


@pytest.fixture
def node(rig: Rig) -> Node:
    return Node(rig)


@pytest.mark.parametrize(
    ("file", "options", "lnc"),
    [
        (None, (), 2),  # what the runtime takes by itself
        ("NEURON_LOGICAL_NC_CONFIG=1\n", (), 1),
        ("NEURON_LOGICAL_NC_CONFIG=2\n", (), 2),
        ("NEURON_LOGICAL_NC_CONFIG=2\n", ("--lnc=1",), 1),
        (None, ("--lnc=1",), 1),
        ("NEURON_LOGICAL_NC_CONFIG=1\n", ("--lnc=2",), 2),
    ],
)
def test_setting_then_file_then_default(node: Node, file: str | None, options: tuple[str, ...], lnc: int) -> None:
    if file is not None:
        node.says(file)
    node.start(*options)
    assert node.at(lnc)
    assert node.in_force() == lnc
    assert node.metric() == {"in_force": lnc, "wished": lnc}
    assert not node.rig.events("LNCChangePending")
    assert not node.rig.events("LNCFileUnreadable")
    assert not node.rig.said("can't be understood")


def test_bc123_a_file_that_is_missing_is_a_normal_state(node: Node) -> None:
    node.start(SOON)
    node.wait_at(2)
    node.says("NEURON_LOGICAL_NC_CONFIG=1\n")
    node.wait_at(1)
    node.file.unlink()
    node.wait_at(2)


@pytest.mark.parametrize("text", ["", "2", "NEURON_LOGICAL_NC_CONFIG=3\n", "NEURON_LOGICAL_NC_CONFIG=\xff\n"])
def test_garbage_is_reported_and_the_default_stays(node: Node, text: str) -> None:
    node.says(text)
    node.start()
    assert node.at(2)
    (told,) = node.rig.wait_events("LNCFileUnreadable", NODE)
    assert str(node.file) in told
    assert "NEURON_LOGICAL_NC_CONFIG=1" in told


def test_garbage_leaves_the_last_value(node: Node) -> None:
    node.says("NEURON_LOGICAL_NC_CONFIG=1\n")
    node.start(SOON)
    node.says("NEURON_LOGICAL_NC_CONFIG=one\n")
    node.rig.wait_events("LNCFileUnreadable", NODE)
    assert node.at(1)
    node.rig.process.stop()
    node.start()
    assert node.at(1), "after a restart too"
    assert node.metric() == {"in_force": 1, "wished": 1}


@pytest.mark.parametrize("options", [("--lnc=2",), ()])
def test_hardware_without_lnc_2_ignores_it(rig: Rig, options: tuple[str, ...]) -> None:
    file = rig.paths.root / "logical_nc_config"
    put(file, "rubbish")
    rig.start(f"--lnc-file={file}", *options)
    assert sorted(rig.device_names()) == ["chip-0", "core-0-0", "core-0-1"]
    assert rig.records() == [], "no file for what has one value"
    assert {value for _, value in rig.metrics("coreslice_logical_neuron_core")} == {1}
    rig.prepare(ref := rig.core("a"))
    rig.unprepare(ref)
    assert not rig.said("LNC|can't be understood")


def test_a_change_between_allocation_and_prepare_is_a_refusal(node: Node) -> None:
    node.start(SOON)
    early = node.rig.core("early", "core-3-1-lnc2")
    node.says("NEURON_LOGICAL_NC_CONFIG=1\n")
    node.wait_at(1)
    with pytest.raises(PrepareError) as caught:
        node.rig.prepare(early)
    for part in (Reason.OTHER_LNC.code, "core-3-1-lnc2", "LNC 2", "LNC 1", "the pod has to be deleted"):
        assert part in str(caught.value)
    assert node.rig.wait_events(Reason.OTHER_LNC.code, early.uid)
    assert node.rig.specs() == []
    assert [path.name for path in node.rig.records()] == ["lnc.state"]
    node.rig.prepare(node.rig.core("late", "core-3-1-lnc1"))


def test_a_name_that_exists_at_both_is_refused_before_the_change_is_seen(node: Node) -> None:
    """The scan has not come round yet: what is in force decides, not what was last published."""
    node.start(SLOW, "--lnc=2")
    with pytest.raises(PrepareError, match=Reason.OTHER_LNC.code):
        node.rig.prepare(node.rig.core("a", "core-0-0-lnc1"))
    node.rig.prepare(node.rig.core("b", "core-0-0-lnc2"))


def test_a_change_waits_for_the_last_claim(node: Node) -> None:
    node.start(SOON)
    first, second = node.rig.core("a", "core-0-0-lnc2"), node.rig.core("b", "chip-5-lnc2")
    node.rig.prepare(first)
    node.rig.prepare(second)
    node.says("NEURON_LOGICAL_NC_CONFIG=1\n")
    (told,) = node.rig.wait_events("LNCChangePending", NODE)
    assert "LNC 1 is wished for" in told
    assert str(node.file) in told
    node.rig.wait_ready_because("LNC 1 is wished for .* but LNC 2 stays in force")
    assert node.metric() == {"in_force": 2, "wished": 1}
    assert node.at(2)
    third = node.rig.core("c", "core-0-1-lnc2")
    node.rig.prepare(third)  # pods go on coming and going
    node.rig.unprepare(first)
    node.rig.unprepare(third)
    assert node.at(2)
    assert node.in_force() == 2
    node.rig.unprepare(second)
    node.wait_at(1)
    assert node.in_force() == 1
    assert node.metric() == {"in_force": 1, "wished": 1}
    eventually(lambda: "LNC" not in node.rig.said("^ready$")[-1]["why"], "nothing is pending any more")


def test_the_last_unprepare_is_enough(node: Node) -> None:
    """Not the next scan, which may be an hour away."""
    ref = held_over_a_restart(node, "--lnc=2")
    node.start(SLOW, "--lnc=1")
    assert node.at(2)
    assert node.metric() == {"in_force": 2, "wished": 1}
    assert node.rig.wait_events("LNCChangePending", NODE)
    node.rig.unprepare(ref)
    node.wait_at(1)


def held_over_a_restart(node: Node, *options: str) -> Any:
    node.start(*options)
    node.rig.prepare(ref := node.rig.core("a", "core-0-1-lnc2"))
    node.rig.process.stop()
    return ref


def test_a_restart_keeps_what_is_in_force(node: Node) -> None:
    held_over_a_restart(node, "--lnc=2")
    (spec,) = node.rig.specs()
    before = spec.read_bytes()
    node.start("--lnc=1")
    assert node.at(2)
    assert spec.read_bytes() == before
    node.rig.prepare(node.rig.core("b", "core-0-2-lnc2"))
    with pytest.raises(PrepareError, match=Reason.OTHER_LNC.code):
        node.rig.prepare(node.rig.core("c", "core-9-0-lnc1"))


@pytest.mark.parametrize("how", ["lost", "cut off"])
def test_where_the_value_is_lost_the_records_tell_it(node: Node, how: str) -> None:
    held_over_a_restart(node, "--lnc=2")
    state = node.rig.paths.plugins / DRIVER / "claims/lnc.state"
    if how == "lost":
        state.unlink()
    else:
        state.write_bytes(state.read_bytes()[:20])
    node.start("--lnc=1")
    assert node.at(2)
    assert node.in_force() == 2


@pytest.mark.parametrize("granularity", ["chip", "core"])
def test_without_counters_the_two_never_stand_beside_each_other(node: Node, granularity: str) -> None:
    node.rig.store.minor, node.rig.store.partitionable = 35, False
    observer = Observer(node.rig)
    held = {"chip": "chip-5-lnc2", "core": "core-5-0-lnc2"}[granularity]
    node.start(SOON, f"--granularity-without-counters={granularity}")
    node.rig.prepare(ref := node.rig.core("a", held))
    node.says("NEURON_LOGICAL_NC_CONFIG=1\n")
    node.rig.wait_events("LNCChangePending", NODE)
    node.rig.unprepare(ref)
    count = {"chip": 16, "core": CORES[1]}[granularity]

    def now() -> list[str]:
        return [name for name in node.names() if name.endswith("-lnc1")]

    eventually(lambda: len(now()) == count, "LNC 1 published", seen=node.names)
    assert observer.seen - {frozenset()} == {frozenset({"lnc2"}), frozenset({"lnc1"})}


def test_with_counters_no_core_is_ever_offered_twice(node: Node) -> None:
    observer = Observer(node.rig)
    node.start(SOON)
    node.rig.prepare(ref := node.rig.core("a", "core-5-0-lnc2"))
    node.says("NEURON_LOGICAL_NC_CONFIG=1\n")
    node.rig.wait_events("LNCChangePending", NODE)
    node.rig.unprepare(ref)
    node.wait_at(1)
    eventually(lambda: frozenset({"lnc1"}) in observer.usable, "the whole pool")
    assert observer.usable - {frozenset()} == {frozenset({"lnc2"}), frozenset({"lnc1"})}


def test_two_instances_use_what_is_in_force(node: Node) -> None:
    """In the middle of a rolling update to another setting."""
    node.start(SLOW, "--lnc=2", "--pod-uid=old")
    old = node.rig.process
    node.start(SOON, "--lnc=1", "--pod-uid=new")
    new = node.rig.process
    try:
        node.wait_at(1)
        for name, device in (("a", "core-0-0-lnc2"), ("b", "chip-3-lnc2")):
            with pytest.raises(PrepareError, match=Reason.OTHER_LNC.code):
                node.rig.prepare(node.rig.core(name, device))
        node.rig.prepare(ref := node.rig.core("c", "core-0-0-lnc1"))
        (spec,) = node.rig.specs()
        new.stop()
        assert node.in_force() == 1, "the one that started last decided, and the older one leaves it so"
        node.rig.unprepare(ref)
        assert not spec.exists()
        assert node.in_force() == 1
    finally:
        old.stop()
