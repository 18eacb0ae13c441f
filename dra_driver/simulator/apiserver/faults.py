"""Faults a test plants in the API server: answered in order, each for a number of matching requests.

A fault says what happens to one request: an error status, a wait, a cut connection, an answer that is lost
after the request took effect, half a body, or nulls where lists belong.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from dra_driver.simulator.apiserver.status import Refusal


@dataclass(frozen=True)
class Fault:
    """What happens to a request. Fields combine: a wait may be followed by a status.

    `hold`: wait until the event is set (the server sets it when it stops). `code`: answer with this status
    instead of doing the work. `cut`: close the connection, "before" the work, "after" it (the work counts,
    the answer is lost) or "half" way through the answer. `nulls`: keys whose empty or full lists become null.
    `answer`: the body in place of the right one, with success.
    """

    code: int = 0
    message: str = "planted by a test"
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: threading.Event | None = None
    cut: str = ""
    nulls: frozenset[str] = frozenset()
    answer: Any = None
    before: Callable[[], None] | None = None  # runs when the request is met, outside of the store's lock

    def enter(self) -> None:
        """Wait, run what a test wants to happen first, and refuse if the fault is a status."""
        if self.hold is not None:
            self.hold.wait()
        if self.before is not None:
            self.before()
        if self.code:
            raise Refusal(self.code, self.message)

    def spoil(self, body: Any) -> Any:
        """The answer with nulls for the chosen lists, at any depth; or quite another one."""
        if self.answer is not None:
            return self.answer
        if not self.nulls:
            return body
        if isinstance(body, dict):
            return {k: None if k in self.nulls and isinstance(v, list) else self.spoil(v) for k, v in body.items()}
        return [self.spoil(row) for row in body] if isinstance(body, list) else body


@dataclass
class _Planted:
    fault: Fault
    verb: str
    prefix: str
    left: int | None  # None: for ever
    met: int = 0


class Faults:
    """All planted faults; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planted: list[_Planted] = []

    def plant(self, fault: Fault, *, verb: str = "", prefix: str = "/", times: int | None = 1) -> Callable[[], int]:
        """Apply to the next `times` requests with this verb (any if empty) and path prefix.

        Verbs are the API's (get, list, watch, create, update, patch, delete, deletecollection). The result
        tells how often it was met so far. Several that match are used up in the order they were planted.
        """
        row = _Planted(fault, verb, prefix, times)
        with self._lock:
            self._planted.append(row)
        return lambda: row.met

    def clear(self) -> None:
        """Forget all that are left, and end every wait."""
        with self._lock:
            for row in self._planted:
                if row.fault.hold is not None:
                    row.fault.hold.set()
            self._planted.clear()

    def forbids(self, verb: str, path: str) -> bool:
        """Whether such a request would be a 403 now and for ever; it counts nothing."""
        with self._lock:
            planted = [row for row in self._planted if row.verb in ("", verb) and path.startswith(row.prefix)]
        return any(row.fault.code == HTTPStatus.FORBIDDEN and row.left is None for row in planted)

    def take(self, verb: str, path: str) -> Fault | None:
        """The fault of this request, if there is one; counts it."""
        with self._lock:
            for row in self._planted:
                if row.verb in ("", verb) and path.startswith(row.prefix) and row.left != 0:
                    row.met += 1
                    row.left = None if row.left is None else row.left - 1
                    return row.fault
        return None
