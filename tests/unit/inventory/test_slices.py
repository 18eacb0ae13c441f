"""The layout of slices, with and without counters, and what held devices do to it."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dra_driver.inventory.devices import DeviceType, InventoryError, devices, totals
from dra_driver.inventory.slices import Layout, NodeOwner, Pool, build, slice_name
from dra_driver.neuron.machine import Machine

Wire = dict[str, Any]
Build = Callable[..., list[Wire]]
MakeMachine = Callable[..., Machine]

NO_COUNTERS = Layout(37, counters=False)
CORES_ONLY = Layout(37, counters=False, granularity=DeviceType.CORE)


def listed(found: Sequence[Wire]) -> list[Wire]:
    return [device for item in found for device in item["spec"].get("devices", [])]


def names(found: Sequence[Wire]) -> list[str]:
    return [device["name"] for device in listed(found)]


def counters(found: Sequence[Wire]) -> dict[str, dict[str, str]]:
    sets = [entry for item in found for entry in item["spec"].get("sharedCounters", [])]
    return {entry["name"]: {name: counter["value"] for name, counter in entry["counters"].items()} for entry in sets}


def held_of(machine: Machine, *wanted: str, lnc: int = 1) -> dict[str, Any]:
    return {device.name: device.wire for device in devices(machine, lnc=lnc) if device.name in wanted}


def test_counters_stand_in_a_slice_of_their_own(machine: MakeMachine, slices: Build) -> None:
    first, second = slices(machine())
    assert first["spec"]["sharedCounters"] == [{"name": "chips", "counters": {"chip-0": {"value": "2"}}}]
    assert "devices" not in first["spec"]  # `devices: []` beside counters is refused
    assert "sharedCounters" not in second["spec"]
    assert [device["name"] for device in second["spec"]["devices"]] == ["core-0-0", "core-0-1", "chip-0"]


def test_all_slices_belong_to_one_pool_and_one_node(machine: MakeMachine) -> None:
    hardware = machine(chips=16, cores=8, architecture="NCv3")
    found = build(
        Pool("neuron.coreslice.dev", "node-a"),
        devices(hardware),
        totals(hardware),
        layout=Layout(35),
        generation=7,
        owner=NodeOwner("node-a", "5c9f"),
    )
    assert [item["metadata"]["name"] for item in found] == [
        f"0000{index}-neuron.coreslice.dev-node-a" for index in range(4)
    ]
    for item in found:
        assert (item["apiVersion"], item["kind"]) == ("resource.k8s.io/v1", "ResourceSlice")
        assert item["spec"]["driver"] == "neuron.coreslice.dev"
        assert item["spec"]["nodeName"] == "node-a"
        assert item["spec"]["pool"] == {
            "name": "neuron.coreslice.dev/node-a",
            "generation": 7,
            "resourceSliceCount": 4,
        }
        assert item["metadata"]["ownerReferences"] == [
            {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "5c9f", "controller": True}
        ]


def test_without_an_owner_there_is_no_reference(machine: MakeMachine, slices: Build) -> None:
    assert all(item["metadata"].keys() == {"name"} for item in slices(machine()))


@pytest.mark.parametrize("layout", [Layout(37), NO_COUNTERS, Layout(34)])
def test_bc026_no_devices_no_slices(machine: MakeMachine, slices: Build, layout: Layout) -> None:
    assert slices(machine(chips=0), layout=layout) == []
    assert slices(machine(), layout=layout, offered=()) == []


@pytest.mark.parametrize(
    ("lnc", "sizes"),
    [(2, [64, 16]), (1, [64, 64, 16])],
)
def test_bc017_slices_are_split_at_64(machine: MakeMachine, slices: Build, lnc: int, sizes: list[int]) -> None:
    hardware = machine(chips=16, cores=8, architecture="NCv3")
    found = slices(hardware, lnc=lnc)
    assert [len(item["spec"]["devices"]) for item in found[1:]] == sizes
    assert len(set(names(found))) == sum(sizes)
    assert {item["spec"]["pool"]["resourceSliceCount"] for item in found} == {len(sizes) + 1}


def test_bc017_without_counters_the_split_stays(machine: MakeMachine, slices: Build) -> None:
    hardware = machine(chips=16, cores=8, architecture="NCv3")
    found = slices(hardware, layout=CORES_ONLY)
    assert [len(item["spec"]["devices"]) for item in found] == [64, 64]


def test_counters_stand_in_the_order_of_chips(machine: MakeMachine, slices: Build) -> None:
    found = slices(machine(chips=(0, 2, 10)))
    assert list(counters(found)["chips"]) == ["chip-0", "chip-2", "chip-10"]


def test_more_chips_than_a_counter_set_takes(machine: MakeMachine, slices: Build) -> None:
    assert len(counters(slices(machine(chips=32)))["chips"]) == 32
    with pytest.raises(InventoryError, match="33 counters in set 'chips', the API takes 32"):
        slices(machine(chips=33))


def test_the_order_of_the_input_means_nothing(machine: MakeMachine, slices: Build) -> None:
    hardware = machine(chips=5)
    straight, turned = devices(hardware), devices(hardware)[::-1]
    assert json.dumps(slices(hardware, offered=turned)) == json.dumps(slices(hardware, offered=straight))


def test_the_result_shares_nothing_that_is_written_to(machine: MakeMachine, slices: Build) -> None:
    found = slices(machine())
    found[0]["spec"]["pool"]["generation"] = 99
    found[0]["metadata"]["resourceVersion"] = "5"
    assert found[1]["spec"]["pool"]["generation"] == 1
    assert slices(machine())[0]["metadata"] == {"name": "00000-neuron.coreslice.dev-node-a"}


# Where counters don't hold


def test_without_counters_there_are_chips_only(machine: MakeMachine, slices: Build) -> None:
    found = slices(machine(chips=2), layout=NO_COUNTERS)
    assert names(found) == ["chip-1", "chip-0"]
    assert counters(found) == {}
    assert all("consumesCounters" not in device for device in listed(found))


def test_without_counters_cores_may_be_chosen_instead(machine: MakeMachine, slices: Build) -> None:
    assert names(slices(machine(chips=2), layout=CORES_ONLY)) == ["core-0-0", "core-0-1", "core-1-0", "core-1-1"]


def test_before_1_35_one_granularity_is_listed(machine: MakeMachine, slices: Build) -> None:
    assert not Layout(34).counted
    assert Layout(35).counted
    assert slices(machine(), layout=Layout(34)) == slices(machine(), layout=NO_COUNTERS)


@pytest.mark.parametrize("granularity", [DeviceType.CORE_RUN, DeviceType.CHIP_GROUP])
def test_runs_and_groups_are_no_granularity(machine: MakeMachine, slices: Build, granularity: DeviceType) -> None:
    with pytest.raises(InventoryError, match="either cores or chips"):
        slices(machine(), layout=Layout(37, counters=False, granularity=granularity))


# What is held


def test_held_devices_change_nothing_while_the_hardware_is_there(machine: MakeMachine, slices: Build) -> None:
    hardware = machine(chips=2)
    held = held_of(hardware, "core-0-0", "chip-1")
    assert slices(hardware, held=held) == slices(hardware)


def test_bc085_what_is_held_stays_listed_when_its_chip_goes(machine: MakeMachine, slices: Build) -> None:
    hardware = machine(chips=2)
    held = held_of(hardware, "core-1-0", "core-1-1")
    found = slices(machine(chips=1), held=held)
    assert names(found) == ["core-0-0", "core-0-1", "core-1-0", "core-1-1", "chip-0"]
    assert counters(found) == {"chips": {"chip-0": "2", "chip-1": "2"}}


def test_bc085_what_was_free_goes(machine: MakeMachine, slices: Build) -> None:
    assert names(slices(machine(chips=1))) == ["core-0-0", "core-0-1", "chip-0"]


def test_held_devices_alone_keep_the_pool(machine: MakeMachine, slices: Build) -> None:
    found = slices(machine(chips=0), held=held_of(machine(), "chip-0"))
    assert names(found) == ["chip-0"]
    assert counters(found) == {"chips": {"chip-0": "2"}}


def test_what_is_held_stays_as_it_was_published(machine: MakeMachine, slices: Build) -> None:
    before = held_of(machine(driver_version="2.26.5.0"), "core-0-0")
    first, second, _ = listed(slices(machine(driver_version="2.30.2.0"), held=before))
    assert first == before["core-0-0"]
    assert first["attributes"]["driverVersion"] == {"version": "2.26.5+0"}
    assert second["attributes"]["driverVersion"] == {"version": "2.30.2+0"}


def test_what_was_published_without_counters_draws_on_them_once_they_hold(machine: MakeMachine, slices: Build) -> None:
    """It is charged to nobody otherwise, and its cores would be given again."""
    hardware = machine(chips=2)
    published = listed(slices(hardware, layout=NO_COUNTERS))
    held = {device["name"]: device for device in published if device["name"] == "chip-0"}
    assert "consumesCounters" not in held["chip-0"]
    assert slices(hardware, held=held) == slices(hardware)


def test_other_counter_sets_of_held_devices_stay(machine: MakeMachine, slices: Build) -> None:
    """One reference to a counter that isn't there makes the whole pool invalid."""
    held = {name: dict(wire) for name, wire in held_of(machine(), "core-0-1").items()}
    entry = {"counterSet": "cores-0", "counters": {"core-0-1": {"value": "1"}}}
    held["core-0-1"]["consumesCounters"] = [*held["core-0-1"]["consumesCounters"], entry]
    found = slices(machine(), held=held)
    assert counters(found) == {"chips": {"chip-0": "2"}, "cores-0": {"core-0-1": "1"}}


