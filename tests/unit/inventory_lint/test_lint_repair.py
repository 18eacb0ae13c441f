"""What is left of slices that a server would refuse."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import devices, totals
from dra_driver.inventory.lint.linter import lint
from dra_driver.inventory.lint.repair import repair
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.simulator.nominal import nominal

Wire = dict[str, Any]
MakeSlice = Callable[..., Wire]
DRIVER = "neuron.example.com"


def device(name: str, **attributes: Wire) -> Wire:
    return {"name": name, "attributes": {"cores": {"int": 2}, **attributes}}


def pool_of(size: str) -> list[Wire]:
    machine = nominal(SIZES[size])
    found = devices(machine)
    return build(Pool(DRIVER, "node-1"), found, totals(machine), layout=Layout(37), generation=1)


def test_good_slices_stay_as_they_are() -> None:
    before = pool_of("trn1.32xlarge")
    repaired, notes = repair(before, 37, common=COMMON)
    assert repaired == before
    assert notes == []


def test_bc014_a_bad_optional_attribute_costs_the_attribute(make_slice: MakeSlice) -> None:
    bad = make_slice(device("a", text={"string": "x" * 65}, good={"int": 1}), device("b"))
    (fixed,), (note,) = repair([bad], 37, common=["cores"])
    assert [found["attributes"].keys() for found in fixed["spec"]["devices"]] == [{"cores", "good"}, {"cores"}]
    assert (note.device, note.attribute, note.rule, note.repaired) == ("a", "text", "value-length", True)
    assert str(note).startswith("slice-0: attribute 'text' of device 'a' left out: ")


def test_bc014_a_bad_common_attribute_costs_the_device(make_slice: MakeSlice) -> None:
    """Half a device would stop pods on every node."""
    bad = make_slice(
        device("a", driverVersion={"version": "2.30.2.0"}), device("b", driverVersion={"version": "2.30.2"})
    )
    (fixed,), (note,) = repair([bad], 37, common=["driverVersion", "cores"])
    assert [found["name"] for found in fixed["spec"]["devices"]] == ["b"]
    assert (note.device, note.attribute, note.rule) == ("a", "", "version")


def test_bc015_a_missing_common_attribute_costs_the_device(make_slice: MakeSlice) -> None:
    bad = make_slice({"name": "a"}, device("b"), {"name": "c", "attributes": 5})
    (fixed,), notes = repair([bad], 37, common=["cores"])
    assert [found["name"] for found in fixed["spec"]["devices"]] == ["b"]
    assert {(note.device, note.rule) for note in notes} == {
        ("a", "attribute-missing"),
        ("c", "attribute-missing"),
        ("c", "type"),
    }


def test_bc018_a_key_with_a_dash_costs_the_attribute(make_slice: MakeSlice) -> None:
    found = device("a", **{"numa-1": {"int": 1}}) | {"capacity": {"mem-0": {"value": "1"}, "memory": {"value": "1"}}}
    (fixed,), notes = repair([make_slice(found)], 37, common=["cores"])
    assert fixed["spec"]["devices"] == [device("a") | {"capacity": {"memory": {"value": "1"}}}]
    assert {note.attribute for note in notes} == {"numa-1", "mem-0"}


@pytest.mark.parametrize(
    "fault",
    [
        {"name": "A"},
        {"taints": [{"key": "a", "effect": "Nothing"}]},
        {"consumesCounters": [{"counterSet": "s", "counters": {}}]},
        {"nodeName": "n"},
        {"attributes": {"cores": {"int": 1}, **{f"a{i}": {"int": i} for i in range(32)}}},
    ],
)
def test_any_other_fault_costs_the_device(make_slice: MakeSlice, fault: Wire) -> None:
    """Without its taint it would be given out, without its counters twice."""
    (fixed,), notes = repair([make_slice(device("a") | fault, device("b"))], 37, common=["cores"])
    assert [found["name"] for found in fixed["spec"]["devices"]] == ["b"]
    assert notes
    assert all(note.repaired and not note.attribute for note in notes)


def test_the_second_of_two_of_one_name_goes(make_slice: MakeSlice) -> None:
    (fixed,), (note,) = repair([make_slice(device("a", n={"int": 1}), device("a", n={"int": 2}))], 37)
    assert fixed["spec"]["devices"] == [device("a", n={"int": 1})]
    assert note.rule == "duplicate"


def test_a_slice_whose_devices_all_go_stays_in_the_pool(make_slice: MakeSlice) -> None:
    """Else the number of slices would be wrong; an empty list isn't stored, and would never compare equal."""
    first, second = make_slice(device("A")), make_slice(device("b"), name="slice-1")
    repaired, notes = repair([first, second], 37)
    assert ["devices" in found["spec"] for found in repaired] == [False, True]
    assert [found["metadata"]["name"] for found in repaired] == ["slice-0", "slice-1"]
    assert len(notes) == 1


