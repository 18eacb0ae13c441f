"""CEL device selectors as the scheduler evaluates them, or an error that says why not; never a guess.

The evaluator is the `common-expression-language` package. What Kubernetes adds to CEL is put on top:

* `device.attributes["d"]` and `device.capacity["d"]` of an unknown domain are an empty map, an unknown
  name in a known domain is a runtime error, which stops the whole pod.
* `.?name.orValue(literal)` on such a map: the evaluator has no optional types, so exactly this form is
  rewritten into a presence test. Any other use of optionals is refused.
* `quantity()`, `semver()` and their comparisons. Capacities and version attributes are values of these types
  and not strings, so comparing one with a string is false, as on a real server.

Anything else the evaluator doesn't know (`cel.bind`, other extension functions) is an error too.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import cel

from dra_driver.errors import CoresliceError
from dra_driver.simulator import quantity

_LITERAL = re.compile(
    r"""//[^\n]*|[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')""",
    re.DOTALL,
)
_SLOT = re.compile(r'"(\d+)"')
_MAP = r'(?<![\w.])device\s*\.\s*(attributes|capacity)\s*\[\s*("\d+")\s*\]'
_ACCESS = re.compile(_MAP)
_OPTIONAL = re.compile(_MAP + r'\s*\.\s*\?\s*([A-Za-z_]\w*)\s*\.\s*orValue\s*\(\s*(-?\d[\w.]*|"\d+"|true|false)\s*\)')
_REFUSED = (
    (re.compile(r"[.\[]\s*\?"), "of optional types the simulator evaluates .?name.orValue(literal) only"),
    (
        re.compile(r"(?<![\w.])device\s*\.\s*(attributes|capacity)\s*\["),
        "a domain must be a literal for the simulator",
    ),
)
_SEMVER = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII)


class SelectorError(CoresliceError):
    """A selector that fails on a device, or that this evaluator can't evaluate; the text says which."""


@dataclass(frozen=True)
class Selector:
    """One compiled expression."""

    expression: str
    program: cel.Program

    def matches(self, driver: str, device: Mapping[str, Any]) -> bool:
        """Whether a device of a ResourceSlice fits; `SelectorError` is CEL's runtime error."""
        try:
            result = self.program.execute(_context(driver, device))
        except KeyError as error:
            raise SelectorError(f"{self._where(device)}: no such key: {error.args[0]}") from None
        except (RuntimeError, TypeError, ValueError) as error:
            raise SelectorError(f"{self._where(device)}: {_unquote(error)}") from None
        if not isinstance(result, bool):
            raise SelectorError(f"{self._where(device)}: must give a bool, gives {type(result).__name__}")
        return result

    def _where(self, device: Mapping[str, Any]) -> str:
        return f"CEL selector {self.expression!r} on device {device.get('name')}"


@cache
def compile_selector(expression: str) -> Selector:
    """Compile an expression once; `SelectorError` with the evaluator's own words if it can't be."""
    try:
        return Selector(expression, cel.compile(rewrite(expression)))
    except ValueError as error:
        raise SelectorError(f"CEL selector {expression!r} can't be compiled: {_unquote(error)}") from None


def rewrite(expression: str) -> str:
    """Turn Kubernetes' maps with defaults and `.?name.orValue(literal)` into plain CEL.

    String literals are set aside meanwhile, so that a text that merely looks like code stays.
    """
    literals: list[str] = []
    masked = _LITERAL.sub(lambda match: _set_aside(match[0], literals), expression)
    masked = _OPTIONAL.sub(r"(has(device_\1(\2).\3) ? device_\1(\2).\3 : \4)", masked)
    masked = _ACCESS.sub(r"device_\1(\2)", masked)
    for form, reason in _REFUSED:
        if form.search(masked):
            raise SelectorError(f"CEL selector {expression!r}: {reason}")
    return _SLOT.sub(lambda match: literals[int(match[1])], masked)


def _set_aside(literal: str, literals: list[str]) -> str:
    if literal.startswith("//"):
        return " "
    literals.append(literal)
    return f'"{len(literals) - 1}"'


def _context(driver: str, device: Mapping[str, Any]) -> cel.Context:
    attributes = _by_domain(driver, device.get("attributes") or {}, _attribute)
    capacity = _by_domain(driver, device.get("capacity") or {}, lambda value: _quantity(value.get("value")))
    return cel.Context(
        variables={"device": {"driver": driver, "attributes": attributes, "capacity": capacity}},
        functions={
            "device_attributes": lambda domain: attributes.get(domain, {}),
            "device_capacity": lambda domain: capacity.get(domain, {}),
            "quantity": _quantity,
            "semver": _semver,
            "compareTo": _compare,
            "isGreaterThan": lambda left, right: _compare(left, right) > 0,
            "isLessThan": lambda left, right: _compare(left, right) < 0,
        },
    )


def _by_domain(
    driver: str, values: Mapping[str, Any], convert: Callable[[Mapping[str, Any]], Any]
) -> dict[str, dict[str, Any]]:
    """Qualified names split into domain and id; a bare name belongs to the driver."""
    domains: dict[str, dict[str, Any]] = {}
    for qualified, value in values.items():
        domain, _, name = qualified.rpartition("/")
        domains.setdefault(domain or driver, {})[name] = convert(value)
    return domains


def _attribute(value: Mapping[str, Any]) -> Any:
    (kind, content), *more = value.items()
    if more:
        raise SelectorError(f"an attribute must have exactly one value, this one has {', '.join(value)}")
    return _semver(content) if kind == "version" else content


def _quantity(text: object) -> dict[str, str]:
    return {"quantity": quantity.show(quantity.parse(text))}


def _semver(text: str) -> dict[str, str]:
    if _SEMVER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a semantic version")
    return {"semver": text}


def _compare(left: Mapping[str, str], right: Mapping[str, str]) -> int:
    if left.keys() != right.keys():
        raise ValueError("compares values of different types")
    key = _semver_key if "semver" in left else lambda text: (quantity.parse(text),)
    a, b = (key(next(iter(side.values()))) for side in (left, right))
    return (a > b) - (a < b)


def _semver_key(text: str) -> tuple[Any, ...]:
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a semantic version")
    parts = match[4].split(".") if match[4] else []
    ids = [(not part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
    return int(match[1]), int(match[2]), int(match[3]), not parts, ids


def _unquote(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
