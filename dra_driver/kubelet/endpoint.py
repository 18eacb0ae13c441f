"""One pair of sockets, DRA and registration, under one instance name: what the kubelet registers as a unit.

Order is the contract. The DRA socket is there before the registration socket, since the kubelet dials at
once; and it outlives it, since taking the registration away closes the kubelet's connection and with it
whatever call is running, which then costs a pod over a minute.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import grpc

from dra_driver.kubelet import names
from dra_driver.kubelet.api import dra_health_v1_pb2_grpc as health_v1
from dra_driver.kubelet.api import dra_health_v1alpha1_pb2_grpc as health_v1alpha1
from dra_driver.kubelet.api import dra_v1_pb2_grpc as dra_v1
from dra_driver.kubelet.api import pluginregistration_v1_pb2_grpc as registration_v1
from dra_driver.kubelet.dra_service import DraServicer
from dra_driver.kubelet.health import MAX_STREAMS, HealthStreams, HealthV1, HealthV1alpha1
from dra_driver.kubelet.in_flight import InFlight
from dra_driver.kubelet.registration import RegistrationServicer
from dra_driver.kubelet.sockets import SocketServer, exclusive, prepare_plugin_dir, remove_dead
from dra_driver.kubelet.types import ClaimService, DeviceHealth

# Beyond the workers that health streams hold. Threads are made when needed. A Prepare may wait for the Unprepare that
# frees its device, so waiting ones must never take the last worker; a node has fewer pods than this.
CALL_WORKERS = 256
# What an ended stream or an answered call needs to reach the kubelet.
_LAST_WORDS = 2.0


@dataclass(frozen=True)
class Served:
    """What every pair of one plugin serves, and where."""

    driver: str
    plugin_dir: Path
    registry_dir: Path
    service: ClaimService
    health: Callable[[], Sequence[DeviceHealth]]
    health_interval: float


class Endpoint:
    """A pair of sockets; `notified` gets the pair itself, the kubelet's verdict and its text."""

    def __init__(self, served: Served, instance: str, notified: Callable[["Endpoint", bool, str], None]) -> None:
        self._served = served
        self.streams = HealthStreams(served.health, interval=served.health_interval)
        self._in_flight = InFlight()
        self._dra = SocketServer(
            names.dra_socket(served.plugin_dir, instance),
            add=self._add_dra,
            workers=CALL_WORKERS + MAX_STREAMS,
            name="dra",
        )
        servicer = RegistrationServicer(driver=served.driver, endpoint=self._dra.path, notified=partial(notified, self))
        self._registration = SocketServer(
            names.registration_socket(served.registry_dir, served.driver, instance),
            add=partial(registration_v1.add_RegistrationServicer_to_server, servicer),
            workers=2,
            name="registration",
        )

    def _add_dra(self, server: grpc.Server) -> None:
        dra_v1.add_DRAPluginServicer_to_server(DraServicer(self._served.service, self._in_flight), server)
        health_v1.add_DRAResourceHealthServicer_to_server(HealthV1(self.streams), server)
        health_v1alpha1.add_DRAResourceHealthServicer_to_server(HealthV1alpha1(self.streams), server)

    @property
    def sockets(self) -> tuple[Path, Path]:
        """Paths of the DRA and the registration socket."""
        return self._dra.path, self._registration.path

    def start(self) -> None:
        """Remove what dead instances left, then serve; raises KubeletError, with nothing left behind."""
        prepare_plugin_dir(self._served.plugin_dir)
        with exclusive(self._served.plugin_dir):
            remove_dead(self._served.plugin_dir, names.dra_pattern())
            remove_dead(self._served.registry_dir, names.registration_pattern(self._served.driver))
            self._dra.start()
            try:
                self._registration.start()
            except BaseException:
                self._dra.unlink()
                self._dra.stop(0)
                raise

    def lost(self) -> list[Path]:
        """Those of the two public names that don't lead to these servers now."""
        return [server.path for server in (self._dra, self._registration) if not server.still_ours()]

    def stop(self, grace: float) -> None:
        """Serve until nothing is in flight, at most `grace` seconds, then leave in order."""
        deadline = time.monotonic() + grace
        self._in_flight.wait_idle(grace)
        self.streams.close(_LAST_WORDS)
        self._registration.unlink()
        remaining = max(deadline - time.monotonic(), _LAST_WORDS)
        self._registration.stop(_LAST_WORDS)
        self._dra.stop(remaining)
        self._dra.unlink()
