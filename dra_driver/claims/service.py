"""Prepare and Unprepare as the kubelet calls them: concurrently, repeatedly, late, and in any order.

What waiting may cure (the API is away, a device is still held) is tried again inside the call, outside of all locks,
since each error costs the user 60 to 90 seconds; then the answer says what was waited for. A call that was given up, or
whose claim was unprepared since it arrived, leaves nothing behind: a late journal would hold the device for good.
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
    """Implements `kubelet.types.ClaimService`.

    `wait` bounds the retries inside one call, in seconds; `waiting` how many calls may wait at once. That has to be
    less than the workers that serve calls: what is waited for is an Unprepare, which needs one.
    """

    def __init__(
        self,
        *,
        planning: Planning,
        ledger: Ledger,
        hardware: Hardware,
        hooks: Hooks,
        wait: float = 20.0,
        waiting: int = 128,
        visible_cores_on_chips: bool = False,
    ) -> None:
        self._planning = planning
        self._ledger = ledger
        self._hardware = hardware
        self._hooks = hooks
        self._wait = wait
        self._visible_cores_on_chips = visible_cores_on_chips
        self._releases = _Releases()
        self._may_wait = threading.Semaphore(waiting)

    def prepare(self, claims: Sequence[ClaimRef], call: Call) -> Mapping[str, Prepared | Failed]:
        """Answer every claim of the call by UID."""
        asked = _Asked(tuple(claims), call, self._releases.begun(), time.monotonic() + self._bound(call))
        released = self._releases.ended()
        results = self._attempt(asked)
        if _worth_waiting(results) and self._may_wait.acquire(blocking=False):
            try:
                results = self._attempt_again(asked, results, released)
            finally:
                self._may_wait.release()
        return {ref.uid: self._answer(ref, results[ref.uid]) for ref in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Failed | None]:
        """Undo every claim from its UID alone; one that was never prepared is a success."""
        answers: dict[str, Failed | None] = {}
        for ref in claims:
            self._releases.begin(ref.uid)  # before the lock: a Prepare that waits for it must see this
            try:
                if self._ledger.release(ref.uid):
                    self._hooks.changed()
                answers[ref.uid] = None
            except Refusal as refusal:
                answers[ref.uid] = Failed(f"{refusal.reason.code}: {refusal.detail}")
        self._releases.end()
        return answers

    def _attempt_again(self, asked: "_Asked", results: Mapping[str, Result], released: int) -> Mapping[str, Result]:
        """Until waiting helps no more: nothing is refused, the time is over, or nobody waits for the answer."""
        for pause in _pauses():
            left = asked.deadline - time.monotonic()
            if left <= 0 or not asked.call.is_active() or not _worth_waiting(results):
                break
            self._releases.wait(released, min(pause, left))
            released = self._releases.ended()
            results = self._attempt(asked)
        return results

    def _attempt(self, asked: "_Asked") -> Mapping[str, Result]:
        try:
            records = self._ledger.records()  # first: the LNC in force is read with them
            planner = Planner(self._hardware.snapshot(), self._visible_cores_on_chips)
            outcomes = self._planning.plan(asked.claims, planner, records)
        except Refusal as refusal:  # no record can be read
            return {ref.uid: refusal for ref in asked.claims}
        results: dict[str, Result] = {uid: item for uid, item in outcomes.items() if isinstance(item, Refusal)}
        for unit in units(outcomes):
            results.update(self._commit(unit, asked))
        return results

    def _commit(self, unit: Sequence[Planned], asked: "_Asked") -> Mapping[str, Result]:
        claims = {planned.claim.ref.uid: planned.claim for planned in unit}
        try:
            done = self._ledger.commit(unit, lambda ref: self._still_wanted(ref, asked))
        except Refusal as refusal:
            return {uid: refusal.about(claim.pods) for uid, claim in claims.items()}
        if done:
            self._hooks.changed()
        return {uid: done.get(uid, Prepared()) for uid in claims}

    def _still_wanted(self, ref: ClaimRef, asked: "_Asked") -> None:
        if self._releases.begun_since(asked.arrived, ref.uid):
            raise Refusal(Reason.NO_LONGER_WANTED, f"claim {ref} was unprepared while its Prepare ran")
        if not asked.call.is_active():
            raise Refusal(Reason.NO_LONGER_WANTED, f"claim {ref}: the kubelet has given up this call")

    def _bound(self, call: Call) -> float:
        remaining = call.time_remaining()
        return self._wait if remaining is None else max(0.0, min(self._wait, remaining - _ANSWER_RESERVE))

    def _answer(self, ref: ClaimRef, result: Result) -> Prepared | Failed:
        if isinstance(result, Prepared):
            return result
        log.warning("claim refused: %s", result, extra={"claim_uid": ref.uid, "reason": result.reason.code})
        if result.reason is not Reason.NO_LONGER_WANTED:
            self._hooks.refused(ref, result)
        return Failed(str(result))


@dataclass(frozen=True)
class _Asked:
    """One call: its claims, how many Unprepares had begun when it arrived, and until when (monotonic) it may wait."""

    claims: tuple[ClaimRef, ...]
    call: Call
    arrived: int
    deadline: float


class _Releases:
    """Which claims were unprepared, in order, so that a Prepare that came before can tell."""

    _KEPT = 4096  # more than a node unprepares within one call's life

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._begun = 0
        self._ended = 0
        self._last: dict[str, int] = {}

    def begin(self, uid: str) -> None:
        """An Unprepare of that claim will take the lock."""
        with self._condition:
            self._begun += 1
            self._last.pop(uid, None)
            self._last[uid] = self._begun
            if len(self._last) > self._KEPT:
                del self._last[next(iter(self._last))]

    def end(self) -> None:
        """What was begun is undone, or refused: look again."""
        with self._condition:
            self._ended += 1
            self._condition.notify_all()

    def begun(self) -> int:
        with self._condition:
            return self._begun

    def begun_since(self, mark: int, uid: str) -> bool:
        with self._condition:
            return self._last.get(uid, 0) > mark

    def ended(self) -> int:
        with self._condition:
            return self._ended

    def wait(self, seen: int, seconds: float) -> None:
        """Until another Unprepare ended than was seen, or the time is over (another instance may serve it)."""
        with self._condition:
            self._condition.wait_for(lambda: self._ended != seen, seconds)


def _pauses() -> Iterator[float]:
    yield from _PAUSES
    while True:
        yield _PAUSES[-1]


def _worth_waiting(results: Mapping[str, Result]) -> bool:
    """Only if every refusal may pass: one that stays fails the whole call anyway."""
    reasons = [result.reason for result in results.values() if isinstance(result, Refusal)]
    return bool(reasons) and all(reason.retryable for reason in reasons) and Reason.NO_LONGER_WANTED not in reasons