def test_a_counter_is_never_below_what_is_held(machine: MakeMachine, slices: Build) -> None:
    held = held_of(machine(cores=8), "chip-0")
    assert counters(slices(machine(cores=2), held=held)) == {"chips": {"chip-0": "8"}}


@pytest.mark.parametrize(
    "entry", [{"counterSet": "chips"}, {}, {"counterSet": "chips", "counters": {"chip-0": {"value": "x"}}}]
)
def test_unreadable_counters_of_a_held_device(machine: MakeMachine, slices: Build, entry: Wire) -> None:
    held = {name: dict(wire) | {"consumesCounters": [entry]} for name, wire in held_of(machine(), "chip-0").items()}
    with pytest.raises(InventoryError, match="device 'chip-0' draws on unreadable counters"):
        slices(machine(), held=held)


def test_a_held_device_at_another_lnc_keeps_its_cores_from_being_listed(machine: MakeMachine, slices: Build) -> None:
    """A count excludes the chip there, but can't tell which cores are taken."""
    hardware = machine(chips=1, cores=8, architecture="NCv3")
    found = slices(hardware, lnc=1, held=held_of(hardware, "core-0-1-lnc2", lnc=2))
    assert names(found) == [
        *("core-0-0-lnc1", "core-0-1-lnc1", "core-0-1-lnc2", "core-0-4-lnc1"),
        *("core-0-5-lnc1", "core-0-6-lnc1", "core-0-7-lnc1", "chip-0-lnc1"),
    ]


