"""The device plugin that DRA replaces, thin but real: v1beta1, two resource names, a socket for each.

AWS's plugin is closed source. This one is modelled on what is documented and seen of it: both names are advertised
at once for the same silicon and nothing links them (AWS Neuron documentation, "Kubernetes" and "Neuron device
plugin"); the core count is the kernel driver's `core_count` divided by the logical core size; a container's device
nodes are renumbered from 0 since SDK 2.16 (release notes of the Neuron containers); a core request gets the chip's
node plus `NEURON_RT_VISIBLE_CORES` ("Neuron Kubernetes scheduler extension flow"). Names of device ids are its own.
What it leaves out: the scheduler extension's pod annotations, health, and registering again after a kubelet restart.

Device plugin calls: the plugin registers at `kubelet.sock`, the kubelet dials back; nothing is ever given back.
"""

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from dra_driver.errors import KubeletError
from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.legacy.ledger import Ledger, LedgerError
from dra_driver.neuron.machine import Machine

CHIP_RESOURCE = "aws.amazon.com/neuron"
CORE_RESOURCE = "aws.amazon.com/neuroncore"
VERSION = "v1beta1"
_KUBELET_SOCKET = "kubelet.sock"
_REGISTER_TIMEOUT = 10.0
_WORKERS = 4  # one for the list, the rest for calls


class ResourceServicer(pb_grpc.DevicePluginServicer):
    """One resource name. The list is sent once and kept open until `close`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._ends: list[threading.Event] = []
        self._closed = False

    def close(self) -> None:
        """End the open lists, and those that still come."""
        with self._lock:
            self._closed = True
            for end in self._ends:
                end.set()

    def GetDevicePluginOptions(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        """A preference, and nothing before a container starts."""
        return pb.DevicePluginOptions(get_preferred_allocation_available=True)

    def ListAndWatch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        """All devices, healthy; then nothing new until one side ends it."""
        end = threading.Event()
        with self._lock:
            self._ends.append(end)
            if self._closed or not context.add_callback(end.set):
                return
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=one, health="Healthy") for one in self._ledger.ids])
        end.wait()

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """Contiguous devices, since the runtime takes nothing else."""
        responses = [
            pb.ContainerPreferredAllocationResponse(
                deviceIDs=self._ledger.prefer(one.available_deviceIDs, one.must_include_deviceIDs, one.allocation_size)
            )
            for one in request.container_requests
        ]
        return pb.PreferredAllocationResponse(container_responses=responses)

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        """What each container gets; INVALID_ARGUMENT for an id that isn't in the list."""
        try:
            responses = [self._container(list(one.devices_ids)) for one in request.container_requests]
        except LedgerError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return pb.AllocateResponse(container_responses=responses)

    def _container(self, ids: list[str]) -> pb.ContainerAllocateResponse:
        grant = self._ledger.grant(ids)
        nodes = [
            pb.DeviceSpec(container_path=f"/dev/neuron{number}", host_path=host, permissions="rw")
            for number, host in enumerate(grant.nodes)
        ]
        return pb.ContainerAllocateResponse(envs=dict(grant.env), devices=nodes)

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Nothing to do, and the options say so."""
        return pb.PreStartContainerResponse()


class DevicePlugin:
    """Both resources of one machine, served from the kubelet's device plugin folder."""

    def __init__(
        self,
        machine: Machine,
        directory: Path,
        *,
        chips: str = CHIP_RESOURCE,
        cores: str = CORE_RESOURCE,
        lnc: int = 1,
    ) -> None:
        self.ledgers: Mapping[str, Ledger] = {
            chips: Ledger.of_chips(machine, lnc=lnc),
            cores: Ledger.of_cores(machine, lnc=lnc),
        }
        self._directory = directory
        self._servicers = {name: ResourceServicer(ledger) for name, ledger in self.ledgers.items()}
        self._servers = {name: self._server(name) for name in self.ledgers}

    def _server(self, resource: str) -> SocketServer:
        servicer = self._servicers[resource]
        return SocketServer(
            self._directory / f"{resource.replace('/', '_')}.sock",
            add=lambda server: pb_grpc.add_DevicePluginServicer_to_server(servicer, server),
            workers=_WORKERS,
            name="device-plugin",
        )

    @property
    def sockets(self) -> Mapping[str, Path]:
        """Resource name to socket."""
        return {name: server.path for name, server in self._servers.items()}

    def start(self) -> None:
        """Serve both sockets, then register both names; raises KubeletError with nothing left behind."""
        try:
            for server in self._servers.values():
                server.start()
            self._register()
        except BaseException:
            self.stop()
            raise

    def _register(self) -> None:
        kubelet = self._directory / _KUBELET_SOCKET
        with grpc.insecure_channel(f"unix:{kubelet}") as channel:
            stub = pb_grpc.RegistrationStub(channel)
            for name, socket in self.sockets.items():
                request = pb.RegisterRequest(
                    version=VERSION,
                    endpoint=socket.name,
                    resource_name=name,
                    options=pb.DevicePluginOptions(get_preferred_allocation_available=True),
                )
                try:
                    stub.Register(request, timeout=_REGISTER_TIMEOUT)
                except grpc.RpcError as error:
                    raise KubeletError(
                        f"can't register {name} at {kubelet}: {error.details()}; is a kubelet running there?"
                    ) from error

    def stop(self) -> None:
        """End the lists, take the sockets away; the kubelet counts the resources down to 0."""
        for servicer in self._servicers.values():
            servicer.close()
        for server in self._servers.values():
            server.unlink()
            server.stop(1.0)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
