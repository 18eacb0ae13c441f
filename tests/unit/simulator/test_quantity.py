"""Quantities are compared exactly, whatever they are written as."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.simulator.quantity import QuantityError, parse, show


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", "2"),
        (2, "2"),
        ("500m", "0.5"),
        ("16Gi", str(16 * 2**30)),
        ("1024Mi", str(2**30)),
        ("1.5k", "1500"),
        ("1e3", "1000"),
        ("12E", "12000000000000000000"),
        ("1Ei", str(2**60)),
        ("-1", "-1"),
        (".5", "0.5"),
    ],
)
def test_value(text: object, value: str) -> None:
    assert parse(text) == Decimal(value)


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1gi", "1,5", "0x10", "1Kib", None, "\u0661"])
def test_what_is_no_quantity_is_named(text: object) -> None:
    with pytest.raises(QuantityError, match="is not a quantity"):
        parse(text)


@given(st.integers(min_value=-(10**12), max_value=10**12))
def test_whole_numbers_are_shown_as_they_are(number: int) -> None:
    assert show(parse(number)) == str(number)


@pytest.mark.parametrize(("text", "shown"), [("500m", "0.5"), ("1500m", "1.5"), ("1000m", "1"), ("1e3", "1000")])
def test_shown_without_exponent(text: str, shown: str) -> None:
    assert show(parse(text)) == shown