def test_without_counters_a_held_core_keeps_its_chip_from_being_listed(machine: MakeMachine, slices: Build) -> None:
    hardware = machine(chips=2)
    found = slices(hardware, layout=NO_COUNTERS, held=held_of(hardware, "core-0-1"))
    assert names(found) == ["chip-1"]


def test_without_counters_a_held_chip_keeps_its_cores_from_being_listed(machine: MakeMachine, slices: Build) -> None:
    hardware = machine(chips=2)
    found = slices(hardware, layout=CORES_ONLY, held=held_of(hardware, "chip-1"))
    assert names(found) == ["core-0-0", "core-0-1"]


def test_without_counters_nothing_is_left_while_another_granularity_holds_all(
    machine: MakeMachine, slices: Build
) -> None:
    assert slices(machine(), layout=NO_COUNTERS, held=held_of(machine(), "core-0-0")) == []


def test_without_counters_what_is_held_of_the_same_granularity_stays(machine: MakeMachine, slices: Build) -> None:
    held = held_of(machine(chips=2), "chip-1")
    found = slices(machine(chips=1), layout=NO_COUNTERS, held=held)
    assert names(found) == ["chip-1", "chip-0"]
    assert "consumesCounters" not in listed(found)[0]


def test_without_counters_a_chip_held_at_another_lnc_is_not_listed_twice(machine: MakeMachine, slices: Build) -> None:
    hardware = machine(chips=2, cores=8, architecture="NCv3")
    found = slices(hardware, lnc=1, layout=NO_COUNTERS, held=held_of(hardware, "chip-0-lnc2", lnc=2))
    assert names(found) == ["chip-1-lnc1"]


def test_without_counters_a_core_held_at_another_lnc_keeps_its_chip_from_being_listed(
    machine: MakeMachine, slices: Build
) -> None:
    hardware = machine(chips=2, cores=4, architecture="NCv3")
    found = slices(hardware, lnc=1, layout=CORES_ONLY, held=held_of(hardware, "core-0-0-lnc2", lnc=2))
    assert names(found) == [f"core-1-{core}-lnc1" for core in range(4)]


# Names


@pytest.mark.parametrize(
    ("driver", "node", "what"),
    [
        ("Neuron.dev", "n", "driver name"),
        ("n" * 64, "n", "driver name"),
        ("neuron_dev", "n", "driver name"),
        ("", "n", "driver name"),
        ("neuron.dev", "", "node name"),
        ("neuron.dev", "node/1", "node name"),
        ("neuron.dev", "Node", "node name"),
        ("neuron.dev", "n" * 243, "node name"),
    ],
)
def test_names_that_the_api_would_not_take(driver: str, node: str, what: str) -> None:
    with pytest.raises(InventoryError, match=f"{what} '{driver if what.startswith('driver') else node}'"):
        Pool(driver, node)


def test_a_long_node_name_still_gives_names_that_differ_by_slice() -> None:
    pool = Pool("neuron.dev", "n" * 238 + ".x")
    found = [slice_name(pool, index) for index in (0, 1)]
    assert all(len(name) <= 253 for name in found)
    assert found[0].startswith("00000-neuron.dev-nnn")
    assert found[0] != found[1]


def test_long_node_names_that_differ_at_the_end_only_give_names_that_differ() -> None:
    first, second = (slice_name(Pool("neuron.dev", "n" * 239 + last), 0) for last in ("ab", "cd"))
    assert first != second
