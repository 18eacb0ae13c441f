"""What the simulated kubelet knows of devices' health, and the streams it knows it from.

As in Kubernetes 1.37: one stream per registered instance on the DRA connection, v1 before v1alpha1, none where
neither is advertised; after every end all health of the driver is forgotten and the stream is opened again,
except where the service isn't implemented.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc

from dra_driver.kubelet.api import dra_health_v1_pb2 as v1
from dra_driver.kubelet.api import dra_health_v1_pb2_grpc as v1_grpc
from dra_driver.kubelet.api import dra_health_v1alpha1_pb2 as v1alpha1
from dra_driver.kubelet.api import dra_health_v1alpha1_pb2_grpc as v1alpha1_grpc

_DEFAULT_TIMEOUT: Final = 30
_READ_WITHIN: Final = 1.0  # seconds: the real kubelet looks for sockets that have gone only that often
# The kubelet's own list, in its order.
_METHODS: Final[dict[str, tuple[Callable[[grpc.Channel], Any], Any]]] = {
    "v1.DRAResourceHealth": (v1_grpc.DRAResourceHealthStub, v1.NodeWatchResourcesRequest()),
    "v1alpha1.DRAResourceHealth": (v1alpha1_grpc.DRAResourceHealthStub, v1alpha1.NodeWatchResourcesRequest()),
}


@dataclass(frozen=True)
class Reported:
    """The last report of one device; `state` is `UNKNOWN`, `HEALTHY` or `UNHEALTHY`."""

    state: str
    message: str
    received: float
    timeout: float


class HealthCache:
    """Health by driver, pool and device, and how each stream ended."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._devices: dict[tuple[str, str, str], Reported] = {}
        self.reports: list[str] = []
        self.ends: list[tuple[str, str]] = []

    def take(self, driver: str, response: Any) -> None:
        """Take one report over; devices missing from it keep their state until their timeout."""
        with self._condition:
            for device in response.devices:
                self._devices[driver, device.device.pool_name, device.device.device_name] = Reported(
                    v1.HealthStatus.Name(device.health),
                    device.message,
                    time.monotonic(),
                    device.health_check_timeout_seconds or _DEFAULT_TIMEOUT,
                )
            self.reports.append(driver)
            self._condition.notify_all()

    def ended(self, driver: str, code: str) -> None:
        """Forget the driver's devices: also those that another instance of it reported."""
        with self._condition:
            self._devices = {key: value for key, value in self._devices.items() if key[0] != driver}
            self.ends.append((driver, code))
            self._condition.notify_all()

    def states(self, driver: str) -> dict[tuple[str, str], str]:
        """State by (pool, device); `UNKNOWN` for one that hasn't been reported in time."""
        now = time.monotonic()
        with self._condition:
            return {
                key[1:]: reported.state if now - reported.received <= reported.timeout else "UNKNOWN"
                for key, reported in self._devices.items()
                if key[0] == driver
            }

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until something about the health holds."""
        with self._condition:
            return self._condition.wait_for(condition, timeout)


class HealthStream:
    """The stream to one instance, held open on a thread of its own; nothing where none is advertised."""

    def __init__(
        self, driver: str, advertised: Sequence[str], channel: grpc.Channel, *, cache: HealthCache, retry: float
    ) -> None:
        self._driver = driver
        self._cache = cache
        self._retry = retry
        # The stub is made now: gRPC crashes the process when one is made on a channel that is closed.
        self._open = next((_opener(name, channel) for name in _METHODS if name in advertised), None)
        self._no_method: Any = channel.unary_unary("/simulator.Kubelet/NoSuchMethod")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet-health", daemon=True)

    def start(self) -> None:
        """Open the stream."""
        if self._open:
            self._thread.start()

    def stop(self) -> None:
        """Don't open it again; it ends with its channel, which is closed before `join`.

        What the driver sent before is read: closing the channel would put CANCELLED in the place of an OK that lies in
        the socket. Answers on one connection come in order, so that of any other call is behind it.
        """
        self._stopping.set()
        if self._thread.is_alive():
            with suppress(grpc.RpcError, grpc.FutureTimeoutError, ValueError):
                self._no_method.future(b"", timeout=_READ_WITHIN).result()

    def join(self) -> None:
        """Wait for its end."""
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            code = self._watch()
            self._cache.ended(self._driver, code)
            if code == grpc.StatusCode.UNIMPLEMENTED.name:
                return
            self._stopping.wait(self._retry)

    def _watch(self) -> str:
        try:
            for response in self._responses():
                self._cache.take(self._driver, response)
        except grpc.RpcError as error:
            return str(error.code().name)
        except ValueError:  # the channel was closed before the call began
            return grpc.StatusCode.CANCELLED.name
        return grpc.StatusCode.OK.name

    def _responses(self) -> Iterator[Any]:
        if self._open:
            yield from self._open()


def _opener(name: str, channel: grpc.Channel) -> Callable[[], Any]:
    stub, request = _METHODS[name]
    return partial(stub(channel).NodeWatchResources, request)
