"""A proxy between driver and API server that fails on request.

Listens in plain HTTP on the machine's end of the node's cable and passes requests on
to the real server as the driver's user, watches included. ``fail`` makes the next
requests that match be answered with an error instead, or not at all. What passed is
recorded.
"""

import http.client
import json
import re
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from testbed import settings
from testbed.stack import PORTS, Stack

HOP_BY_HOP = {"connection", "host", "transfer-encoding", "content-length"}


@dataclass
class Fault:
    """Answer matching requests with ``status`` (0: close the connection), ``times`` times."""

    method: str
    path: str
    status: int
    times: int
    hits: int = 0

    def takes(self, method: str, path: str) -> bool:
        """Whether this request fails; counts it if so."""
        if self.hits >= self.times or method != self.method or not re.search(self.path, path):
            return False
        self.hits += 1
        return True


@dataclass(frozen=True)
class Passed:
    """A request that came through here and its answer's status (0: none)."""

    method: str
    path: str
    status: int


@dataclass
class ApiProxy:
    """Faults and records of one proxy; make it with ``api_proxy``."""

    kubeconfig: Path
    faults: list[Fault] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fail(self, method: str, path: str, *, status: int = 500, times: int = 1) -> Fault:
        """Fail the next ``times`` requests whose path matches the pattern."""
        fault = Fault(method, path, status, times)
        with self._lock:
            self.faults.append(fault)
        return fault

    def fault_for(self, method: str, path: str) -> Fault | None:
        """The fault that takes this request."""
        with self._lock:
            return next((fault for fault in self.faults if fault.takes(method, path)), None)

    def note(self, method: str, path: str, status: int) -> None:
        """Record a request."""
        with self._lock:
            self.passed.append(Passed(method, path, status))


@contextmanager
def api_proxy(stack: Stack) -> Iterator[ApiProxy]:
    """A running proxy; its ``kubeconfig`` is what a driver is given."""
    proxy = ApiProxy(stack.paths.scratch / "proxy.kubeconfig")
    tls = ssl.create_default_context(cadata=(stack.paths.pki / "apiserver.crt").read_text())
    upstream = SimpleNamespace(host=stack.sandbox.address, port=PORTS["apiserver"], tls=tls)
    handler = type("BoundHandler", (Handler,), {"proxy": proxy, "upstream": upstream})
    server = ThreadingHTTPServer((stack.sandbox.gateway, 0), handler)
    url = f"http://{stack.sandbox.gateway}:{server.server_port}"
    config = json.loads(settings.kubeconfig(server=url, ca="", user="driver"))
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    proxy.kubeconfig.write_text(json.dumps(config))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        thread.join()
        server.server_close()  # threads of watches are daemons: not waited for


class Handler(BaseHTTPRequestHandler):
    """Passes one connection's requests on."""

    protocol_version = "HTTP/1.1"
    proxy: ClassVar[ApiProxy]
    upstream: ClassVar[Any]

    def handle_any(self) -> None:
        """Fail the request or pass it on."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault := self.proxy.fault_for(self.command, self.path):
            self.refuse(fault.status)
            return
        connection = http.client.HTTPSConnection(self.upstream.host, self.upstream.port, context=self.upstream.tls)
        headers = {key: value for key, value in self.headers.items() if key.lower() not in HOP_BY_HOP}
        try:
            connection.request(self.command, self.path, body or None, headers)
            self.relay(connection.getresponse())
        except (OSError, http.client.HTTPException):
            self.proxy.note(self.command, self.path, 0)
            self.close_connection = True
        finally:
            connection.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 -- names that http.server looks up

    def refuse(self, status: int) -> None:
        """An error as the API server would word it, or a closed connection."""
        self.proxy.note(self.command, self.path, status)
        if not status:
            self.close_connection = True
            return
        text = {"kind": "Status", "status": "Failure", "code": status, "reason": "InternalError"}
        payload = json.dumps(text | {"apiVersion": "v1", "message": "made to fail"}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def relay(self, answer: http.client.HTTPResponse) -> None:
        """The server's answer, piece by piece as it comes."""
        self.proxy.note(self.command, self.path, answer.status)
        self.send_response(answer.status)
        for key, value in answer.getheaders():
            if key.lower() not in HOP_BY_HOP:
                self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
        """Say nothing."""
