"""The layout of slices, with and without counters, and what held devices do to it.

Long, since each layout is tried with each kind of held device.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dra_driver.inventory.devices import DeviceType, InventoryError, devices, totals
from dra_driver.inventory.offer import Offer, Runs
from dra_driver.inventory.slices import Layout, NodeOwner, Pool, build, slice_name
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal

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
    assert [device["name"] for device in second["spec"]["devices"]] == ["chip-0", "core-0-0", "core-0-1"]


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
    [(2, [16, 64]), (1, [16, 64, 64])],  # parted between chips and cores
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
    assert {name: len(entry) for name, entry in counters(slices(machine(chips=32))).items()} == {"chips": 32}
    found = slices(machine(chips=33))
    assert {name: len(entry) for name, entry in counters(found).items()} == {"chips": 32, "chips-1": 1}
    chip = next(device for device in listed(found) if device["name"] == "chip-32")
    assert chip["consumesCounters"] == [{"counterSet": "chips-1", "counters": {"chip-32": {"value": "2"}}}]


def test_more_counter_sets_than_a_slice_takes(machine: MakeMachine, slices: Build) -> None:
    """28 chips of four cores: seven sets of cores and that of the chips are eight; one chip more is a ninth."""
    for chips, sets in ((28, [8]), (29, [8, 1])):
        found = slices(machine(chips=chips, cores=4, architecture="NCv1"))
        assert [len(item["spec"]["sharedCounters"]) for item in found if "sharedCounters" in item["spec"]] == sets
        assert len({entry for item in found for entry in counters([item])}) == sum(sets)


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
    assert names(found) == ["chip-0", "core-0-0", "core-0-1", "core-1-0", "core-1-1"]
    assert counters(found) == {"chips": {"chip-0": "2", "chip-1": "2"}}


def test_bc085_what_was_free_goes(machine: MakeMachine, slices: Build) -> None:
    assert names(slices(machine(chips=1))) == ["chip-0", "core-0-0", "core-0-1"]


def test_held_devices_alone_keep_the_pool(machine: MakeMachine, slices: Build) -> None:
    found = slices(machine(chips=0), held=held_of(machine(), "chip-0"))
    assert names(found) == ["chip-0"]
    assert counters(found) == {"chips": {"chip-0": "2"}}


def test_what_is_held_stays_as_it_was_published(machine: MakeMachine, slices: Build) -> None:
    before = held_of(machine(driver_version="2.26.5.0"), "core-0-0")
    _, first, second = listed(slices(machine(driver_version="2.30.2.0"), held=before))
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


@pytest.mark.parametrize(
    "entry", [{"counterSet": "cores", "counters": {"x": {"value": "1"}}}, {}, {"counterSet": "chips", "counters": None}]
)
def test_what_a_held_device_draws_follows_from_what_it_covers(machine: MakeMachine, slices: Build, entry: Wire) -> None:
    """Whatever its record says: one reference to a counter that isn't there makes the whole pool invalid."""
    held = {name: dict(wire) | {"consumesCounters": [entry]} for name, wire in held_of(machine(), "chip-0").items()}
    assert slices(machine(), held=held) == slices(machine())


def test_a_counter_is_never_below_what_is_held(machine: MakeMachine, slices: Build) -> None:
    held = held_of(machine(cores=8), "chip-0")
    assert counters(slices(machine(cores=2), held=held)) == {"chips": {"chip-0": "8"}}


# Core runs


def four(machine: MakeMachine, chips: int = 1) -> Machine:
    return machine(chips=chips, cores=4, architecture="NCv1", instance_type="")


def test_where_runs_are_listed_each_core_has_a_counter_of_its_own(machine: MakeMachine, slices: Build) -> None:
    found = slices(four(machine))
    assert names(found) == ["chip-0", "cores-0-0-2", "cores-0-2-2", *(f"core-0-{core}" for core in range(4))]
    assert counters(found) == {"chips": {"chip-0": "4"}, "cores-0": {f"core-0-{core}": "1" for core in range(4)}}
    draws = {device["name"]: device["consumesCounters"] for device in listed(found)}
    assert draws["core-0-1"] == [
        {"counterSet": "chips", "counters": {"chip-0": {"value": "1"}}},
        {"counterSet": "cores-0", "counters": {"core-0-1": {"value": "1"}}},
    ]
    assert draws["cores-0-2-2"] == [
        {"counterSet": "chips", "counters": {"chip-0": {"value": "2"}}},
        {"counterSet": "cores-0", "counters": {"core-0-2": {"value": "1"}, "core-0-3": {"value": "1"}}},
    ]
    assert draws["chip-0"] == [{"counterSet": "chips", "counters": {"chip-0": {"value": "4"}}}]


def test_where_no_runs_are_listed_there_are_chips_counters_only(machine: MakeMachine, slices: Build) -> None:
    found = slices(four(machine), offer=Offer(runs=Runs.OFF))
    assert counters(found) == {"chips": {"chip-0": "4"}}
    assert all(len(device["consumesCounters"]) == 1 for device in listed(found))


def test_a_set_of_cores_is_of_four_chips(machine: MakeMachine, slices: Build) -> None:
    found = counters(slices(machine(chips=6, cores=8, architecture="NCv2")))
    assert {name: len(entry) for name, entry in found.items()} == {"chips": 6, "cores-0": 32, "cores-1": 16}
    assert list(found["cores-1"])[:2] == ["core-4-0", "core-4-1"]


