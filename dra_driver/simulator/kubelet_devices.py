"""The simulated kubelet's device manager: device plugins v1beta1, and a ledger of its own per resource name.

That the ledgers know nothing of each other is the point: two names for the same hardware are counted twice.
As in the real one the plugin dials first, is dialled back, and is never told that a device is free again.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from dra_driver.errors import CoresliceError
from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from dra_driver.simulator.kubelet_channel import open_channel, wait_ready

# ruff: noqa: N802 -- gRPC gives the methods' names and arguments

_log = logging.getLogger(__name__)

_VERSION: Final = "v1beta1"
_DIAL: Final = 10.0
_CALL: Final = 30.0
SOCKET: Final = "kubelet.sock"


class AllocationError(CoresliceError):
    """A container can't be admitted; the text is the kubelet's."""


@dataclass(frozen=True)
class DeviceNode:
    """A device node that a device plugin adds to the container."""

    host_path: str
    container_path: str
    permissions: str


@dataclass(frozen=True)
class Allocation:
    """What one container got of one resource."""

    resource: str
    ids: tuple[str, ...]
    envs: dict[str, str]
    devices: tuple[DeviceNode, ...]
    cdi_devices: tuple[str, ...]
    pod: str


@dataclass(eq=False)
class _Endpoint:
    """One registered device plugin and the ledger of its resource."""

    resource: str
    channel: grpc.Channel
    options: pb.DevicePluginOptions
    health: dict[str, str] = field(default_factory=dict)
    allocated: set[str] = field(default_factory=set)
    running: bool = True
    plugin: pb_grpc.DevicePluginStub = field(init=False)

    def __post_init__(self) -> None:
        # Now, not when it is used: gRPC crashes the process when a stub is made on a channel that is closed.
        self.plugin = pb_grpc.DevicePluginStub(self.channel)

    def healthy(self) -> list[str]:
        return sorted(device for device, health in self.health.items() if health == "Healthy")

    def free(self) -> list[str]:
        return [device for device in self.healthy() if device not in self.allocated]


class DeviceManager(pb_grpc.RegistrationServicer):
    """Serves registration on `kubelet.sock` in `folder`, and allocates what the plugins list."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._socket = folder / SOCKET
        self._condition = threading.Condition()
        self._endpoints: dict[str, _Endpoint] = {}
        self._held: list[Allocation] = []
        self._streams: list[threading.Thread] = []
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="kubelet-devices")
        self._server = grpc.server(self._pool)
        pb_grpc.add_RegistrationServicer_to_server(self, self._server)

    def start(self) -> None:
        """Clear the folder, as the kubelet does, and serve."""
        for path in self._folder.iterdir():
            if path.is_socket():
                path.unlink()
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def stop(self) -> None:
        """Hang up on all plugins; none is told."""
        self._server.stop(0).wait()
        self._pool.shutdown()
        for endpoint in self._endpoints.values():
            endpoint.channel.close()
        for stream in self._streams:
            stream.join()

    def Register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:
        """Take a plugin's registration and dial it back."""
        if request.version != _VERSION:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"requested API version {request.version!r} is not supported"
            )
        self._replace(request)
        return pb.Empty()

    def _replace(self, request: pb.RegisterRequest) -> None:
        channel = open_channel(self._folder / request.endpoint, authority="localhost")
        endpoint = _Endpoint(request.resource_name, channel, request.options)
        with self._condition:
            old = self._endpoints.get(request.resource_name)
            if old:
                endpoint.allocated = old.allocated
            self._endpoints[request.resource_name] = endpoint
        if old:
            old.channel.close()
        thread = threading.Thread(target=self._watch, args=(endpoint,), name="kubelet-devices", daemon=True)
        self._streams.append(thread)
        thread.start()

    def _watch(self, endpoint: _Endpoint) -> None:
        """Follow the plugin's list; when it ends nothing of it counts as healthy any more."""
        try:
            wait_ready(endpoint.channel, _DIAL)
            for response in endpoint.plugin.ListAndWatch(pb.Empty()):
                self._list(endpoint, {device.ID: device.health for device in response.devices})
        except (grpc.RpcError, ValueError) as error:
            _log.info("kubelet: device plugin for %s ended: %s", endpoint.resource, error)
        endpoint.running = False
        self._list(endpoint, dict.fromkeys(endpoint.health, "Unhealthy"))

    def _list(self, endpoint: _Endpoint, health: dict[str, str]) -> None:
        with self._condition:
            endpoint.health = health
            self._condition.notify_all()

    def allocatable(self) -> dict[str, int]:
        """Healthy devices by resource name, allocated ones included: what the node's status shows."""
        with self._condition:
            return {name: len(endpoint.healthy()) for name, endpoint in sorted(self._endpoints.items())}

    def available(self) -> dict[str, int]:
        """What is left of it."""
        with self._condition:
            return {name: len(endpoint.free()) for name, endpoint in sorted(self._endpoints.items())}

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until something about the devices holds."""
        with self._condition:
            return self._condition.wait_for(condition, timeout)

    def offered(self) -> dict[str, list[str]]:
        """Ids of the healthy devices by resource name."""
        with self._condition:
            return {name: endpoint.healthy() for name, endpoint in self._endpoints.items()}

    def held(self) -> list[Allocation]:
        """What containers have, whether or not the plugin is still there."""
        with self._condition:
            return list(self._held)

    def allocate(self, resource: str, count: int, *, pod: str = "a-pod") -> Allocation:
        """Allocate for one container; raises AllocationError."""
        with self._condition:
            endpoint = self._endpoints.get(resource)
            free = endpoint.free() if endpoint else []
        if endpoint is None or len(free) < count:
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. Requested: {count}, Available: {len(free)}"
            )
        try:
            return self._allocate(endpoint, self._choose(endpoint, free, count), pod)
        except grpc.RpcError as error:
            raise AllocationError(f"device plugin for {resource} failed: {error}") from error

    def _choose(self, endpoint: _Endpoint, free: Sequence[str], count: int) -> list[str]:
        """What the plugin prefers, as far as it is valid; the first free ones otherwise."""
        if not endpoint.options.get_preferred_allocation_available:
            return list(free[:count])
        wish = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
        request = pb.PreferredAllocationRequest(container_requests=[wish])
        answer = endpoint.plugin.GetPreferredAllocation(request, timeout=_CALL)
        preferred = [d for r in answer.container_responses for d in r.deviceIDs if d in free]
        rest = [device for device in free if device not in preferred]
        return [*preferred, *rest][:count]

    def _allocate(self, endpoint: _Endpoint, ids: Sequence[str], pod: str) -> Allocation:
        asked = pb.ContainerAllocateRequest(devices_ids=ids)
        answer = endpoint.plugin.Allocate(pb.AllocateRequest(container_requests=[asked]), timeout=_CALL)
        if endpoint.options.pre_start_required:
            endpoint.plugin.PreStartContainer(pb.PreStartContainerRequest(devices_ids=ids), timeout=_CALL)
        response = answer.container_responses[0]
        allocation = Allocation(
            resource=endpoint.resource,
            ids=tuple(ids),
            envs=dict(response.envs),
            devices=tuple(DeviceNode(d.host_path, d.container_path, d.permissions) for d in response.devices),
            cdi_devices=tuple(device.name for device in response.cdi_devices),
            pod=pod,
        )
        with self._condition:
            endpoint.allocated |= set(ids)
            self._held.append(allocation)
        return allocation

    def free(self, allocation: Allocation) -> None:
        """Take back what a container that has ended had; the plugin doesn't hear of it."""
        with self._condition:
            self._endpoints[allocation.resource].allocated -= set(allocation.ids)
            self._held.remove(allocation)
            self._condition.notify_all()
