"""Many API requests at once over kept-alive connections, one a thread."""

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from testbed.api import KINDS, ApiStatusError, path_of

Wire = dict[str, Any]
T = TypeVar("T")
THREADS = 8


class Client:
    """Requests as an administrator. Threads share nothing but the address."""

    def __init__(self, *, host: str, port: int, token: str, ca: str) -> None:
        self._host, self._port = host, port
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cadata=ca)
        self._mine = threading.local()
        self._opened: list[http.client.HTTPSConnection] = []
        self._pool = ThreadPoolExecutor(THREADS)

    def request(self, method: str, path: str, body: Wire | None = None, *, kind: str = "application/json") -> Wire:
        """One request; ApiStatusError unless 2xx."""
        headers = self._headers | {"Content-Type": kind}
        self._connection().request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = self._connection().getresponse()
        found: Wire = json.loads(answer.read() or b"{}")
        if answer.status // 100 != 2:
            raise ApiStatusError(answer.status, method, path, found.get("message", ""))
        return found

    def each(self, action: Callable[[T], object], items: Iterable[T]) -> None:
        """The same for many, side by side; the first error passes through."""
        for _ in self._pool.map(action, items):
            pass

    def create(self, items: Iterable[Wire]) -> None:
        """Create objects of kinds that the test bed knows, or nodes."""
        kinds = {**KINDS, "Node": "nodes"}
        self.each(lambda item: self.request("POST", path_of(kinds[item["kind"]], "default"), item), items)

    def items(self, resource: str) -> list[Wire]:
        """All objects of a resource (in namespace default where it has namespaces)."""
        found: list[Wire] = self.request("GET", path_of(resource, "default"))["items"]
        return found

    def merge(self, resource: str, name: str, patch: Wire, *, part: str = "") -> None:
        """A merge patch of an object or of its part `status`."""
        path = path_of(resource, "default", name) + (f"/{part}" if part else "")
        self.request("PATCH", path, patch, kind="application/merge-patch+json")

    def empty(self, resource: str) -> None:
        """Delete all objects of a resource. Pods at once: no kubelet would end them."""
        self.request("DELETE", path_of(resource, "default"), {"gracePeriodSeconds": 0})

    def count_unbound(self) -> int:
        """Pods without a node."""
        path = path_of("pods", "default") + "?fieldSelector=spec.nodeName%3D&limit=1"
        found = self.request("GET", path)
        return len(found["items"]) + int(found["metadata"].get("remainingItemCount") or 0)

    def close(self) -> None:
        """End the threads and their connections."""
        self._pool.shutdown()
        for connection in self._opened:
            connection.close()

    def _connection(self) -> http.client.HTTPSConnection:
        if not hasattr(self._mine, "connection"):
            self._mine.connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=60)
            self._opened.append(self._mine.connection)
        connection: http.client.HTTPSConnection = self._mine.connection
        return connection