def test_chips_of_more_cores_are_fewer_in_a_set(machine: MakeMachine, slices: Build) -> None:
    """9 cores: three chips make 27 counters, four would make 36."""
    found = counters(slices(machine(chips=4, cores=9)))
    assert {name: len(entry) for name, entry in found.items()} == {"chips": 4, "cores-0": 27, "cores-1": 9}


def test_cores_that_no_set_can_count_are_not_in_runs(machine: MakeMachine, slices: Build) -> None:
    for cores, sets in ((32, {"chips", "cores-0"}), (33, {"chips"})):
        assert set(counters(slices(machine(cores=cores)))) == sets


def test_a_held_run_stays_with_its_counters_though_runs_are_off(machine: MakeMachine, slices: Build) -> None:
    hardware = four(machine, chips=2)
    held = held_of(hardware, "cores-1-2-2")
    found = slices(hardware, held=held, offer=Offer(runs=Runs.OFF))
    assert [name for name in names(found) if name.startswith("cores-")] == ["cores-1-2-2"]
    assert counters(found)["cores-0"] == {f"core-1-{core}": "1" for core in range(4)}
    draws = {device["name"]: len(device["consumesCounters"]) for device in listed(found)}
    assert (draws["core-0-3"], draws["core-1-0"], draws["core-1-3"]) == (1, 2, 2)


def test_a_core_that_was_held_before_runs_were_on_excludes_them(machine: MakeMachine, slices: Build) -> None:
    """Its record knows of no core's counter."""
    hardware = four(machine)
    held = held_of(hardware, "core-0-3")
    assert len(held["core-0-3"]["consumesCounters"]) == 1
    [core] = [device for device in listed(slices(hardware, held=held)) if device["name"] == "core-0-3"]
    assert core["consumesCounters"][1] == {"counterSet": "cores-0", "counters": {"core-0-3": {"value": "1"}}}


# Chip groups


def row(machine: MakeMachine, chips: int = 4) -> Machine:
    """The first chips of a trn1.32xlarge."""
    del machine
    whole = nominal(SIZES["trn1.32xlarge"])
    return Machine(whole.chips[:chips], whole.instance_type, whole.driver_version)


def test_a_group_draws_all_of_each_of_its_chips(machine: MakeMachine, slices: Build) -> None:
    found = slices(row(machine))
    assert names(found)[:7] == ["chips-0-4", "chips-2-2", "chips-0-2", "chip-3", "chip-2", "chip-1", "chip-0"]
    assert listed(found)[0]["consumesCounters"] == [
        {"counterSet": "chips", "counters": {f"chip-{chip}": {"value": "2"} for chip in range(4)}}
    ]


def test_bc085_a_held_group_stays_listed_when_a_chip_of_it_goes(machine: MakeMachine, slices: Build) -> None:
    held = held_of(row(machine), "chips-0-4")
    found = slices(row(machine, chips=3), held=held)
    assert names(found)[0] == "chips-0-4"
    assert listed(found)[0] == held["chips-0-4"]
    assert "chip-3" not in names(found)
    assert counters(found) == {"chips": {f"chip-{chip}": "2" for chip in range(4)}}


def test_a_held_group_stays_listed_when_the_offer_has_none(machine: MakeMachine, slices: Build) -> None:
    held = held_of(row(machine), "chips-2-2")
    found = slices(row(machine), held=held, offer=Offer(types=frozenset({DeviceType.CORE}), chips_with_cores=1))
    assert names(found) == ["chips-2-2", "core-0-0", "core-0-1"]
    assert counters(found) == {"chips": {"chip-0": "2", "chip-2": "2", "chip-3": "2"}}


def test_without_counters_a_held_group_keeps_all_its_chips_from_being_listed(
    machine: MakeMachine, slices: Build
) -> None:
    hardware = row(machine)
    held = held_of(hardware, "chips-0-2")
    assert names(slices(hardware, layout=NO_COUNTERS, held=held)) == ["chip-3", "chip-2"]


# LNC


def test_a_held_group_of_another_lnc_excludes_its_chips_by_counters(slices: Build) -> None:
    hardware = nominal(SIZES["trn2.48xlarge"])
    held = held_of(hardware, "chips-4-4-lnc2", lnc=2)
    found = slices(hardware, lnc=1, held=held)
    shown = {device["name"]: device for device in listed(found)}
    assert shown["chips-4-4-lnc2"] == held["chips-4-4-lnc2"]
    assert "chips-4-4-lnc1" in shown
    assert not [name for name in shown if name.startswith("core-5-")]
    assert counters(found)["chips"]["chip-5"] == "8"


def test_a_held_device_at_another_lnc_keeps_its_cores_from_being_listed(machine: MakeMachine, slices: Build) -> None:
    """A count excludes the chip there, but can't tell which cores are taken."""
    hardware = machine(chips=1, cores=8, architecture="NCv3")
    found = slices(hardware, lnc=1, held=held_of(hardware, "core-0-1-lnc2", lnc=2))
    assert names(found) == [
        *("chip-0-lnc1", "core-0-0-lnc1", "core-0-1-lnc1", "core-0-1-lnc2"),
        *("core-0-4-lnc1", "core-0-5-lnc1", "core-0-6-lnc1", "core-0-7-lnc1"),
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
