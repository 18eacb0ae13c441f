"""The simulated kubelet's podresources service: what device plugins offer, and what containers hold of it.

As in Kubernetes 1.37 a container is listed until it ends, also when its plugin has gone by then; an unhealthy device
isn't offered. Claims aren't told here.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from dra_driver.kubelet.api import podresources_v1_pb2 as pb
from dra_driver.kubelet.api import podresources_v1_pb2_grpc as pb_grpc
from dra_driver.simulator.kubelet_devices import SOCKET, DeviceManager

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments


class PodResources(pb_grpc.PodResourcesListerServicer):
    """Serves `kubelet.sock` in `folder`, between `start` and `stop`."""

    def __init__(self, folder: Path, devices: DeviceManager) -> None:
        self._devices = devices
        self.lists = 0  # how often the holders were asked for
        self._socket = folder / SOCKET
        self._pool = ThreadPoolExecutor(2, thread_name_prefix="kubelet-pod-resources")
        self._server = grpc.server(self._pool)
        pb_grpc.add_PodResourcesListerServicer_to_server(self, self._server)

    def start(self) -> None:
        """Serve, in place of a socket that an earlier kubelet left."""
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{self._socket}")
        self._server.start()

    def stop(self) -> None:
        """Hang up."""
        self._server.stop(0).wait()
        self._pool.shutdown()

    def List(self, request: pb.ListPodResourcesRequest, context: grpc.ServicerContext) -> pb.ListPodResourcesResponse:
        """One pod with one container for each allocation."""
        self.lists += 1
        pods = [
            pb.PodResources(
                name=held.pod,
                namespace="default",
                containers=[
                    pb.ContainerResources(
                        name="main",
                        devices=[pb.ContainerDevices(resource_name=held.resource, device_ids=held.ids)],
                    )
                ],
            )
            for held in self._devices.held()
        ]
        return pb.ListPodResourcesResponse(pod_resources=pods)

    def Get(self, request: pb.GetPodResourcesRequest, context: grpc.ServicerContext) -> pb.GetPodResourcesResponse:
        """The same of one pod."""
        listed = self.List(pb.ListPodResourcesRequest(), context).pod_resources
        pod = next(
            (one for one in listed if (one.namespace, one.name) == (request.pod_namespace, request.pod_name)), None
        )
        if pod is None:
            context.abort(grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} in {request.pod_namespace} not found")
        return pb.GetPodResourcesResponse(pod_resources=pod)

    def GetAllocatableResources(
        self, request: pb.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pb.AllocatableResourcesResponse:
        """Healthy devices; a device an entry, as the kubelet does for each NUMA node."""
        entries = [
            pb.ContainerDevices(resource_name=name, device_ids=[one])
            for name, ids in self._devices.offered().items()
            for one in ids
        ]
        return pb.AllocatableResourcesResponse(devices=entries)
