"""The one publisher of this node's ResourceSlices: it makes the API hold what `build` says, and keeps it so.

Invariants: nothing is written while the API holds what is wanted; nothing is created while `may_publish` says
no (slices without a reachable driver bind pods to a dead end, BC-028); overlapping devices never stand in the
API without their counters (see `plan`), for which counters are tried before they are relied on and every
write is compared with its answer; what was deleted comes back within a second.
Failures: none leaves the thread; each is in `state` with its text and is tried again with back-off.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from dra_driver.cluster import node as node_object
from dra_driver.cluster.answers import Answers, CountersLostError
from dra_driver.cluster.backoff import Backoff
from dra_driver.cluster.client import Api, items
from dra_driver.cluster.errors import AlreadyExists, ApiError, Conflict, NotFound
from dra_driver.cluster.plan import Plan, Write, name_of, plan, relies_on_counters, withdrawal
from dra_driver.cluster.server import SLICES, Server, Verdict, examine
from dra_driver.cluster.state import Phase, PublishState
from dra_driver.cluster.watch import Handlers, Watch
from dra_driver.errors import CoresliceError

__all__ = ["Owner", "Phase", "PublishState", "Server", "SlicePublisher"]

log = logging.getLogger(__name__)

Obj = dict[str, Any]
_PASSES = 5  # of read, plan and write in a row before it counts as not settling
_GATE_POLL = 1.0  # seconds between looks at `may_publish` while it says no; local, and `poke` is faster
_DEBOUNCE = 0.03  # seconds: a wipe deletes slice by slice
_LEFT_OUT = 10  # paths that are named
_LONGEST_ABSENCE = 0.6  # seconds: a kubelet in a crash loop wipes again and again, each time for less than a second
_BUSY = 15.0  # seconds: writes closer together than this are spaced out, or two writers would race for ever


@dataclass(frozen=True)
class Owner:
    """The Node object that the slices go away with."""

    name: str
    uid: str


Build = Callable[[Server, int, Owner], Sequence[Obj]]  # server, generation, owner → slices
Withhold = Callable[[Obj], str]  # the Node object as just read → why nothing may be published, or empty


class _ClosedError(CoresliceError):
    """Nothing may be published now; the text says what it waits for.

    `local`: looking again costs the API nothing.
    """

    def __init__(self, message: str, *, local: bool = True) -> None:
        super().__init__(message)
        self.local = local


class SlicePublisher:
    """Publishes from a thread of its own, between `start` and `stop`; slices stay when it stops.

    `build` gives complete v1 ResourceSlices of one pool with fixed names; equal arguments and an equal node
    give equal slices. `may_publish` is asked before each write. `withhold` is asked before each build: while it gives
    a reason, all slices are withdrawn. Those of held devices too: with nothing listed no counter can be drawn on, and
    allocated claims keep what they have. `on_state` is called on each change, `on_publish` after each generation that
    was written (True) and each attempt that failed, from the publisher's threads: they must not block. Call `poke`
    when one of them may answer otherwise than before.
    """

    def __init__(  # noqa: PLR0913 -- by keyword
        self,
        api: Api,
        *,
        driver: str,
        node_name: str,
        build: Build,
        may_publish: Callable[[], bool] = lambda: True,
        withhold: Withhold = lambda _: "",
        on_state: Callable[[PublishState], None] = lambda _: None,
        on_publish: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._api = api
        self._driver = driver
        self._node = node_name
        self._build = build
        self._may_publish = may_publish
        self._withhold = withhold
        self._on_state = on_state
        self._on_publish = on_publish
        self._state = PublishState()
        self._state_lock = threading.Lock()
        self._verdict: Verdict | None = None
        self._untried = threading.Event()  # the server has to be examined (again)
        self._untried.set()
        self._generation: int | None = None
        self._known: dict[str, tuple[str, str]] = {}  # name → UID and version as last seen here
        self._answers = Answers()
        self._backoff = Backoff()
        self._spacing = Backoff(first=0.05)
        self._last_write = float("-inf")
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._started = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="slice publisher", daemon=True)
        self._watch = Watch(
            api,
            SLICES,
            Handlers(self._on_list, self._on_event, self._on_connect, self._on_watch_error),
            field_selector=self._selector,
        )

    @property
    def state(self) -> PublishState:
        """The newest state."""
        with self._state_lock:
            return self._state

    def start(self) -> None:
        """Begin; further calls do nothing."""
        if self._started.acquire(blocking=False) and not self._stop.is_set():
            self._thread.start()
            self._watch.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End both threads. A request under way may outlive `timeout`; nothing follows it."""
        self._stop.set()
        self._wake.set()
        self._watch.stop(timeout)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def poke(self) -> None:
        """Look again now: devices, the gate or the slices may have changed. Returns at once."""
        self._wake.set()

    # the thread

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            delay = self._attempt()
            if self._stop.is_set():  # perhaps its wake-up was cleared above
                return
            if delay is None:
                self._wake.wait()
                self._stop.wait(_DEBOUNCE)
            else:
                self._stop.wait(min(delay, _DEBOUNCE))
                self._wake.wait(delay)

    def _attempt(self) -> float | None:
        """Reconcile once; returns seconds until the next try, None when settled."""
        try:
            self._reconcile()
        except _ClosedError as closed:
            if not self._stop.is_set():
                self._report(phase=Phase.BLOCKED, reason=str(closed))
            return _GATE_POLL if closed.local else self._backoff.next()
        except ApiError as error:
            return self._failed(str(error), error.retry_after)
        except CoresliceError as error:
            return self._failed(str(error))
        except Exception as error:
            log.exception("publishing failed unexpectedly")
            return self._failed(f"unexpected {type(error).__name__}: {error}")
        self._backoff.reset()
        return None

    def _failed(self, reason: str, at_least: float | None = None) -> float:
        self._report(phase=Phase.FAILED, reason=reason)
        self._on_publish(False)
        return self._backoff.next(at_least)

    def _reconcile(self) -> None:
        """Until a read shows that there is nothing left to do."""
        for _ in range(_PASSES):
            self._check_gate()
            node = self._read_node()
            why = self._withhold(node)
            step = self._to_withhold(why) if why else self._to_publish(node)
            if step is None:
                return
            try:
                step()
            except (Conflict, NotFound) as error:  # somebody was faster, such as a kubelet that wipes
                log.info("reading the slices again", extra={"why": str(error)})
        raise CoresliceError("the slices don't settle: something else changes them too")

    def _to_publish(self, node: Obj) -> Callable[[], None] | None:
        """The next step towards what is wanted; None when the API holds it."""
        owner, verdict = Owner(self._node, str(node["metadata"]["uid"])), self._examined()
        todo = self._plan(verdict.server, owner)
        if todo.settled:
            self._settled(todo, verdict)
            return None
        return partial(self._publish, todo, verdict)

    def _publish(self, todo: Plan, verdict: Verdict) -> None:
        if todo.first:
            self._withdrawing(verdict)
        else:
            self._space_out(todo)
        try:
            self._carry_out(todo)
        except CountersLostError as lost:
            self._verdict = Verdict(replace(verdict.server, counters=False), str(lost))
            self._withdrawing(self._verdict)
            self._carry_out(withdrawal(self._list()))
            return
        if todo.writes:
            self._on_publish(True)

    def _to_withhold(self, why: str) -> Callable[[], None] | None:
        """The next step towards no slices at all; None when there are none."""
        stored = self._list()
        if stored:
            return partial(self._withdraw, why, stored)
        unknown = {"generation": None, "slices": 0, "counters": None, "why_no_counters": "", "left_out": ()}
        self._report(phase=Phase.WITHHELD, reason=why, **unknown)
        return None

    def _withdraw(self, why: str, stored: Sequence[Obj]) -> None:
        self._report(phase=Phase.WITHDRAWN, reason=why)
        self._carry_out(withdrawal(stored))

    def _check_gate(self) -> None:
        if self._stop.is_set():
            raise _ClosedError("stopping")
        if not self._may_publish():
            raise _ClosedError("the kubelet hasn't confirmed this driver's registration")

    def _read_node(self) -> Obj:
        try:
            node = self._api.get(node_object.path(self._node))
        except NotFound as error:
            raise _ClosedError(f"no Node object named {self._node!r} yet ({error})", local=False) from error
        if not _identity(node)[0]:
            raise CoresliceError(
                f"get node {self._node}: the answer is a success without the Node's UID; does something else than an "
                "API server answer at this address, such as a proxy?"
            )
        return node

    def _examined(self) -> Verdict:
        if self._verdict is None or self._untried.is_set():
            self._untried.clear()
            try:
                self._verdict = examine(self._api, driver=self._driver, node_name=self._node)
            except BaseException:
                self._untried.set()
                raise
        return self._verdict

    def _withdrawing(self, verdict: Verdict) -> None:
        """Tell before it happens. What isn't safe to leave goes at once, before anything else is done."""
        if verdict.server.counters:
            self._report(phase=Phase.WITHDRAWN, reason="slices that can't stay beside the new ones are deleted")
            return
        reason = "shared counters don't hold on this API server"
        self._report(phase=Phase.WITHDRAWN, reason=reason, counters=False, why_no_counters=verdict.why_not)

    def _plan(self, server: Server, owner: Owner) -> Plan:
        stored = self._list()
        try:
            return plan(
                lambda generation: self._build(server, generation, owner),
                stored,
                same=self._answers.same,
                last_generation=self._generation,
            )
        except Exception:
            if not server.counters:  # what relies on them must not wait for a builder that works again
                self._carry_out(withdrawal([row for row in stored if relies_on_counters(row)]))
            raise

    def _settled(self, done: Plan, verdict: Verdict) -> None:
        self._generation = done.generation
        self._report(
            phase=Phase.PUBLISHED,
            reason=f"generation {done.generation} in {done.slices} slices" if done.slices else "nothing to publish",
            generation=done.generation if done.slices else None,
            slices=done.slices,
            counters=verdict.server.counters,
            why_no_counters=verdict.why_not,
            left_out=self._answers.left_out[:_LEFT_OUT],
        )

    def _space_out(self, todo: Plan) -> None:
        """The first change after a quiet time is made at once, those after it with growing distance."""
        if time.monotonic() - self._last_write > _BUSY:
            self._spacing.reset()
        else:
            wait = self._spacing.next()
            self._stop.wait(min(wait, _LONGEST_ABSENCE) if todo.restores else wait)
        self._last_write = time.monotonic()

    # the API

    def _list(self) -> list[Obj]:
        listed = items(self._api.list(SLICES, field_selector=self._selector))
        own = [row for row in listed if self._is_own(row)]
        self._known = {name_of(row): _identity(row) for row in own}
        return own

    @property
    def _selector(self) -> str:
        return f"spec.driver={self._driver},spec.nodeName={self._node}"

    def _is_own(self, obj: Obj) -> bool:
        spec = obj.get("spec") or {}
        return spec.get("driver") == self._driver and spec.get("nodeName") == self._node

    def _carry_out(self, todo: Plan) -> None:
        for obj in todo.first:
            self._delete(obj)
        for write in todo.writes:
            self._check_gate()
            self._answers.compare(write.wanted, self._put(write))
        for obj in todo.last:
            self._delete(obj)
        if todo.writes:
            self._generation = todo.generation

    def _delete(self, obj: Obj) -> None:
        uid, version = _identity(obj)
        self._known.pop(name_of(obj), None)
        try:
            self._api.delete(f"{SLICES}/{name_of(obj)}", uid=uid, resource_version=version)
        except NotFound:
            return
        log.info("slice deleted", extra={"slice": name_of(obj)})

    def _put(self, write: Write) -> Obj:
        name, wanted = name_of(write.wanted), write.wanted
        if write.stored is None:
            got = self._create(wanted)
        else:
            version = {"resourceVersion": _identity(write.stored)[1]}
            got = self._api.replace(f"{SLICES}/{name}", {**wanted, "metadata": {**wanted["metadata"], **version}})
        self._known[name] = _identity(got)
        return got

    def _create(self, wanted: Obj) -> Obj:
        name = name_of(wanted)
        try:
            return self._api.create(SLICES, wanted)
        except AlreadyExists as error:
            held = items(self._api.list(SLICES, field_selector=f"metadata.name={name}"))  # there is no right to get
            if not held or self._is_own(held[0]):
                raise Conflict(f"slice {name} came or went meanwhile; reading again", status=409) from error
            spec = held[0].get("spec") or {}
            raise AlreadyExists(
                f"the name {name} is taken by a slice of driver {spec.get('driver')!r} on node "
                f"{spec.get('nodeName')!r}: delete that slice if nothing publishes it any more",
                status=409,
            ) from error

    # the watch's thread

    def _on_list(self, rows: list[Obj]) -> None:
        if {name_of(row): _identity(row) for row in rows if self._is_own(row)} != self._known:
            self._wake.set()

    def _on_event(self, kind: str, obj: Obj) -> None:
        known = self._known.get(name_of(obj))
        news = known is not None and known[0] == _identity(obj)[0] if kind == "DELETED" else known != _identity(obj)
        if news:
            self._wake.set()

    def _on_connect(self, again: bool) -> None:  # noqa: FBT001 the handler's signature
        self._report(watch="")
        if again:  # perhaps to another server, of another version or with other gates
            self._untried.set()
            self._wake.set()

    def _on_watch_error(self, error: ApiError) -> None:
        self._report(watch=str(error))

    def _report(self, **changes: Any) -> None:
        with self._state_lock:
            before, self._state = self._state, replace(self._state, **changes)
            now = self._state
        if now == before:
            return
        level = logging.WARNING if now.phase in (Phase.FAILED, Phase.WITHDRAWN) or now.watch else logging.INFO
        log.log(level, "slices %s", now.text)
        self._on_state(now)


def _identity(obj: Mapping[str, Any]) -> tuple[str, str]:
    meta = obj.get("metadata")
    meta = meta if isinstance(meta, Mapping) else {}
    return str(meta.get("uid") or ""), str(meta.get("resourceVersion") or "")
