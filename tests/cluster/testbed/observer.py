"""An observer of ResourceSlices: every state that anybody could have seen, in order.

A list, and in a thread a watch from the version of that list on, so that whatever is
written after the constructor has returned is seen.
"""

import http.client
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from testbed.api import Api, ApiStatusError, Object, path_of
from testbed.waiting import INTERVAL_SECONDS, until


@dataclass(frozen=True)
class Seen:
    """One change: ADDED, MODIFIED or DELETED, the object, and when it was seen (monotonic seconds)."""

    change: str
    item: Object
    at: float = field(default_factory=time.monotonic)

    @property
    def name(self) -> str:
        """Name of the slice."""
        return str(self.item["metadata"]["name"])


class SliceObserver:
    """Records changes of slices of one driver until ``stop``."""

    def __init__(self, api: Api, driver: str) -> None:
        self._api, self._driver = api, driver
        self._seen: list[Seen] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._error: Exception | None = None
        listed = api.request("GET", path_of("resourceslices", ""))
        for item in listed["items"]:
            self._note("ADDED", item)
        self._version = listed["metadata"]["resourceVersion"]
        threading.Thread(target=self._run, daemon=True).start()

    def _note(self, change: str, item: Object) -> None:
        if item.get("spec", {}).get("driver") == self._driver:
            with self._lock:
                self._seen.append(Seen(change, item))

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._follow()
            except (OSError, http.client.HTTPException):
                self._ended.wait(INTERVAL_SECONDS)  # the API server is away: on from the same version
            except Exception as error:  # noqa: BLE001 -- history() raises it: who missed something is no witness
                self._error = error
                return

    def _follow(self) -> None:
        """One watch to its end."""
        for event in self._api.watch("resourceslices", self._version):
            if event["type"] == "ERROR":
                code, text = event["object"].get("code", 0), str(event["object"])
                raise ApiStatusError(code, "WATCH", "resourceslices", text)
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._note(event["type"], event["object"])

    def history(self) -> list[Seen]:
        """Everything seen so far. Raises what ended the watch, if it ended."""
        if self._error:
            raise self._error
        with self._lock:
            return list(self._seen)

    def states(self) -> list[dict[str, Object]]:
        """The set of slices, by name, after each change."""
        states: list[dict[str, Object]] = []
        current: dict[str, Object] = {}
        for seen in self.history():
            current = dict(current)
            if seen.change == "DELETED":
                current.pop(seen.name, None)
            else:
                current[seen.name] = seen.item
            states.append(current)
        return states

    def wait(self, condition: Callable[[list[Seen]], bool], *, what: str, timeout: float = 30.0) -> list[Seen]:
        """Wait until the history satisfies a condition; the history."""
        until(lambda: condition(self.history()), what=what, timeout=timeout, seen=self.history)
        return self.history()

    def stop(self) -> None:
        """No more is recorded; the thread ends with the process or the server."""
        self._ended.set()
