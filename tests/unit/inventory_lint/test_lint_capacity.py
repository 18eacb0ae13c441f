"""Quantities as the server reads them, and request policies."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.inventory.lint.quantity import Quantity, parse

Wire = dict[str, Any]
Judge = Callable[..., set[tuple[str, str]]]
MakeSlice = Callable[..., Wire]
AT = "spec.devices[0].capacity[m]"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("7", 7),
        ("+7", 7),
        ("-7", -7),
        ("007", 7),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("+", 0),
        (".", 0),
        ("100m", Fraction(1, 10)),
        ("1n", Fraction(1, 10**9)),
        ("1k", 1000),
        ("1E", 10**18),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e-3", Fraction(1, 1000)),
        ("32Gi", 32 * 2**30),
        ("1.5Gi", 3 * 2**29),
        ("0.5Ki", 512),
        (" 1 ", 1),
        ("0.1n", Fraction(1, 10**9)),  # rounded up to the finest there is
        ("16Ei", 2**63 - 1),  # cut off
        ("18446744073709551616", 2**64),
    ],
)
def test_values(text: str, value: Fraction | int) -> None:
    found = parse(text)
    assert found is not None
    assert found.value == value


@pytest.mark.parametrize(
    "text", ["", " ", "abc", "1 Gi", "1Gi5", "1e", "1ki", "1KI", "0x10", "1,5", "1-3", "--1", "é", "\u0661"]
)
def test_texts_that_are_none(text: str) -> None:
    assert parse(text) is None


@given(st.integers(-(10**17), 10**17), st.sampled_from([("", 1), ("k", 1000), ("M", 10**6), ("m", Fraction(1, 1000))]))
def test_a_whole_number_with_a_decimal_suffix(number: int, unit: tuple[str, Fraction]) -> None:
    suffix, factor = unit
    found = parse(f"{number}{suffix}")
    assert found is not None
    assert found.value == number * factor


@given(st.integers(-(10**17), 10**17), st.sampled_from([("Ki", 2**10), ("Mi", 2**20), ("Ei", 2**60)]))
def test_a_binary_suffix_stays_within_64_bits(number: int, unit: tuple[str, int]) -> None:
    suffix, factor = unit
    found = parse(f"{number}{suffix}")
    assert found is not None
    assert found.value == max(-(2**63) + 1, min(number * factor, 2**63 - 1))


@pytest.mark.parametrize(
    ("text", "units"),
    [("1500m", 2), ("-1500m", -2), ("1", 1), ("2.0000000001", 3), ("-2.0000000001", -1), ("1e19", 0), ("9.5e18", 0)],
)
def test_integers_that_the_server_computes_with(text: str, units: int) -> None:
    """Up and away from zero, except where a negative one is held as a decimal; too large is nothing."""
    found = parse(text)
    assert found is not None
    assert found.units() == units


def test_integers_of_wide_numbers_wrap() -> None:
    wide = parse("18446744073709551616")
    assert wide is not None
    assert wide.wide
    assert wide.units() == 0
    assert Quantity(15, -1).units(-3) == 1500


@pytest.mark.parametrize("value", ["16Gi", "0", "-1", 5, 1.5, None])
def test_good_capacities(make_slice: MakeSlice, refused: Judge, value: Any) -> None:
    assert refused(make_slice({"name": "d", "capacity": {"m": {"value": value}}})) == set()


@pytest.mark.parametrize("value", ["", "abc", True, {}, []])
def test_bad_capacities(make_slice: MakeSlice, refused: Judge, value: Any) -> None:
    assert refused(make_slice({"name": "d", "capacity": {"m": {"value": value}}})) == {(f"{AT}.value", "type")}


def shared(policy: Wire, value: str = "100", **fields: Any) -> Wire:
    capacity = {"m": {"value": value, "requestPolicy": policy}}
    return {"name": "d", "allowMultipleAllocations": True, "capacity": capacity, **fields}


def test_only_shared_devices_have_policies(make_slice: MakeSlice, refused: Judge) -> None:
    alone = shared({}, allowMultipleAllocations=False)
    assert refused(make_slice(alone)) == {(f"{AT}.requestPolicy", "request-policy-shared")}
    assert refused(make_slice(shared({}))) == set()


@pytest.mark.parametrize(
    ("policy", "rules"),
    [
        ({"default": "1"}, set()),
        ({"default": "2", "validValues": ["1", "2", "100"]}, set()),
        ({"default": "1", "validValues": [str(i) for i in range(1, 11)]}, set()),
        ({"default": "1", "validValues": [str(i) for i in range(1, 12)]}, {"valid-values-count"}),
        ({"validValues": ["1"]}, {"request-policy-default"}),
        ({"default": "1", "validValues": ["2", "1"]}, {"valid-values-order"}),
        ({"default": "1", "validValues": ["1", "101"]}, {"valid-values-capacity"}),
        ({"default": "3", "validValues": ["1", "2"]}, {"valid-values-default"}),
        ({"default": "1", "validValues": ["1", "1000m"]}, {"valid-values-unique"}),
        ({"default": "1", "validValues": ["1"], "validRange": {"min": "1"}}, {"request-policy-one"}),
        ({"default": "1", "validRange": {"min": "1"}}, set()),
        ({"default": "9", "validRange": {"min": "1", "max": "9", "step": "2"}}, set()),
        ({"validRange": {"min": "1"}}, {"request-policy-default"}),
        ({"default": "1", "validRange": {}}, {"valid-range-min"}),
        ({"default": "101", "validRange": {"min": "101"}}, {"valid-range-min"}),
        ({"default": "1", "validRange": {"min": "2"}}, {"valid-range-default"}),
        ({"default": "5", "validRange": {"min": "1", "max": "4"}}, {"valid-range-default"}),
        ({"default": "5", "validRange": {"min": "5", "max": "101"}}, {"valid-range-max"}),
        ({"default": "2", "validRange": {"min": "1", "step": "2"}}, {"valid-range-step"}),
        ({"default": "1", "validRange": {"min": "1", "max": "4", "step": "2"}}, {"valid-range-step"}),
        ({"default": "1", "validRange": {"min": "1", "step": "100"}}, {"valid-range-step"}),
        ({"default": "1", "validRange": {"min": "1", "step": "0"}}, {"valid-range-step"}),
        ({"default": "-1", "validRange": {"min": "-1", "step": "1"}}, {"valid-range-int64"}),
        ({"default": "500m", "validRange": {"min": "500m", "step": "250m"}}, set()),
        ({"default": "1n", "validRange": {"min": "1n"}}, {"valid-range-milli"}),
    ],
)
def test_request_policies(make_slice: MakeSlice, refused: Judge, policy: Wire, rules: set[str]) -> None:
    found = refused(make_slice(shared(policy)))
    assert {rule for _, rule in found} == rules
    assert all(field.startswith(f"{AT}.requestPolicy") for field, _ in found)


def test_fractions_came_with_137(make_slice: MakeSlice, refused: Judge) -> None:
    """Before, they were rounded up: two values may then be one, and a multiple none."""
    values = make_slice(shared({"default": "500m", "validValues": ["500m", "1"]}))
    assert refused(values, minor=36) == {(f"{AT}.requestPolicy.validValues", "valid-values-unique")}
    assert refused(values, minor=37) == set()
    steps = make_slice(shared({"default": "750m", "validRange": {"min": "250m", "step": "500m"}}))
    assert refused(steps, minor=36) == refused(steps, minor=37) == set()


def test_a_step_that_makes_older_servers_panic(make_slice: MakeSlice, refused: Judge) -> None:
    policy = {"default": "1", "validRange": {"min": "1", "step": "0"}}
    assert refused(make_slice(shared(policy)), minor=36) == {
        (f"{AT}.requestPolicy.validRange.step", "valid-range-step")
    }
