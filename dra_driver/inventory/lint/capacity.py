"""Capacities: their keys, and the request policies of devices that many claims share."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from dra_driver.inventory.lint import server as gate
from dra_driver.inventory.lint.findings import At
from dra_driver.inventory.lint.names import qualified_name
from dra_driver.inventory.lint.quantity import Quantity

Decoded = Mapping[str, Any]
VALID_VALUES = 10
_MILLI = -3
_INT64 = 2**63
_BOUNDS = ("default", "min", "max", "step")


def capacities(at: At, found: Decoded, *, shared: bool) -> None:
    """`shared`: the device allows multiple allocations."""
    for key, capacity in found.items():
        qualified_name(at[key], key)
        policy = capacity.get("requestPolicy")
        if policy is None:
            continue
        here = at[key]["requestPolicy"]
        if shared:
            _policy(here, policy, capacity.get("value", Quantity(0)))
        else:
            here.refuse("request-policy-shared", "only a device with allowMultipleAllocations: true may have one")


def _policy(at: At, policy: Decoded, most: Quantity) -> None:
    values, limits = policy.get("validValues"), policy.get("validRange")
    if not values and limits is None:
        return
    if values and limits is not None:
        at.refuse("request-policy-one", "validValues and validRange exclude each other")
    elif (default := policy.get("default")) is None:
        at["default"].refuse("request-policy-default", "required with validValues or validRange")
    elif values:
        _values(at["validValues"], values, default, most)
    else:
        _range(at["validRange"], limits or {}, default, most)


def _values(at: At, values: list[Quantity], default: Quantity, most: Quantity) -> None:
    if len(values) > VALID_VALUES:
        at.refuse("valid-values-count", f"{len(values)} values, at most {VALID_VALUES} are allowed")
        return
    if any(one.value > two.value for one, two in pairwise(values)):
        at.refuse("valid-values-order", "must be ascending")
    if any(one.value > most.value for one in values):
        at.refuse("valid-values-capacity", "a value is above the capacity")
    if all(one.value != default.value for one in values):
        at.refuse("valid-values-default", "the default isn't one of them")
    exact = at.server.on(gate.FRACTIONS)
    if len({one.value if exact else one.units() for one in values}) < len(values):
        at.refuse("valid-values-unique", "a value stands twice" if exact else "two values are the same integer")


def _range(at: At, limits: Decoded, default: Quantity, most: Quantity) -> None:
    if "min" not in limits:
        at["min"].refuse("valid-range-min", "required")
        return
    bounds: dict[str, Quantity] = {"default": default, **limits}
    _order(at, bounds, most)
    milli = at.server.on(gate.FRACTIONS) and any(bound.value.denominator != 1 for bound in bounds.values())
    if milli and any(bound.units(_MILLI) != bound.value * 1000 for bound in bounds.values()):
        at.refuse("valid-range-milli", "min, max, step and default must be whole thousandths that fit 64 bits")
    elif "step" in bounds:
        _step(at["step"], bounds, most, milli=milli)


def _order(at: At, bounds: Mapping[str, Quantity], most: Quantity) -> None:
    least, largest, default = bounds["min"].value, bounds.get("max"), bounds["default"].value
    if least > most.value:
        at["min"].refuse("valid-range-min", "above the capacity")
    if default < least:
        at["default"].refuse("valid-range-default", "the default is below min")
    if largest is None:
        return
    if least > largest.value:
        at["max"].refuse("valid-range-max", "below min")
    if largest.value > most.value:
        at["max"].refuse("valid-range-max", "above the capacity")
    if default > largest.value:
        at["default"].refuse("valid-range-default", "the default is above max")


def _step(at: At, bounds: Mapping[str, Quantity], most: Quantity, *, milli: bool) -> None:
    step, guarded = bounds["step"], at.minor >= 37  # noqa: PLR2004 - before it, the server divided by whatever came
    if guarded and step.value <= 0:
        at.refuse("valid-range-step", "must be above zero")
        return
    if bounds["min"].value + step.value > most.value:
        at.refuse("valid-range-step", "one step from min is above the capacity")
    if guarded and not milli and any(not 0 <= bounds[name].value < _INT64 for name in _BOUNDS if name in bounds):
        at.refuse("valid-range-int64", "with a step, all bounds must be between 0 and 9223372036854775807")
        return
    _multiples(at, {name: bound.units(_MILLI if milli else 0) for name, bound in bounds.items()})


def _multiples(at: At, units: Mapping[str, int]) -> None:
    """On a step that rounds to zero the server of 1.36 and older panics, which is a 500."""
    for name in ("default", "max"):
        if name in units and (not units["step"] or _less(units[name], units["min"]) % units["step"]):
            at.refuse("valid-range-step", f"{name} isn't min and a multiple of the step")


def _less(one: int, two: int) -> int:
    """A subtraction in 64 bits."""
    return (one - two + _INT64) % (2 * _INT64) - _INT64
