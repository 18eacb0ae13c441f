"""List, then watch, for ever: the one loop behind everything that follows objects.

Invariants: a watch starts at the version of the list itself, never of an item (BC-138); an expired version,
as HTTP status or as ERROR event, leads to one new list and a wait that grows (BC-133); an ERROR event never
reaches a handler; every end of a stream is followed by a wait, so a server that is down or closes streams at
once costs nothing (BC-135). Handlers may see the same state twice and have to bear it.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dra_driver.cluster.backoff import Backoff
from dra_driver.cluster.client import Api, Stream, items
from dra_driver.cluster.errors import ApiError, Unavailable, error_from_status

log = logging.getLogger(__name__)

Obj = dict[str, Any]
_HEALTHY = 10.0  # seconds that a stream has to live to count as working, if it brought nothing


def _ignore(*_: object) -> None:
    pass


@dataclass(frozen=True)
class Handlers:
    """What a watch calls, from its own thread; none of them may block.

    `on_list`: everything there is. `on_event`: ADDED, MODIFIED or DELETED and the object. `on_connect`: a
    stream is open; True if it isn't the first. `on_error`: why list or stream failed; it is tried again.
    """

    on_list: Callable[[list[Obj]], None] = _ignore
    on_event: Callable[[str, Obj], None] = _ignore
    on_connect: Callable[[bool], None] = _ignore
    on_error: Callable[[ApiError], None] = _ignore


class Watch:
    """Follows one collection in a thread of its own between `start` and `stop`.

    `server_timeout`: seconds after which the server is asked to end a stream, up to half more by jitter;
    `slack`: seconds beyond that without a byte after which the connection counts as dead.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        handlers: Handlers,
        *,
        field_selector: str = "",
        server_timeout: float = 1200.0,
        slack: float = 30.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._api = api
        self._path = path
        self._handlers = handlers
        self._selector = field_selector
        self._server_timeout = server_timeout
        self._slack = slack
        self._backoff = backoff or Backoff()
        self._stop = threading.Event()
        self._stream: Stream | None = None
        self._stream_lock = threading.Lock()
        self._connected = False  # ever
        self._version = ""  # empty: list first
        self._thread = threading.Thread(target=self._run, name=f"watch {path.rsplit('/', 1)[-1]}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """End the stream and the thread; a list under way may outlive `timeout`, without effect."""
        with self._stream_lock:
            self._stop.set()
            if self._stream:
                self._stream.close()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.is_set():
            wait_at_least = None
            try:
                self._once()
            except ApiError as error:
                wait_at_least = error.retry_after
                if not isinstance(error, Unavailable):
                    self._version = ""
                if not self._stop.is_set():
                    self._handlers.on_error(error)
            except Exception:
                log.exception("a handler of the watch on %s failed; listing again", self._path)
                self._version = ""
            self._stop.wait(self._backoff.next(wait_at_least))

    def _once(self) -> None:
        """List if needed, then follow one stream to its end."""
        if not self._version:
            listed = self._api.list(self._path, field_selector=self._selector)
            self._version = str((listed.get("metadata") or {}).get("resourceVersion") or "")
            if not self._stop.is_set():
                self._handlers.on_list(items(listed))
        seconds = self._server_timeout * random.uniform(1.0, 1.5)  # noqa: S311 jitter: a fleet out of step
        timeout = seconds + self._slack
        with self._api.watch(self._path, query=self._query(seconds), read_timeout=timeout) as stream:
            with self._stream_lock:
                self._stream = stream
                if self._stop.is_set():
                    return
            self._follow(stream)

    def _query(self, seconds: float) -> Mapping[str, str]:
        query = {"timeoutSeconds": str(max(1, int(seconds))), "allowWatchBookmarks": "true"}
        if self._version:
            query["resourceVersion"] = self._version
        if self._selector:
            query["fieldSelector"] = self._selector
        return query

    def _follow(self, stream: Stream) -> None:
        began = time.monotonic()
        self._handlers.on_connect(self._connected)
        self._connected = True
        for event in stream:
            if self._stop.is_set():
                return
            self._take(event)
            if event.get("type") != "BOOKMARK":  # a server may send one and close at once
                self._backoff.reset()
        if time.monotonic() - began >= _HEALTHY:
            self._backoff.reset()

    def _take(self, event: Obj) -> None:
        kind, obj = event.get("type"), event.get("object") or {}
        if kind == "ERROR":
            raise error_from_status("watch", self._path, obj)
        version = (obj.get("metadata") or {}).get("resourceVersion")
        if kind in ("ADDED", "MODIFIED", "DELETED"):
            self._handlers.on_event(kind, obj)
        if version:  # after the handler: a failed one sees the object again
            self._version = str(version)
