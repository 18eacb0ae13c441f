"""Whether the API server holds what it was sent.

A disabled feature is visible only here: its fields are missing in an object that was accepted. What a server
writes differently without meaning it differently (quantities, nulls) is equal.
"""

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)(|[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SERVER_SETS = frozenset({"timeAdded"})  # a taint's: set by the server where it was left out


def differences(sent: Any, held: Any, path: str = "spec") -> Iterator[str]:
    """Paths at which `held` isn't what was `sent`: lost, changed or added. None and absent are the same."""
    if isinstance(sent, Mapping) and isinstance(held, Mapping):
        for key in sorted(sent.keys() | held.keys()):
            if sent.get(key) is not None or key not in _SERVER_SETS:
                yield from differences(sent.get(key), held.get(key), f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(held, list) and len(sent) == len(held):
        for index, (one, other) in enumerate(zip(sent, held, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif not _equal(sent, held):
        yield path


def same(sent: Any, held: Any) -> bool:
    """Whether there are no differences."""
    return next(differences(sent, held), None) is None


def quantity(text: str) -> Decimal | None:
    """The number that a Kubernetes quantity stands for, None if it is no quantity."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix = Decimal(match[1]), match[2]
    if suffix in _BINARY:
        return number * (1 << _BINARY[suffix])
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):  # True is not 1
        return False
    if one == other or not isinstance(one, str):
        return bool(one == other)
    value = quantity(one)
    return value is not None and value == quantity(other)