def test_a_held_device_is_never_left_out(make_slice: MakeSlice) -> None:
    """What it draws on would look free."""
    bad = make_slice(device("a", common={"string": "x" * 65}), device("b", common={"string": "x" * 65}))
    (fixed,), notes = repair([bad], 37, common=["common"], held=["a"])
    assert fixed["spec"]["devices"] == [bad["spec"]["devices"][0]]
    assert [(note.device, note.repaired) for note in notes] == [("b", True), ("", False)]
    assert "spec.devices[0].attributes[common]" in str(notes[1])
    assert "can't be published" in str(notes[1])


def test_a_held_device_loses_a_bad_optional_attribute_like_others(make_slice: MakeSlice) -> None:
    """It draws what it drew; else one claim on it would keep a node from publishing."""
    bad = make_slice(device("a", text={"string": "x" * 65}), device("b"))
    assert repair([bad], 37, common=["cores"], held=["a"]) == repair([bad], 37, common=["cores"])
    (fixed,), _ = repair([bad], 37, common=["cores"], held=["a"])
    assert fixed["spec"]["devices"] == [device("a"), device("b")]


def test_what_is_wrong_with_the_slice_itself_is_told(make_slice: MakeSlice) -> None:
    bad = make_slice(device("a"), pool={"name": "", "generation": 1, "resourceSliceCount": 1})
    (fixed,), notes = repair([bad], 37)
    assert fixed == bad
    assert notes
    assert not any(note.repaired for note in notes)


def test_bc017_too_many_devices_are_no_device_s_fault(make_slice: MakeSlice) -> None:
    found = [device(f"d{i}", bad={}) for i in range(129)]
    (fixed,), (note,) = repair([make_slice(*found)], 37)
    assert (note.rule, note.repaired) == ("device-count", False)
    assert len(fixed["spec"]["devices"]) == 129


def test_the_minor_decides(make_slice: MakeSlice) -> None:
    tainted = device("a") | {"taints": [{"key": "a", "effect": "None"}]}
    on = {"DRADeviceTaints": True}
    assert repair([make_slice(tainted)], 35, features=on) == ([make_slice(tainted)], [])
    (fixed,), (note,) = repair([make_slice(tainted)], 34, features=on)
    assert "devices" not in fixed["spec"]
    assert note.rule == "taint-effect"


_VALUES = st.one_of(
    st.builds(lambda text: {"string": text}, st.text(max_size=70)),
    st.builds(lambda text: {"version": text}, st.sampled_from(["1.2.3", "1.2", "2.30.2.0", ""])),
    st.builds(lambda number: {"int": number}, st.integers(-(2**65), 2**65)),
    st.sampled_from([{}, {"int": 1, "bool": True}, {"strings": ["x"]}, None, 5]),
)


@settings(max_examples=40)
@given(
    size=st.sampled_from(["trn1.2xlarge", "inf1.xlarge", "inf2.24xlarge"]),
    faults=st.lists(
        st.tuples(st.integers(0, 400), st.sampled_from([*sorted(COMMON), "extra", "numa-1"]), _VALUES), max_size=4
    ),
)
def test_whatever_attributes_say_the_rest_is_published(size: str, faults: list[tuple[int, str, Any]]) -> None:
    """Never a refused slice, never a device without its common attributes, never a good device lost."""
    before = pool_of(size)
    found = [device for item in before for device in item["spec"].get("devices", ())]
    for index, key, value in faults:
        found[index % len(found)]["attributes"] = {**found[index % len(found)]["attributes"], key: value}
    given_ = copy.deepcopy(before)
    repaired, notes = repair(before, 37, common=COMMON)
    assert before == given_
    assert len(repaired) == len(before)
    assert all(note.repaired for note in notes)
    assert not [each for each in lint(repaired, minor=37) if each.severity == "refused"]
    left = {device["name"]: device for item in repaired for device in item["spec"].get("devices", ())}
    touched = {found[index % len(found)]["name"] for index, _, _ in faults}
    assert all(left.get(device["name"]) == device for device in found if device["name"] not in touched)
    assert all(device["attributes"].keys() >= COMMON for device in left.values())
    gone = {device["name"] for device in found} - left.keys()
    assert gone == {note.device for note in notes if not note.attribute}
