"""Counter sets by hand: what is drawn, and how much there is."""

import pytest

from dra_driver.inventory.counters import Draws, Identity, chips_set, consumption, draws, shared


def test_a_part_draws_its_share_of_the_chip() -> None:
    assert draws([(3, 0), (3, 1)], part=True) == {"chips": {"chip-3": 2}}


def test_a_whole_draws_all_of_each_chip_and_no_cores() -> None:
    identity = Identity(frozenset({0, 1}))
    cores = [(chip, core) for chip in (0, 1) for core in range(4)]
    assert draws(cores, part=False, identity=identity) == {"chips": {"chip-0": 4, "chip-1": 4}}


def test_a_part_draws_its_cores_where_those_are_counted() -> None:
    identity = Identity(frozenset({5}))
    assert draws([(5, 2)], part=True, identity=identity) == {"chips": {"chip-5": 1}, "cores-1": {"core-5-2": 1}}
    assert draws([(4, 2)], part=True, identity=identity) == {"chips": {"chip-4": 1}}


@pytest.mark.parametrize(("cores", "per_set"), [(1, 4), (8, 4), (9, 3), (10, 3), (11, 2), (16, 2), (17, 1), (32, 1)])
def test_how_many_chips_share_a_set_of_at_most_32(cores: int, per_set: int) -> None:
    identity = Identity.of({0: 2, 7: cores})
    assert identity.per_set == per_set
    assert identity.per_set * cores <= 32
    assert identity.set_name(7) == f"cores-{7 // per_set}"


def test_a_set_of_chips_is_of_32() -> None:
    assert [chips_set(chip) for chip in (0, 31, 32, 63, 64)] == ["chips", "chips", "chips-1", "chips-1", "chips-2"]


def test_a_group_over_the_limit_of_a_set_draws_on_two() -> None:
    drawn = draws([(chip, 0) for chip in range(28, 36)], part=False)
    assert {name: len(counters) for name, counters in drawn.items()} == {"chips": 4, "chips-1": 4}


def test_no_device_of_a_host_draws_on_more_than_two_sets() -> None:
    """64 chips is what the kernel driver numbers."""
    everything = draws([(chip, 0) for chip in range(64)], part=False)
    part = draws([(63, 0)], part=True, identity=Identity(frozenset({63})))
    assert len(everything) == len(part) == 2


def test_on_the_wire_values_are_text() -> None:
    assert consumption({"chips": {"chip-0": 8}}) == [{"counterSet": "chips", "counters": {"chip-0": {"value": "8"}}}]


def test_a_counter_holds_what_is_there_or_what_is_held() -> None:
    two: Draws = {"chips": {"chip-0": 2}}
    for totals, held, value in (({0: 4}, [], "4"), ({0: 4}, [two], "4"), ({0: 1}, [two, two], "4"), ({}, [two], "2")):
        found = shared(totals, listed=[two], held=held)
        assert found == [{"name": "chips", "counters": {"chip-0": {"value": value}}}]


def test_counters_that_nothing_draws_on_are_left_out() -> None:
    """Each is looked at for each device."""
    assert shared({0: 2, 1: 2}, listed=[{"chips": {"chip-1": 1}}], held=[]) == [
        {"name": "chips", "counters": {"chip-1": {"value": "2"}}}
    ]


def test_sets_and_counters_stand_in_the_order_of_chips() -> None:
    listed: list[Draws] = [
        {"chips": {f"chip-{chip}": 1}, f"cores-{chip // 4}": {f"core-{chip}-0": 1}} for chip in (40, 10, 2)
    ]
    found = shared({2: 4, 10: 4, 40: 4}, listed=listed, held=[])
    assert [entry["name"] for entry in found] == ["chips", "cores-0", "cores-2", "cores-10"]
    assert list(found[0]["counters"]) == ["chip-2", "chip-10", "chip-40"]
