"""Events on API objects: a queue and a thread, so that nobody who reports ever waits.

Invariants: reporting never blocks and never raises; the queue is bounded (the newest is dropped when it is
full); the same report within ten minutes is one Event whose count grows, written at most once a minute.
Failures: what gets no answer waits until the server is back; what is refused is logged and dropped, since an Event
is an aid, not the work.
"""

import logging
import queue
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from dra_driver.cluster.backoff import Backoff
from dra_driver.cluster.client import Api
from dra_driver.cluster.errors import ApiError, Unavailable

log = logging.getLogger(__name__)

Obj = dict[str, Any]
_REASON = re.compile(r"([A-Z][a-z0-9]*)+")
_MESSAGE_LIMIT = 1024  # characters, the API's
_REPEAT_WITHIN = 600.0  # seconds
_REWRITE_AFTER = 60.0  # seconds between writes of a growing count
_REMEMBERED = 256  # reports


@dataclass(frozen=True)
class _Report:
    involved: tuple[tuple[str, str], ...]
    type: str
    reason: str
    message: str


@dataclass
class _Sent:
    path: str
    first: float
    written: float
    count: int = 1


class EventRecorder:
    """Records core/v1 Events. `component` is the reporting controller, `host` the node it runs on."""

    def __init__(self, api: Api, *, component: str, host: str, queue_size: int = 128) -> None:
        self._api = api
        self._component = component
        self._host = host
        self._queue: queue.Queue[_Report | None] = queue.Queue(queue_size)
        self._sent: OrderedDict[_Report, _Sent] = OrderedDict()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()

    def normal(self, involved: Mapping[str, str], reason: str, message: str) -> None:
        """Report something good. `involved`: apiVersion, kind, name, and namespace and uid if there are any."""
        self._put("Normal", involved, reason, message)

    def warning(self, involved: Mapping[str, str], reason: str, message: str) -> None:
        """Report a fault. `reason` is CamelCase and stable, the message says what to do."""
        self._put("Warning", involved, reason, message)

    def stop(self, timeout: float = 2.0) -> None:
        """Send what is queued, as far as `timeout` seconds allow."""
        with self._lock:
            self._ending.set()
            thread = self._thread
        if thread is None:
            return
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return
        thread.join(timeout)

    def _put(self, kind: str, involved: Mapping[str, str], reason: str, message: str) -> None:
        if not _REASON.fullmatch(reason):
            log.error("not a CamelCase reason: %r", reason)
        report = _Report(tuple(sorted(involved.items())), kind, reason, message[:_MESSAGE_LIMIT])
        with self._lock:
            if self._ending.is_set():
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="events", daemon=True)
                self._thread.start()
        try:
            self._queue.put_nowait(report)
        except queue.Full:
            log.warning("too many events waiting, dropped: %s %s", reason, message)

    def _run(self) -> None:
        while (report := self._queue.get()) is not None:
            try:
                self._deliver(report)
            except ApiError as error:
                log.warning("event %s not recorded: %s", report.reason, error)
            except Exception:
                log.exception("event %s not recorded", report.reason)

    def _deliver(self, report: _Report) -> None:
        """Send it as soon as anybody answers: what goes wrong while a node starts is wanted most."""
        backoff = Backoff(first=0.5, limit=30.0)
        while True:
            try:
                self._send(report)
            except Unavailable:
                if self._ending.wait(backoff.next()):
                    raise
            else:
                return

    def _send(self, report: _Report) -> None:
        now = time.monotonic()
        sent = self._sent.get(report)
        if sent is None or now - sent.first > _REPEAT_WITHIN:
            created = self._api.create(_events_path(report), self._event(report))
            path = f"{_events_path(report)}/{quote(created['metadata']['name'], safe='')}"
            self._sent[report] = _Sent(path, first=now, written=now)
            self._sent.move_to_end(report)
            if len(self._sent) > _REMEMBERED:
                self._sent.popitem(last=False)
            return
        sent.count += 1
        if now - sent.written > _REWRITE_AFTER:
            sent.written = now
            self._api.patch(sent.path, {"count": sent.count, "lastTimestamp": _timestamp()})

    def _event(self, report: _Report) -> Obj:
        involved, now = dict(report.involved), _timestamp()
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": involved["name"][:200] + ".", "namespace": _namespace(report)},
            "involvedObject": involved,
            "type": report.type,
            "reason": report.reason,
            "message": report.message,
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def _namespace(report: _Report) -> str:
    """An Event on a cluster-scoped object lives in `default`."""
    return dict(report.involved).get("namespace") or "default"


def _events_path(report: _Report) -> str:
    return f"/api/v1/namespaces/{quote(_namespace(report), safe='')}/events"


def _timestamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
