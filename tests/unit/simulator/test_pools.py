"""Slices make pools the way the scheduler sees them."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from dra_driver.simulator.pools import DeviceId, gather, shortage

Wire = dict[str, Any]


def names(slices: list[Wire], node: str = "n1") -> list[str]:
    return [candidate.id.device for pool in gather(slices, node=node) for candidate in pool.candidates]


def problem(slices: list[Wire]) -> str:
    (pool,) = gather(slices, node="n1")
    return pool.problem


def test_devices_come_as_listed_and_slices_by_name(trn1: list[Wire]) -> None:
    assert names(trn1) == names(trn1[::-1]) == ["core-0-0", "core-0-1", "chip-0"]


def test_slices_are_sorted_by_name(make_slice: Callable[..., Wire]) -> None:
    slices = [make_slice("b", devices=[{"name": "second"}]), make_slice("a", devices=[{"name": "first"}])]
    assert names(slices) == ["first", "second"]


def test_pools_are_sorted_by_driver_and_name(make_slice: Callable[..., Wire]) -> None:
    slices = []
    for driver, pool in [("z", "a"), ("a", "z"), ("a", "a")]:
        item = make_slice(f"{driver}-{pool}", count=1, devices=[{"name": f"{driver}{pool}"}])
        item["spec"]["driver"], item["spec"]["pool"]["name"] = driver, pool
        slices.append(item)
    assert names(slices) == ["aa", "az", "za"]


def test_devices_of_another_node_are_no_candidates_but_count(trn1: list[Wire]) -> None:
    assert names(trn1, node="n2") == []
    (pool,) = gather(trn1, node="n2")
    assert pool.everywhere.keys() == {"core-0-0", "core-0-1", "chip-0"}


def test_all_nodes_reaches_every_node(make_slice: Callable[..., Wire]) -> None:
    item = make_slice("a", count=1, devices=[{"name": "x"}], allNodes=True)
    del item["spec"]["nodeName"]
    assert names([item], node="any") == ["x"]


@pytest.mark.parametrize("count", [1, 3])
def test_too_few_or_too_many_slices_make_a_pool_incomplete(trn1: list[Wire], count: int) -> None:
    for item in trn1:
        item["spec"]["pool"]["resourceSliceCount"] = count
    assert problem(trn1) == f"incomplete: 2 of {count} slices are there"


def test_only_the_newest_generation_counts(trn1: list[Wire], make_slice: Callable[..., Wire]) -> None:
    newer = make_slice("00009-a", count=1, generation=2, devices=[{"name": "new"}])
    assert names([*trn1, newer]) == ["new"]
    trn1[0]["spec"]["pool"]["generation"] = 2
    assert problem(trn1) == "incomplete: 1 of 2 slices are there"


def test_a_device_listed_twice_makes_a_pool_invalid(trn1: list[Wire]) -> None:
    trn1[1]["spec"]["devices"].append(trn1[1]["spec"]["devices"][0])
    assert problem(trn1) == "invalid: device core-0-0 is listed 2 times"


def test_a_counter_set_listed_twice_makes_a_pool_invalid(trn1: list[Wire]) -> None:
    trn1[0]["spec"]["sharedCounters"] *= 2
    assert problem(trn1) == "invalid: counter set chips is listed 2 times"


@pytest.mark.parametrize("rename", ["set", "counter"])
def test_counters_that_are_not_there_make_a_pool_invalid(trn1: list[Wire], rename: str) -> None:
    """What a server with the gate off leaves behind when it drops the counters of one slice only."""
    (counter_set,) = trn1[0]["spec"]["sharedCounters"]
    if rename == "set":
        counter_set["name"] = "other"
    else:
        counter_set["counters"] = {"other": {"value": "2"}}
    assert problem(trn1).startswith("invalid: device core-0-0 draws on counter chips/chip-0")


@pytest.mark.parametrize("field", ["nodeSelector", "perDeviceNodeSelection"])
def test_what_the_simulator_does_not_know_is_not_allocated_from(trn1: list[Wire], field: str) -> None:
    trn1[1]["spec"][field] = {"some": "thing"}
    assert problem(trn1) == f"unusable: the simulator doesn't know {field}"


def test_device_fields_that_it_does_not_know(trn1: list[Wire]) -> None:
    trn1[1]["spec"]["devices"][0]["allowMultipleAllocations"] = True
    assert problem(trn1) == "unusable: the simulator doesn't know allowMultipleAllocations"


def test_counters_are_read_as_quantities(trn1: list[Wire]) -> None:
    (pool,) = gather(trn1, node="n1")
    assert pool.totals == {("chips", "chip-0"): Decimal(2)}


def test_devices_in_use_draw(trn1: list[Wire]) -> None:
    (pool,) = gather(trn1, node="n1")
    used = DeviceId("neuron.test", "neuron.test/n1", "core-0-1")
    assert pool.available([used]) == {("chips", "chip-0"): Decimal(1)}
    assert pool.available([used._replace(driver="other"), used._replace(pool="other")]) == pool.totals


def test_bc140802_a_device_that_is_no_longer_listed_does_not_draw(trn1: list[Wire]) -> None:
    """Upstream's fault, kept: a driver that drops a held device must see the double booking here too."""
    trn1[1]["spec"]["devices"] = [d for d in trn1[1]["spec"]["devices"] if d["name"] != "core-0-1"]
    (pool,) = gather(trn1, node="n1")
    assert pool.available([DeviceId("neuron.test", "neuron.test/n1", "core-0-1")]) == pool.totals


def test_shortage_says_what_is_left() -> None:
    key, other = ("chips", "chip-0"), ("chips", "chip-1")
    totals = {key: Decimal(2), other: Decimal(2)}
    assert shortage({key: Decimal(2)}, {key: Decimal(2), other: Decimal(0)}, totals) == ""
    assert shortage({key: Decimal(2)}, {key: Decimal(0), other: Decimal(2)}, totals) == (
        "counter chip-0 has 0 of 2 left, needs 2"
    )


def test_a_counter_below_zero_blocks_whatever_draws_and_nothing_else() -> None:
    key, other = ("chips", "chip-0"), ("chips", "chip-1")
    left, totals = {key: Decimal(2), other: Decimal(-1)}, {key: Decimal(2), other: Decimal(1)}
    assert shortage({key: Decimal(1)}, left, totals) == "counter chip-1 has -1 of 1 left, needs 0"
    assert shortage({}, left, totals) == ""
