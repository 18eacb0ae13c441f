"""A Kubernetes API server small enough to run inside a test or a demo: real HTTP on loopback.

It serves the kinds of `resources.RESOURCES` with the semantics that a node driver depends on: resource
versions, watches that expire, field selectors, dry runs, preconditions, dropped fields. `store` is the same
data for controllers in this process, `audit` what was asked, `faults` what shall go wrong.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from dra_driver.simulator.apiserver.audit import Audit
from dra_driver.simulator.apiserver.faults import Faults
from dra_driver.simulator.apiserver.handler import Handler
from dra_driver.simulator.apiserver.status import status
from dra_driver.simulator.apiserver.store import Store


class _Listener(ThreadingHTTPServer):
    """Keeps the connections, so that they can be counted, cut and waited for."""

    daemon_threads = False
    block_on_close = True
    request_queue_size = 128

    def __init__(self, port: int, handler: type[Handler]) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.accepted = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        with self._lock:
            self.accepted += 1
            self._open.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that is gone, or a TLS handshake that fails, is the client's affair."""

    def cut(self) -> None:
        with self._lock:
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


class ApiServer:
    """Start with `with ApiServer() as api:`, or `start` and `stop`; it may be started again on its port.

    `minor` is that of the Kubernetes version it plays, `partitionable` its DRAPartitionableDevices gate (off:
    counters are dropped without a word), `tokens` the bearer tokens it takes (empty: everybody), `tls` a
    certificate and a key file.
    """

    def __init__(
        self,
        *,
        minor: int = 37,
        partitionable: bool = True,
        tls: tuple[Path, Path] | None = None,
        store: Store | None = None,
    ) -> None:
        self.store = store or Store(minor=minor, partitionable=partitionable)
        self.faults = Faults()
        self.audit = Audit()
        self.tokens: set[str] = set()
        self.stopping = False
        self._tls = tls
        self._port = 0
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None
        self._watches: list[list[dict[str, Any]]] = []
        self._watches_lock = threading.Lock()

    @property
    def url(self) -> str:
        """Base URL; known after the first start."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def connections(self) -> int:
        """TCP connections accepted since the start."""
        return self._listener.accepted if self._listener else 0

    def start(self) -> Self:
        """Listen; clients can connect when this returns."""
        self.stopping = False
        bound = type("BoundHandler", (Handler,), {"api": self})
        listener = _Listener(self._port, bound)
        if self._tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._tls)
            # The handshake belongs to the connection's own thread, or one bad client would stop all.
            listener.socket = context.wrap_socket(listener.socket, server_side=True, do_handshake_on_connect=False)
        self._port = listener.server_address[1]
        self._listener = listener
        self._thread = threading.Thread(
            target=listener.serve_forever, kwargs={"poll_interval": 0.02}, name="apiserver", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close every connection and the port; objects stay. Planted faults are forgotten."""
        if self._listener is None or self._thread is None:
            return
        self.stopping = True
        self.faults.clear()
        self._listener.shutdown()
        self._thread.join()
        self.store.wake()
        self._listener.cut()
        self._listener.server_close()
        self._listener = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kubeconfig(self, path: Path, *, token: str = "") -> Path:
        """Write a kubeconfig for this server; returns `path`."""
        cluster: dict[str, Any] = {"server": self.url}
        if self._tls:
            cluster["certificate-authority"] = str(self._tls[0])
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "simulated",
            "clusters": [{"name": "simulated", "cluster": cluster}],
            "users": [{"name": "simulated", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "simulated", "context": {"cluster": "simulated", "user": "simulated"}}],
        }
        path.write_text(json.dumps(config, indent=1))  # JSON is YAML
        return path

    def cut_connections(self) -> None:
        """Close every open connection, watches included; new ones are accepted."""
        if self._listener:
            self._listener.cut()

    def expire_watches(self, code: int = 410) -> None:
        """End every running watch with an ERROR event of this code."""
        with self._watches_lock:
            for errors in self._watches:
                errors.append(status(code, "planted by a test"))
        self.store.wake()

    @property
    def watches(self) -> int:
        """How many watches are running."""
        with self._watches_lock:
            return len(self._watches)

    @contextmanager
    def watching(self) -> Iterator[list[dict[str, Any]]]:
        """For the handler: a running watch; the list receives the errors that end it."""
        errors: list[dict[str, Any]] = []
        with self._watches_lock:
            self._watches.append(errors)
        try:
            yield errors
        finally:
            with self._watches_lock:
                self._watches.remove(errors)
