"""`repair` with a memory: judging every value of a large node takes tens of milliseconds, comparing far less.

Invariant: the result is that of `repair` for the same arguments, and shared: read-only.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dra_driver.inventory.lint.repair import Note, repair

Wire = Mapping[str, Any]
Repaired = tuple[list[dict[str, Any]], list[Note]]

_KEPT = 4  # the slices with and without what is held, each judged with and without it


class Repairer:
    """Repairs slices that are mostly those of the last times. `common` as for `repair`."""

    def __init__(self, common: Collection[str]) -> None:
        self._common = frozenset(common)
        self._known: list[tuple[object, Repaired]] = []

    def repair(
        self, slices: Sequence[Wire], minor: int, *, features: Mapping[str, bool], held: Collection[str] = ()
    ) -> Repaired:
        """As `repair`. What is held makes a difference only where there is a fault."""
        repaired, notes = self._judged(slices, minor, features, frozenset())
        return self._judged(slices, minor, features, frozenset(held)) if notes and held else (repaired, notes)

    def _judged(
        self, slices: Sequence[Wire], minor: int, features: Mapping[str, bool], held: frozenset[str]
    ) -> Repaired:
        asked = (list(slices), minor, dict(features), held)
        for known, found in self._known:
            if known == asked:
                return found
        found = repair(slices, minor, features=features, common=self._common, held=held)
        self._known = [(asked, found), *self._known[: _KEPT - 1]]
        return found
