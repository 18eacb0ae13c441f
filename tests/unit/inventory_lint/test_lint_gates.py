"""What servers leave out without a word, by gate and by minor."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.errors import CoresliceError
from dra_driver.inventory.lint.linter import lint
from dra_driver.inventory.lint.server import gates, server

Wire = dict[str, Any]
Judge = Callable[..., set[tuple[str, str]]]
MakeSlice = Callable[..., Wire]

DEVICE: Wire = {
    "name": "d",
    "attributes": {"a": {"int": 1}},
    "capacity": {"m": {"value": "1", "requestPolicy": {}}},
    "consumesCounters": [{"counterSet": "s", "counters": {"c": {"value": "1"}}}],
    "taints": [{"key": "a", "effect": "NoSchedule"}],
    "bindsToNode": False,
    "bindingConditions": ["a"],
    "bindingFailureConditions": ["b"],
    "allowMultipleAllocations": True,
}
AT = "spec.devices[0]"
COUNTED = {f"{AT}.consumesCounters"}
BOUND = {f"{AT}.bindsToNode", f"{AT}.bindingConditions", f"{AT}.bindingFailureConditions"}
SHARED = {f"{AT}.allowMultipleAllocations", f"{AT}.capacity[m].requestPolicy"}


@pytest.mark.parametrize(
    ("minor", "left_out"),
    [
        (34, COUNTED | BOUND | SHARED | {f"{AT}.taints"}),
        (35, COUNTED | BOUND | SHARED | {f"{AT}.taints"}),
        (36, set()),
        (37, set()),
    ],
)
def test_defaults_of_the_minors(make_slice: MakeSlice, dropped: Judge, minor: int, left_out: set[str]) -> None:
    assert {field for field, _ in dropped(make_slice(DEVICE), minor=minor, features={})} == left_out


@pytest.mark.parametrize(
    ("gate", "left_out"),
    [
        ("DRAPartitionableDevices", COUNTED),
        ("DRADeviceTaints", {f"{AT}.taints"}),
        ("DRADeviceBindingConditions", BOUND),
        ("DRAResourceClaimDeviceStatus", BOUND),
        ("DRAConsumableCapacity", SHARED),
    ],
)
def test_each_gate_that_is_off(make_slice: MakeSlice, dropped: Judge, gate: str, left_out: set[str]) -> None:
    found = dropped(make_slice(DEVICE), features={gate: False})
    assert found == {(field, "feature-gate") for field in left_out}


def test_counters_that_vanish_are_not_refused(make_slice: MakeSlice, refused: Judge, dropped: Judge) -> None:
    """The fault that three pods on the same two cores came from."""
    counters = make_slice(sharedCounters=[{"name": "s", "counters": {"c": {"value": "1"}}}])
    assert refused(counters, minor=35, features={}) == set()
    assert dropped(counters, minor=35, features={}) == {("spec.sharedCounters", "feature-gate")}
    told = [str(finding) for finding in lint([counters], minor=35)]
    assert any("can be allocated together" in text for text in told)


def test_what_is_left_out_is_not_validated(make_slice: MakeSlice, refused: Judge) -> None:
    bad = make_slice({"name": "d", "taints": [{"key": ""}]})
    assert refused(bad, features={"DRADeviceTaints": False}) == set()
    assert refused(bad) != set()


def test_node_selection_that_vanishes_leaves_none(make_slice: MakeSlice, refused: Judge) -> None:
    slices = make_slice({"name": "d", "nodeName": "n"}, nodeName=..., perDeviceNodeSelection=True)
    assert refused(slices) == set()
    assert refused(slices, features={"DRAPartitionableDevices": False}) == {("spec", "slice-node")}


def test_a_list_that_vanishes_leaves_an_attribute_without_value(
    make_slice: MakeSlice, refused: Judge, dropped: Judge
) -> None:
    slices = make_slice({"name": "d", "attributes": {"a": {"strings": ["x"]}}})
    assert dropped(slices, features={}) == {(f"{AT}.attributes[a].strings", "feature-gate")}
    assert refused(slices, features={}) == {(f"{AT}.attributes[a]", "attribute-value")}
    assert dropped(slices, minor=35) == {(f"{AT}.attributes[a].strings", "unknown-field")}
    assert refused(slices, minor=35) == {(f"{AT}.attributes[a]", "attribute-value")}


def test_empty_lists_are_no_loss(make_slice: MakeSlice, dropped: Judge) -> None:
    slices = make_slice({"name": "d", "taints": [], "consumesCounters": []}, sharedCounters=[])
    assert dropped(slices, minor=34, features={}) == set()


def test_fields_of_a_later_minor_are_unknown(make_slice: MakeSlice, dropped: Judge) -> None:
    slices = make_slice(DEVICE, partitionTypeAttribute="a.b/c", skipNodeOperations=["*"], extra={})
    unknown = {("spec.partitionTypeAttribute", "unknown-field"), ("spec.skipNodeOperations", "unknown-field")}
    assert dropped(slices, minor=36) == unknown | {("spec.extra", "unknown-field")}
    assert dropped(slices, minor=37) == {("spec.extra", "unknown-field")}


def test_node_resources_have_a_minor_each(make_slice: MakeSlice, dropped: Judge) -> None:
    old, new = "nodeAllocatableResourceMappings", "nodeAllocatableResources"
    slices = make_slice({"name": "d", old: {"cpu": {}}, new: {"cpu": {"overhead": {"perPod": "1"}}}})
    assert dropped(slices, minor=36) == {(f"{AT}.{new}", "unknown-field")}
    assert dropped(slices, minor=37) == {(f"{AT}.{old}", "unknown-field")}


def test_versions_and_gates_that_do_not_exist() -> None:
    with pytest.raises(CoresliceError, match=r"1\.33"):
        server(33)
    with pytest.raises(CoresliceError, match="DRAListTypeAttributes"):
        server(35, {"DRAListTypeAttributes": True})
    with pytest.raises(CoresliceError, match="NoSuchGate"):
        lint([], minor=37, features={"NoSuchGate": True})


def test_what_comes_after_the_newest_is_judged_as_the_newest() -> None:
    assert server(41) == server(37)
    assert server(37).on("DRADeviceTaints", "DRAPartitionableDevices")
    assert not server(37).on("DRAListTypeAttributes")


def test_gates_of_the_minors() -> None:
    assert len(gates(34)) == len(gates(35)) == 5
    assert set(gates(36)) - set(gates(35)) == {"DRAListTypeAttributes", "DRANodeAllocatableResources"}
    assert sum(gates(34).values()) == 1
    assert gates(37)["DRAFractionalCapacityRange"]
