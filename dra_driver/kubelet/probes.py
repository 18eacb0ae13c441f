"""The gRPC health service on a TCP port: what the kubelet's `grpc` probes ask.

Services are callables, called at each question; one that raises counts as not serving. The empty name is an
ordinary service that the caller may give. No certificate: it tells yes or no and takes nothing.
"""

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import grpc

from dra_driver.errors import KubeletError
from dra_driver.kubelet.api import grpc_health_v1_pb2 as pb
from dra_driver.kubelet.api import grpc_health_v1_pb2_grpc as pb_grpc

_log = logging.getLogger(__name__)

# A Watch holds a worker as long as it lasts; the rest is for Check, which decides over the process.
_MAX_WATCHES: Final = 2
_WORKERS: Final = 4


class HealthServicer(pb_grpc.HealthServicer):
    """Check, List and Watch over named callables; Watch looks every `interval` seconds."""

    def __init__(self, services: Mapping[str, Callable[[], bool]], *, interval: float) -> None:
        self._services = dict(services)
        self._interval = interval
        self._watches = threading.BoundedSemaphore(_MAX_WATCHES)
        self.stopping = threading.Event()

    def _status(self, service: str) -> pb.HealthCheckResponse:
        try:
            serving = self._services[service]()
        except Exception:  # noqa: BLE001 -- the answer is no, whatever it was
            _log.exception("the probe %r failed", service)
            serving = False
        return pb.HealthCheckResponse(
            status=pb.HealthCheckResponse.SERVING if serving else pb.HealthCheckResponse.NOT_SERVING
        )

    def Check(self, request: pb.HealthCheckRequest, context: grpc.ServicerContext) -> pb.HealthCheckResponse:
        """Answer for one service; an unknown one is NOT_FOUND."""
        if request.service not in self._services:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service!r}; see List")
        return self._status(request.service)

    def List(self, request: pb.HealthListRequest, context: grpc.ServicerContext) -> pb.HealthListResponse:
        """Answer for all services."""
        return pb.HealthListResponse(statuses={name: self._status(name) for name in self._services})

    def Watch(self, request: pb.HealthCheckRequest, context: grpc.ServicerContext) -> Iterator[pb.HealthCheckResponse]:
        """Answer now and at each change; an unknown service is told as such and may not appear later."""
        if not self._watches.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MAX_WATCHES} watches are open already")
        try:
            yield from self._changes(request.service, context)
        finally:
            self._watches.release()

    def _changes(self, service: str, context: grpc.ServicerContext) -> Iterator[pb.HealthCheckResponse]:
        last = None
        while context.is_active() and not self.stopping.is_set():
            now = (
                self._status(service)
                if service in self._services
                else pb.HealthCheckResponse(status=pb.HealthCheckResponse.SERVICE_UNKNOWN)
            )
            if now != last:
                yield now
            last = now
            self.stopping.wait(self._interval)


class ProbeServer:
    """Serves the services on `host:port`; port 0 takes a free one, which `port` then tells."""

    def __init__(
        self, services: Mapping[str, Callable[[], bool]], *, host: str, port: int, watch_interval: float = 1.0
    ) -> None:
        self._host = host.strip("[]")
        self.port = port
        self._servicer = HealthServicer(services, interval=watch_interval)
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="probes")
        # Without this a second process on the same port would share it, and answer for the first.
        self._server = grpc.server(self._pool, options=(("grpc.so_reuseport", 0),))
        pb_grpc.add_HealthServicer_to_server(self._servicer, self._server)

    def start(self) -> None:
        """Bind and serve; raises KubeletError where the address can't be had."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            self.port = self._server.add_insecure_port(f"{host}:{self.port}")
        except RuntimeError as error:
            raise KubeletError(
                f"can't serve health probes on {host}:{self.port}: {error}; is the port taken? "
                "Choose another one (0 takes any)"
            ) from error
        self._server.start()

    def stop(self) -> None:
        """Stop and wait."""
        self._servicer.stopping.set()
        self._server.stop(1.0).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)
