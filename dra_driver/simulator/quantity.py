"""Kubernetes quantities as exact numbers: what counters and capacities are compared in.

Shapes: `"2"`, `"500m"`, `"16Gi"`, `"1e3"`. Anything else raises `QuantityError` that names the text.
"""

import re
from decimal import Decimal

from dra_driver.errors import CoresliceError

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i)?", re.ASCII)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}


class QuantityError(CoresliceError):
    """A text that is no Kubernetes quantity."""


def parse(text: object) -> Decimal:
    """The exact value of a quantity; the API also takes a bare JSON number."""
    match = _FORM.fullmatch(str(text))
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity; examples of what is: 2, 500m, 16Gi")
    number, suffix = Decimal(match[1]), match[2] or ""
    if suffix in _BINARY:
        return number * Decimal(1024) ** _BINARY[suffix]
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    return number.scaleb(int(suffix[1:]))


def show(value: Decimal) -> str:
    """A number for a message, without exponent and without trailing zeros."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
