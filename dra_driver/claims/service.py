"""Prepare and Unprepare as the kubelet calls them: concurrently, repeatedly, late, and in any order.

What waiting may cure (the API is away, a device is still held) is tried again inside the call, outside of all locks,
since each error costs the user 60 to 90 seconds; then the answer says what was waited for. A call that was given up, or whose
claim was unprepared since it arrived, leaves nothing behind: a late journal would hold the device for good.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dra_driver.claims.hardware import Hardware
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.planning import Planning, units
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.sharing import Planned, Planner
from dra_driver.kubelet.types import Call, ClaimRef, Failed, Prepared

log = logging.getLogger(__name__)

_ANSWER_RESERVE = 5.0  # seconds before the caller's deadline that are left for the answer
_PAUSES = (0.1, 0.2, 0.5, 1.0)  # between tries; a release wakes a waiting call at once
Result = Prepared | Refusal


@dataclass(frozen=True)
class Hooks:
    """Whom to tell: a claim was refused; what records hold has changed."""

    refused: Callable[[ClaimRef, Refusal], None]
    changed: Callable[[], None]


class ClaimService:
    """Implements `kubelet.types.ClaimService`. `wait` bounds the retries inside one call, in seconds."""

    def __init__(
        self,
        *,
        planning: Planning,
        ledger: Ledger,
        hardware: Hardware,
        hooks: Hooks,
        wait: float = 20.0,
        visible_cores_on_chips: bool = False,
    ) -> None:
        self._planning = planning
        self._ledger = ledger
        self._hardware = hardware
        self._hooks = hooks
        self._wait = wait
        self._visible_cores_on_chips = visible_cores_on_chips
        self._releases = _Releases()

    def prepare(self, claims: Sequence[ClaimRef], call: Call) -> Mapping[str, Prepared | Failed]:
        """Answer every claim of the call by UID."""
        arrived = self._releases.count()
        deadline = time.monotonic() + self._bound(call)
        for pause in _pauses():
            results = self._attempt(claims, arrived, call)
            left = deadline - time.monotonic()
            if not _worth_waiting(results) or left <= 0 or not call.is_active():
                break
            self._releases.wait(min(pause, left))
        return {ref.uid: self._answer(ref, results[ref.uid]) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Failed | None]:
        """Undo every claim from its UID alone; one that was never prepared is a success."""
        answers: dict[str, Failed | None] = {}
        for ref in claims:
            try:
                self._releases.add(ref.uid)  # before the lock: a Prepare that waits for it must see this
                if self._ledger.release(ref.uid):
                    self._hooks.changed()
                answers[ref.uid] = None
            except Refusal as refusal:
                answers[ref.uid] = Failed(str(refusal))
        self._releases.wake()
        return answers

    def _attempt(self, claims: Sequence[ClaimRef], arrived: int, call: Call) -> dict[str, Result]:
        planner = Planner(self._hardware.machine(), self._hardware.devices(), self._visible_cores_on_chips)
        outcomes = self._planning.plan(claims, planner, self._ledger.user_made())
        results: dict[str, Result] = {uid: item for uid, item in outcomes.items() if isinstance(item, Refusal)}
        for unit in units(outcomes):
            results.update(self._commit(unit, arrived, call))
        return results

    def _commit(self, unit: Sequence[Planned], arrived: int, call: Call) -> Mapping[str, Result]:
        uids = [planned.claim.ref.uid for planned in unit]
        try:
            done = self._ledger.commit(unit, lambda ref: self._still_wanted(ref, arrived, call))
        except Refusal as refusal:
            return dict.fromkeys(uids, refusal)
        if done:
            self._hooks.changed()
        return {uid: done.get(uid, Prepared()) for uid in uids}

    def _still_wanted(self, ref: ClaimRef, arrived: int, call: Call) -> None:
        if self._releases.since(arrived, ref.uid):
            raise Refusal(Reason.NO_LONGER_WANTED, f"claim {ref} was unprepared while its Prepare ran")
        if not call.is_active():
            raise Refusal(Reason.NO_LONGER_WANTED, f"claim {ref}: the kubelet has given up this call")

    def _bound(self, call: Call) -> float:
        remaining = call.time_remaining()
        return self._wait if remaining is None else max(0.0, min(self._wait, remaining - _ANSWER_RESERVE))

    def _answer(self, ref: ClaimRef, result: Result) -> Prepared | Failed:
        if isinstance(result, Prepared):
            return result
        log.warning("claim refused: %s", result, extra={"claim_uid": ref.uid, "reason": result.reason.code})
        self._hooks.refused(ref, result)
        return Failed(str(result))


class _Releases:
    """Which claims were unprepared, in order, so that a Prepare that came before can tell."""

    _KEPT = 4096  # more than a node unprepares within one call's life

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0
        self._last: dict[str, int] = {}

    def count(self) -> int:
        with self._condition:
            return self._count

    def add(self, uid: str) -> None:
        with self._condition:
            self._count += 1
            self._last.pop(uid, None)
            self._last[uid] = self._count
            if len(self._last) > self._KEPT:
                del self._last[next(iter(self._last))]

    def since(self, mark: int, uid: str) -> bool:
        with self._condition:
            return self._last.get(uid, 0) > mark

    def wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def wait(self, seconds: float) -> None:
        """Until something was unprepared, or the time is over (another instance may have done it)."""
        with self._condition:
            self._condition.wait(seconds)


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _worth_waiting(results: Mapping[str, Result]) -> bool:
    refusals = [result for result in results.values() if isinstance(result, Refusal)]
    return any(refusal.reason.retryable for refusal in refusals) and not any(
        refusal.reason is Reason.NO_LONGER_WANTED for refusal in refusals
    )
