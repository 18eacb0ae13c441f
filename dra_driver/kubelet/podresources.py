"""What device plugins offer and what containers hold of them, asked of the kubelet on its podresources socket.

The kubelet's own word: a container that a device plugin served is listed until it ends, also when the plugin has gone,
and what a plugin offers is told at once, while the node's status follows within seconds.
Failures: a socket that isn't there is a normal state (nothing is known); one that doesn't answer is a KubeletError.
"""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from dra_driver.errors import KubeletError
from dra_driver.kubelet.api import podresources_v1_pb2 as pb
from dra_driver.kubelet.api import podresources_v1_pb2_grpc as pb_grpc

_TIMEOUT: Final = 5.0
_LARGEST: Final = 16 * 1024 * 1024  # bytes; gRPC's own limit is 4 MiB, a full node may tell more


@dataclass(frozen=True)
class Holder:
    """A container, and how many devices of a resource name it holds."""

    namespace: str
    pod: str
    container: str
    resource: str
    devices: int

    def __str__(self) -> str:
        return f"{self.namespace}/{self.pod} ({self.container}, {self.devices} {self.resource})"


@dataclass(frozen=True)
class Told:
    """`offered`: resource name to the number of devices, those with any; `holders` in the kubelet's order."""

    offered: Mapping[str, int]
    holders: tuple[Holder, ...]


def ask(socket: Path, names: Collection[str]) -> Told | None:
    """What the kubelet says of these resource names; None where it has no such socket.

    Raises:
        KubeletError: the socket doesn't answer, or refuses.
    """
    if not os.path.lexists(socket):
        return None
    options = [("grpc.max_receive_message_length", _LARGEST)]
    with grpc.insecure_channel(f"unix:{socket}", options=options) as channel:
        stub = pb_grpc.PodResourcesListerStub(channel)
        try:
            offered = stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=_TIMEOUT)
            listed = stub.List(pb.ListPodResourcesRequest(), timeout=_TIMEOUT)
        except grpc.RpcError as error:
            raise KubeletError(f"the kubelet doesn't answer on {socket}: {error.details()}") from error
    return Told(_offered(offered, names), _holders(listed, names))


def _offered(answer: pb.AllocatableResourcesResponse, names: Collection[str]) -> dict[str, int]:
    """The kubelet splits a resource by NUMA node, so one name may come several times."""
    found: dict[str, int] = {}
    for entry in answer.devices:
        if entry.resource_name in names and entry.device_ids:
            found[entry.resource_name] = found.get(entry.resource_name, 0) + len(entry.device_ids)
    return found


def _holders(answer: pb.ListPodResourcesResponse, names: Collection[str]) -> tuple[Holder, ...]:
    found: dict[tuple[str, str, str, str], int] = {}
    for pod in answer.pod_resources:
        for container in pod.containers:
            for entry in container.devices:
                if entry.resource_name in names and entry.device_ids:
                    key = (pod.namespace, pod.name, container.name, entry.resource_name)
                    found[key] = found.get(key, 0) + len(entry.device_ids)
    return tuple(Holder(*key, number) for key, number in found.items())
