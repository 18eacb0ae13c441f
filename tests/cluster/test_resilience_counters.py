"""An API server that drops shared counters without a word: nothing overlaps, chips only, and everybody is told why."""

from collections.abc import Iterator

import pytest
from testbed import objects, overlap, settings
from testbed.api import Object
from testbed.driver import Driver
from testbed.node import Node, lone_node
from testbed.observer import SliceObserver
from testbed.stack import Options
from testbed.waiting import until

from dra_driver.inventory.classes import device_classes

pytestmark = pytest.mark.cluster

GATE = "DRAPartitionableDevices"


@pytest.fixture(scope="module")
def plain_node() -> Iterator[Node]:
    """A node and control plane of its own with the gate off everywhere."""
    with lone_node(Options(feature_gates={GATE: False})) as node:
        yield node


@pytest.fixture(scope="module")
def witness(plain_node: Node) -> SliceObserver:
    """Has seen every version of every slice since before the driver was started."""
    return SliceObserver(plain_node.api, "neuron.coreslice.dev")


@pytest.fixture(scope="module")
def plain_driver(plain_node: Node, witness: SliceObserver) -> Iterator[Driver]:
    """The driver there, ready, and its classes."""
    assert witness.history() == []
    driver = Driver(plain_node)
    try:
        driver.start()
        plain_node.apply(*device_classes(driver.name))
        for name in ("neuron-core", "neuron-chip"):
            plain_node.apply(objects.template(name, r=name))
        yield driver
    finally:
        driver.close()


def claiming_pod(name: str, template: str) -> Object:
    return objects.pod(name, objects.container(claims=["c"]), claims={"c": f"template/{template}"})


def names(slices: list[Object]) -> list[str]:
    return [device["name"] for device in overlap.devices(slices)]


def test_server_drops_counters_and_answers_as_if_all_were_well(plain_node: Node) -> None:
    """The fault itself: without it nothing else here shows anything."""
    sent: Object = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "counted"},
        "spec": {
            "driver": "other.example.dev",
            "nodeName": "elsewhere",
            "pool": {"name": "elsewhere", "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "s", "counters": {"c": {"value": "1"}}}],
        },
    }
    got = plain_node.api.create(sent)
    plain_node.api.delete("resourceslices", "counted")
    assert "sharedCounters" not in got["spec"]


def test_chips_only_and_never_two_overlapping_devices(plain_driver: Driver, witness: SliceObserver) -> None:
    assert names(plain_driver.slices()) == ["chip-0"]
    states = witness.states()
    assert states
    assert [overlap.overlapping(state.values()) for state in states] == [[]] * len(states)
    assert {name for state in states for name in names(list(state.values()))} == {"chip-0"}


def test_log_and_event_say_why(plain_driver: Driver) -> None:
    event = plain_driver.node.wait_event(plain_driver.node.name, "CountersDropped: ")
    assert event["type"] == "Warning"
    assert event["source"] == {"component": plain_driver.name, "host": plain_driver.node.name}
    line = plain_driver.wait_said("slices published: ")
    for text in (event["message"], line["message"]):
        assert "drops shared counters" in text
        assert GATE in text
    assert "only whole chips are offered" in event["message"]
    assert "--granularity-without-counters" in event["message"]
    ready = plain_driver.wait_said("^ready$")
    assert GATE in ready["why"]


def test_chip_pod_runs_and_core_pod_waits(plain_driver: Driver, witness: SliceObserver) -> None:
    node = plain_driver.node
    node.apply(claiming_pod("wants-core", "neuron-core"))
    assert "cannot allocate all claims" in node.wait_unschedulable("wants-core")
    node.run_pod(claiming_pod("wants-chip", "neuron-chip"))
    assert node.view("wants-chip").nodes == {"/dev/neuron0": f"{plain_driver.major}:0"}
    assert node.api.get("pods", "wants-core")["status"]["phase"] == "Pending"
    assert names(plain_driver.slices()) == ["chip-0"], "a held chip changes nothing"
    node.delete_pods("wants-chip", "wants-core")
    assert not any(overlap.overlapping(state.values()) for state in witness.states())


def test_gate_turned_on_and_off_under_the_running_driver(plain_driver: Driver, witness: SliceObserver) -> None:
    """Each new connection of the watch may be to a server with other gates.

    The last version of the API server can't be followed into the next one (410), so each has a witness of its own,
    from the moment that it answers.
    """
    witness.stop()
    node = plain_driver.node
    node.run_pod(claiming_pod("holder", "neuron-chip"))
    node.apply(claiming_pod("wants-core", "neuron-core"))

    seen = restart_control_plane(node, gate=True)
    until(
        lambda: sorted(names(plain_driver.slices())) == ["chip-0", "core-0-0", "core-0-1"],
        what="cores too, on counters",
        timeout=20,
        seen=plain_driver.slices,
    )
    node.wait_unschedulable("wants-core")
    assert node.api.get("pods", "wants-core")["status"]["phase"] == "Pending", "the chip is held"
    node.delete_pods("holder")
    node.wait_pod("wants-core")
    assert not any(overlap.unprotected(state.values()) for state in seen.states())
    node.delete_pods("wants-core")
    seen.stop()

    seen = restart_control_plane(node, gate=False)
    until(
        lambda: names(plain_driver.slices()) == ["chip-0"],
        what="chips only again",
        timeout=20,
        seen=plain_driver.slices,
    )
    last = seen.states()[-1]
    assert not overlap.overlapping(last.values())
    assert [item for item in last.values() if item["spec"].get("sharedCounters")] == []
    seen.stop()


def restart_control_plane(node: Node, *, gate: bool) -> SliceObserver:
    """API server and scheduler with the gate as given; a witness of the new server."""
    for name in ("apiserver", "scheduler"):
        program = node.program(name)
        node.stop(name)
        others = [argument for argument in program.argv if not argument.startswith("--feature-gates=")]
        program.argv[:] = others + settings.gate_flag({GATE: gate})
    node.start("apiserver")
    witness = SliceObserver(node.api, "neuron.coreslice.dev")
    node.start("scheduler")
    return witness
