"""The health streams to the kubelet, of both API versions from one implementation.

Each stream begins with all devices, then sends all of them on each change and at least every `interval`
seconds: the kubelet forgets what it knew whenever a stream of the driver ends, and takes a device for unknown
that isn't reported again in time (BC-088). A stream holds a worker of the server for its whole life, so their
number is limited; a stream ends with OK when the plugin stops, since any other end is an error in the
kubelet's log.
"""

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import grpc

from dra_driver.kubelet.api import dra_health_v1_pb2 as v1
from dra_driver.kubelet.api import dra_health_v1_pb2_grpc as v1_grpc
from dra_driver.kubelet.api import dra_health_v1alpha1_pb2 as v1alpha1
from dra_driver.kubelet.api import dra_health_v1alpha1_pb2_grpc as v1alpha1_grpc
from dra_driver.kubelet.in_flight import InFlight
from dra_driver.kubelet.types import DeviceHealth

_log = logging.getLogger(__name__)

# The kubelet holds one stream per registered instance; those of a dead kubelet end with its connection.
MAX_STREAMS: Final = 8
TIMEOUT_SECONDS: Final = 30


class HealthStreams:
    """All open streams of one pair of sockets; `report` gives the present state of all devices."""

    def __init__(self, report: Callable[[], Sequence[DeviceHealth]], *, interval: float) -> None:
        self._report = report
        self._interval = interval
        self._condition = threading.Condition()
        self._version = 0
        self._open = 0
        self._closed = False
        self._running = InFlight()

    @property
    def open(self) -> int:
        """How many streams are held."""
        return self._open

    def changed(self) -> None:
        """Send the present state on every stream now."""
        with self._condition:
            self._version += 1
            self._condition.notify_all()

    def close(self, timeout: float) -> None:
        """End every stream with OK, also those that come later; wait for it to be sent, at most `timeout`."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        self._running.wait_idle(timeout)

    def reports(self, context: grpc.ServicerContext) -> Iterator[Sequence[DeviceHealth]]:
        """What one stream sends, until its caller hangs up or the plugin stops."""
        if not self._enter():
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_STREAMS} health streams are open already")
        try:
            if context.add_callback(self._wake):
                with self._running.call(context):
                    yield from self._until_gone(context)
        finally:
            self._leave()

    def _until_gone(self, context: grpc.ServicerContext) -> Iterator[Sequence[DeviceHealth]]:
        while not self._closed and context.is_active():
            seen = self._version
            report = self._present()
            if report is not None:
                yield report
            self._wait_beyond(seen, context)

    def _present(self) -> Sequence[DeviceHealth] | None:
        """Say nothing when nothing can be told: the kubelet then shows unknown after the timeout."""
        try:
            return self._report()
        except Exception:  # noqa: BLE001 -- an error would end the stream and clear what is known
            _log.exception("the devices' health can't be told; the kubelet gets no report")
            return None

    def _wait_beyond(self, version: int, context: grpc.ServicerContext) -> None:
        with self._condition:
            self._condition.wait_for(
                lambda: self._closed or self._version != version or not context.is_active(), self._interval
            )

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _enter(self) -> bool:
        with self._condition:
            if self._open >= MAX_STREAMS:
                return False
            self._open += 1
            return True

    def _leave(self) -> None:
        with self._condition:
            self._open -= 1
            self._condition.notify_all()


class HealthV1(v1_grpc.DRAResourceHealthServicer):
    """The stream for kubelets from 1.37 on."""

    def __init__(self, streams: HealthStreams) -> None:
        self._streams = streams

    def NodeWatchResources(
        self, request: v1.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[v1.NodeWatchResourcesResponse]:
        """Stream all devices."""
        for report in self._streams.reports(context):
            yield v1.NodeWatchResourcesResponse(devices=[_device(health) for health in report])


class HealthV1alpha1(v1alpha1_grpc.DRAResourceHealthServicer):
    """The same for kubelets before; the messages are the same on the wire."""

    def __init__(self, streams: HealthStreams) -> None:
        self._streams = streams

    def NodeWatchResources(
        self, request: v1alpha1.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[v1alpha1.NodeWatchResourcesResponse]:
        """Stream all devices."""
        for report in self._streams.reports(context):
            message = v1.NodeWatchResourcesResponse(devices=[_device(health) for health in report])
            yield v1alpha1.NodeWatchResourcesResponse.FromString(message.SerializeToString())


def _device(health: DeviceHealth) -> v1.DeviceHealth:
    return v1.DeviceHealth(
        device=v1.DeviceIdentifier(pool_name=health.pool, device_name=health.device),
        health=v1.HealthStatus.Value(health.state.name),
        last_updated_time=int(time.time()),
        health_check_timeout_seconds=TIMEOUT_SECONDS,
        message=health.message,
    )
