"""What the kubelet tells of device plugins, asked over a real socket."""

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments

import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from dra_driver.errors import KubeletError
from dra_driver.kubelet import foreign, podresources
from dra_driver.kubelet.api import podresources_v1_pb2 as pb
from dra_driver.kubelet.api import podresources_v1_pb2_grpc as pb_grpc
from dra_driver.kubelet.podresources import Holder
from dra_driver.kubelet.sockets import SocketServer

NAMES = ("old.dev/chip", "old.dev/core")
Serve = Callable[["Lister"], Path]


class Lister(pb_grpc.PodResourcesListerServicer):
    """Answers as it was made to; with `fails`, it refuses with that text."""

    def __init__(self, holders: list[pb.PodResources], offered: list[pb.ContainerDevices], *, fails: str = "") -> None:
        self._holders = holders
        self._offered = offered
        self._fails = fails

    def List(self, request: pb.ListPodResourcesRequest, context: grpc.ServicerContext) -> pb.ListPodResourcesResponse:
        if self._fails:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self._fails)
        return pb.ListPodResourcesResponse(pod_resources=self._holders)

    def Get(self, request: pb.GetPodResourcesRequest, context: grpc.ServicerContext) -> pb.GetPodResourcesResponse:
        raise NotImplementedError

    def GetAllocatableResources(
        self, request: pb.AllocatableResourcesRequest, context: grpc.ServicerContext
    ) -> pb.AllocatableResourcesResponse:
        return pb.AllocatableResourcesResponse(devices=self._offered)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pr-") as root:
        yield Path(root)


@pytest.fixture
def serve(folder: Path) -> Iterator[Serve]:
    servers: list[SocketServer] = []

    def serve(lister: Lister) -> Path:
        path = folder / "kubelet.sock"
        servers.append(
            SocketServer(
                path,
                add=lambda server: pb_grpc.add_PodResourcesListerServicer_to_server(lister, server),
                workers=2,
                name="lister",
            )
        )
        servers[-1].start()
        return path

    yield serve
    for server in servers:
        server.unlink()
        server.stop(0)


def devices(resource: str, *ids: str) -> pb.ContainerDevices:
    return pb.ContainerDevices(resource_name=resource, device_ids=ids)


def pod(name: str, *held: pb.ContainerDevices, container: str = "main") -> pb.PodResources:
    return pb.PodResources(
        name=name, namespace="ns", containers=[pb.ContainerResources(name=container, devices=list(held))]
    )


def test_entries_of_one_resource_are_added_up(serve: Serve) -> None:
    """The kubelet splits them by NUMA node."""
    core = devices("old.dev/core", "a", "b"), devices("old.dev/core", "c")
    path = serve(Lister([pod("p", *core)], [*core, devices("gpu.dev/gpu", "x")]))
    told = podresources.ask(path, NAMES)
    assert told
    assert told.offered == {"old.dev/core": 3}
    assert told.holders == (Holder("ns", "p", "main", "old.dev/core", 3),)
    assert str(told.holders[0]) == "ns/p (main, 3 old.dev/core)"


def test_other_resources_and_empty_entries_count_for_nothing(serve: Serve) -> None:
    path = serve(Lister([pod("p", devices("gpu.dev/gpu", "x"), devices("old.dev/chip")), pod("q")], []))
    told = podresources.ask(path, NAMES)
    assert told
    assert (told.offered, told.holders) == ({}, ())


def test_more_than_grpc_takes_by_default(serve: Serve) -> None:
    """4 MiB; a node of many pods with long lists of ids tells more."""
    ids = [f"{number:0100}" for number in range(500)]
    path = serve(Lister([pod(f"p{number}", devices("old.dev/core", *ids)) for number in range(100)], []))
    told = podresources.ask(path, NAMES)
    assert told
    assert len(told.holders) == 100


def test_no_socket_is_nothing_known(folder: Path) -> None:
    assert podresources.ask(folder / "kubelet.sock", NAMES) is None
    assert podresources.ask(folder / "nowhere" / "kubelet.sock", NAMES) is None


def test_socket_that_nobody_serves_is_an_error(folder: Path) -> None:
    path = folder / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    with pytest.raises(KubeletError, match=str(path)):
        podresources.ask(path, NAMES)


def test_kubelet_that_refuses_is_an_error_with_its_words(serve: Serve) -> None:
    """Its limit is 100 questions a second."""
    path = serve(Lister([], [], fails="rejected by rate limit"))
    with pytest.raises(KubeletError, match="rejected by rate limit"):
        podresources.ask(path, NAMES)


def test_sockets_of_a_device_plugin_are_known_by_name_and_life(folder: Path) -> None:
    names = ["old.dev_CHIP.sock", "my-core-plugin.sock", "gpu.sock", "kubelet.sock", "dead-chip.sock"]
    listening = []
    for name in names:
        server = socket.socket(socket.AF_UNIX)
        server.bind(str(folder / name))
        if name.startswith("dead"):
            server.close()
        else:
            server.listen()
            listening.append(server)
    (folder / "chip.sock").write_text("a file")
    found = [Path(path).name for path in foreign.of_device_plugin(folder, NAMES)]
    assert sorted(found) == ["my-core-plugin.sock", "old.dev_CHIP.sock"]
    assert foreign.of_device_plugin(folder, ()) == []
    assert foreign.of_device_plugin(folder / "nowhere", NAMES) == []
    for server in listening:
        server.close()


def test_folder_that_cant_be_listed_is_an_error(folder: Path) -> None:
    (folder / "file").write_text("")
    with pytest.raises(KubeletError, match="can't look for sockets"):
        foreign.of_device_plugin(folder / "file", NAMES)
