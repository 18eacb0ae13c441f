"""Whether two specs mean the same."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cluster.compare import differences, quantity, same

SPEC: dict[str, Any] = {
    "driver": "d",
    "pool": {"name": "p", "generation": 1},
    "sharedCounters": [{"name": "chips", "counters": {"chip-0": {"value": "8"}}}],
    "devices": [{"name": "a", "attributes": {"cores": {"int": 2}, "numa": {"bool": True}}}],
}


def edited(path: list[Any], value: Any) -> dict[str, Any]:
    def edit(node: Any, rest: list[Any]) -> Any:
        if not rest:
            return value
        if isinstance(node, list):
            return [edit(row, rest[1:]) if i == rest[0] else row for i, row in enumerate(node)]
        return {**node, rest[0]: edit(node.get(rest[0]), rest[1:])}

    result = edit(SPEC, path)
    assert isinstance(result, dict)
    return result


def test_equal_specs_have_no_differences() -> None:
    assert same(SPEC, edited([], SPEC))


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (["driver"], "e", "spec.driver"),
        (["pool", "generation"], 2, "spec.pool.generation"),
        (["sharedCounters"], None, "spec.sharedCounters"),
        (["sharedCounters", 0, "counters", "chip-0", "value"], "4", "spec.sharedCounters[0].counters.chip-0.value"),
        (["devices", 0, "attributes", "cores", "int"], 3, "spec.devices[0].attributes.cores.int"),
        (["devices", 0, "attributes", "numa", "bool"], 1, "spec.devices[0].attributes.numa.bool"),
        (["devices", 0, "taints"], [{"key": "k"}], "spec.devices[0].taints"),
        (["devices"], [], "spec.devices"),
    ],
)
def test_a_difference_is_named_by_its_path(path: list[Any], value: Any, named: str) -> None:
    assert list(differences(SPEC, edited(path, value))) == [named]
    assert list(differences(edited(path, value), SPEC)) == [named]


def test_null_and_absent_are_the_same() -> None:
    assert same(SPEC, edited(["allNodes"], None))


def test_order_of_devices_counts() -> None:
    rows = [{"name": "a"}, {"name": "b"}]
    assert not same({"devices": rows}, {"devices": rows[::-1]})


def test_a_taints_time_is_the_servers_where_it_was_left_out() -> None:
    sent, held = {"taints": [{"key": "k"}]}, {"taints": [{"key": "k", "timeAdded": "2026-01-01T00:00:00Z"}]}
    assert same(sent, held)
    assert not same(held, sent)


@pytest.mark.parametrize(
    ("one", "other"), [("1024Mi", "1Gi"), ("1000m", "1"), ("1e3", "1k"), ("2", "2.0"), ("0.5", "500m")]
)
def test_a_canonical_quantity_is_no_change(one: str, other: str) -> None:
    assert same({"value": one}, {"value": other})


@pytest.mark.parametrize(("one", "other"), [("1Gi", "1G"), ("1", "2"), ("1", "x"), ("trn1", "trn2"), ("", "0")])
def test_other_texts_are_a_change(one: str, other: str) -> None:
    assert not same({"value": one}, {"value": other})


def test_what_is_no_quantity_has_no_number() -> None:
    assert [quantity(text) for text in ("", "x", "1X", "Gi", "1 ", "--1")] == [None] * 6


@given(st.integers(-(2**62), 2**62))
def test_a_whole_number_is_its_own_quantity(number: int) -> None:
    assert quantity(str(number)) == Decimal(number)
    assert same({"v": str(number * 1024)}, {"v": f"{number}Ki"})
