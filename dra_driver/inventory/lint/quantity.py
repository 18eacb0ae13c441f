"""Quantities as the API server reads them: exact values, and its own 64-bit rounding where rules use that.

A quantity is held either as an int64 with a decimal scale or as a decimal in billionths. Which of the two it is
shows in the integer that the step rules of a request policy compute with (kubernetes#110653), so both are here.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

_FORMAT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[+-]?[0-9]*)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
_DIGITS = 18  # that always fit an int64
_SMALLEST = -9  # nothing finer than billionths
_INT64 = 2**63
_LARGEST_EXPONENT = 1000  # beyond it only "huge" counts; the true number would fill memory


@dataclass(frozen=True)
class Quantity:
    """`amount` times 10^`scale`; `wide` where the server holds it as a decimal."""

    amount: int
    scale: int = 0
    wide: bool = False

    @property
    def value(self) -> Fraction:
        """The exact value."""
        return self.amount * Fraction(10) ** self.scale

    def units(self, scale: int = 0) -> int:
        """What the server computes with: whole multiples of 10^`scale`, rounded and cut off as it does."""
        shift = self.scale - scale
        if not self.wide:
            return _narrow(self.amount, shift)
        divisor = 10**-shift
        if self.amount < _INT64 - 1:
            quotient, remainder = _truncated(_wrapped(self.amount), divisor)
        else:
            quotient, remainder = divmod(self.amount, divisor)
        return _wrapped(quotient + bool(remainder))


def parse(text: str) -> Quantity | None:
    """The quantity that a text means, None when the server can't read it."""
    found = _FORMAT.fullmatch(text.strip(" \t\n\r\v\f\x85\xa0"))
    if not text.strip() or not found:
        return None
    sign, whole, fraction, suffix = found[1], found[2].lstrip("0") or "0", found[3] or "", found[4]
    amount = int(whole + fraction) * (-1 if sign == "-" else 1)
    if (bits := _BINARY.get(suffix)) is not None:
        return _binary(amount, len(whole), len(fraction), bits)
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else _exponent(suffix)
    if exponent is None:
        return None
    scale = exponent - len(fraction)
    if len(whole) + len(fraction) <= _DIGITS and scale >= _SMALLEST:
        return Quantity(amount, scale)
    return _billionths(amount * Fraction(10) ** scale)


def _exponent(suffix: str) -> int | None:
    found = _EXPONENT.fullmatch(suffix)
    if not found or not -_INT64 <= int(found[1]) < _INT64:
        return None
    return max(-_LARGEST_EXPONENT, min(int(found[1]), _LARGEST_EXPONENT))


def _binary(amount: int, whole: int, fraction: int, bits: int) -> Quantity:
    product = amount << bits
    if not fraction and 15 - whole - bits * 3 // 10 - 1 >= 0 and abs(product) < _INT64:
        return Quantity(product)
    exact = Fraction(product, 10**fraction)
    return _billionths(max(-Fraction(_INT64 - 1), min(exact, Fraction(_INT64 - 1))))


def _billionths(exact: Fraction) -> Quantity:
    """Rounded away from zero: who asks for a little gets a little."""
    scaled = abs(exact) * 10**9
    rounded = -(-scaled.numerator // scaled.denominator)
    return Quantity(-rounded if exact < 0 else rounded, -9, wide=True)


def _narrow(amount: int, shift: int) -> int:
    if shift >= 0:
        grown = amount * 10**shift
        return grown if -_INT64 < grown < _INT64 else 0
    quotient, remainder = _truncated(amount, 10**-shift)
    return quotient + (0 if not remainder else 1 if amount > 0 else -1)


def _truncated(amount: int, divisor: int) -> tuple[int, int]:
    quotient = abs(amount) // divisor
    quotient = -quotient if amount < 0 else quotient
    return quotient, amount - quotient * divisor


def _wrapped(number: int) -> int:
    return (number + _INT64) % (2 * _INT64) - _INT64
