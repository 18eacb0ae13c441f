"""What this API server makes of the slices it is sent, remembered by name.

A server without a field's gate, or older than the field, drops it with a success. Lost counters are fatal for the
layout; anything else is told, and what came of it counts as the wanted content from then on, or it would be written
again and again.
"""

from typing import Any

from dra_driver.cluster.compare import differences, same
from dra_driver.cluster.plan import lacks_counters, name_of
from dra_driver.errors import CoresliceError

Obj = dict[str, Any]


class CountersLostError(CoresliceError):
    """A write came back without its counters."""


class Answers:
    """Not thread-safe: one owner."""

    def __init__(self) -> None:
        self._accepted: dict[str, tuple[Obj, Obj]] = {}  # name → spec sent, spec the server made of it
        self._left_out: dict[str, tuple[str, ...]] = {}  # name → what it made go away

    @property
    def left_out(self) -> tuple[str, ...]:
        """Paths of all fields that were dropped."""
        return tuple(path for name in sorted(self._left_out) for path in self._left_out[name])

    def compare(self, sent: Obj, got: Obj) -> None:
        """Remember the answer to a write.

        Raises:
            CountersLostError: it lacks counters.
        """
        lost = tuple(differences(sent.get("spec"), got.get("spec")))
        if lacks_counters(sent, got):
            raise CountersLostError(
                f"slice {name_of(sent)} came back without the counters it was sent with ({', '.join(lost[:3])})"
            )
        self._accepted[name_of(sent)] = (sent["spec"], got.get("spec") or {})
        self._left_out[name_of(sent)] = lost

    def same(self, wanted: Obj, stored: Obj) -> bool:
        """Equal, or what this server made of the same content before."""
        want, have = wanted["spec"], stored.get("spec") or {}
        if same(want, have):
            return True
        sent, got = self._accepted.get(name_of(wanted), ({}, {}))
        return same(want, sent) and same(have, got)
