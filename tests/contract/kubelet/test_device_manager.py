"""The simulated kubelet's device manager, with a small device plugin over real sockets."""

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from dra_driver.simulator.kubelet import AllocationError, FakeKubelet
from dra_driver.simulator.kubelet_devices import DeviceNode
from tests.contract.kubelet.conftest import Node, eventually

RESOURCE = "example.dev/thing"


class Things(pb_grpc.DevicePluginServicer):
    """Lists what is put last, on every stream, until that is None; prefers the last ids."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._devices: dict[str, str] | None = {}
        self._version = 0
        self.allocated: list[list[str]] = []
        self.started: list[list[str]] = []
        self.fail = ""

    def GetDevicePluginOptions(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:
        seen = -1
        while True:
            with self._condition:
                while self._version == seen:
                    self._condition.wait()
                seen, devices = self._version, self._devices
            if devices is None:
                return
            yield pb.ListAndWatchResponse(devices=[pb.Device(ID=i, health=h) for i, h in devices.items()])

    def put(self, devices: dict[str, str] | None) -> None:
        with self._condition:
            self._devices = devices
            self._version += 1
            self._condition.notify_all()

    def GetPreferredAllocation(
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        asked = request.container_requests[0]
        chosen = sorted(asked.available_deviceIDs, reverse=True)[: asked.allocation_size]
        return pb.PreferredAllocationResponse(
            container_responses=[pb.ContainerPreferredAllocationResponse(deviceIDs=chosen)]
        )

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:
        if self.fail:
            context.abort(grpc.StatusCode.INTERNAL, self.fail)
        ids = list(request.container_requests[0].devices_ids)
        self.allocated.append(ids)
        response = pb.ContainerAllocateResponse(
            envs={"THINGS": ",".join(ids)},
            devices=[pb.DeviceSpec(host_path="/dev/thing0", container_path="/dev/thing0", permissions="rw")],
            cdi_devices=[pb.CDIDevice(name="example.dev/thing=0")],
        )
        return pb.AllocateResponse(container_responses=[response])

    def PreStartContainer(
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        self.started.append(list(request.devices_ids))
        return pb.PreStartContainerResponse()


@pytest.fixture
def kubelet(node: Node) -> FakeKubelet:
    return node.start_kubelet()


@pytest.fixture
def things(node: Node, kubelet: FakeKubelet) -> Iterator[Things]:
    """The plugin's server on things.sock, not registered."""
    things = Things()
    server = grpc.server(ThreadPoolExecutor(4))
    pb_grpc.add_DevicePluginServicer_to_server(things, server)
    server.add_insecure_port(f"unix:{node.device_plugins_dir / 'things.sock'}")
    server.start()
    yield things
    things.put(None)
    server.stop(0).wait()


def register(node: Node, *, version: str = "v1beta1", resource: str = RESOURCE, preferred: bool = False) -> None:
    with grpc.insecure_channel(f"unix:{node.device_plugins_dir / 'kubelet.sock'}") as channel:
        request = pb.RegisterRequest(
            version=version,
            endpoint="things.sock",
            resource_name=resource,
            options=pb.DevicePluginOptions(get_preferred_allocation_available=preferred, pre_start_required=preferred),
        )
        pb_grpc.RegistrationStub(channel).Register(request, timeout=5)


def healthy(*ids: str) -> dict[str, str]:
    return dict.fromkeys(ids, "Healthy")


def test_a_plugin_registers_and_its_devices_are_allocatable(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    register(node)
    things.put({"a": "Healthy", "b": "Unhealthy", "c": "Healthy"})
    kubelet.wait_allocatable(RESOURCE, 2)
    things.put(healthy("a", "b", "c"))
    kubelet.wait_allocatable(RESOURCE, 3)


def test_a_container_gets_what_the_plugin_answers(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    register(node)
    things.put(healthy("a", "b"))
    kubelet.wait_allocatable(RESOURCE, 2)
    allocation = kubelet.allocate(RESOURCE, 2)
    assert allocation.ids == ("a", "b")
    assert allocation.envs == {"THINGS": "a,b"}
    assert allocation.devices == (DeviceNode("/dev/thing0", "/dev/thing0", "rw"),)
    assert allocation.cdi_devices == ("example.dev/thing=0",)
    assert things.started == [], "not asked for"


def test_the_plugins_preference_and_its_start_hook_are_heeded(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    register(node, preferred=True)
    things.put(healthy("a", "b", "c"))
    kubelet.wait_allocatable(RESOURCE, 3)
    assert kubelet.allocate(RESOURCE, 2).ids == ("c", "b")
    assert things.started == [["c", "b"]]


def test_what_is_allocated_is_not_given_again_until_it_is_free(
    node: Node, kubelet: FakeKubelet, things: Things
) -> None:
    register(node)
    things.put(healthy("a", "b"))
    kubelet.wait_allocatable(RESOURCE, 2)
    first = kubelet.allocate(RESOURCE, 1)
    assert kubelet.devices.available() == {RESOURCE: 1}
    assert kubelet.allocatable() == {RESOURCE: 2}, "the node's status counts all"
    with pytest.raises(AllocationError, match=f"unavailable for {RESOURCE}. Requested: 2, Available: 1"):
        kubelet.allocate(RESOURCE, 2)
    kubelet.free(first)
    assert kubelet.allocate(RESOURCE, 2).ids == ("a", "b")


def test_two_names_are_two_ledgers(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    things.put(healthy("a"))
    for resource in (RESOURCE, "example.dev/half"):
        register(node, resource=resource)
        kubelet.wait_allocatable(resource, 1)
    for resource in (RESOURCE, "example.dev/half"):
        kubelet.allocate(resource, 1)
    assert things.allocated == [["a"], ["a"]]


def test_an_unknown_resource_is_unavailable(kubelet: FakeKubelet) -> None:
    with pytest.raises(AllocationError, match="Requested: 1, Available: 0"):
        kubelet.allocate("example.dev/nothing", 1)


def test_a_plugin_that_fails_is_named(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    register(node)
    things.put(healthy("a"))
    kubelet.wait_allocatable(RESOURCE, 1)
    things.fail = "out of luck"
    with pytest.raises(AllocationError, match=f"device plugin for {RESOURCE} failed"):
        kubelet.allocate(RESOURCE, 1)
    assert kubelet.devices.available() == {RESOURCE: 1}


def test_another_api_version_is_refused(node: Node, kubelet: FakeKubelet) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        register(node, version="v1alpha")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert kubelet.allocatable() == {}


def test_when_the_list_ends_nothing_is_healthy(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    register(node)
    things.put(healthy("a"))
    kubelet.wait_allocatable(RESOURCE, 1)
    things.put(None)
    kubelet.wait_allocatable(RESOURCE, 0)


def test_registering_again_keeps_the_ledger(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    register(node)
    things.put(healthy("a", "b"))
    kubelet.wait_allocatable(RESOURCE, 2)
    kubelet.allocate(RESOURCE, 1)
    things.put(None)
    kubelet.wait_allocatable(RESOURCE, 0)
    things.put(healthy("a", "b"))
    register(node)
    kubelet.wait_allocatable(RESOURCE, 2)
    assert kubelet.devices.available() == {RESOURCE: 1}


def test_a_restart_forgets_plugins_and_clears_the_folder(node: Node, kubelet: FakeKubelet, things: Things) -> None:
    register(node)
    things.put(healthy("a"))
    kubelet.wait_allocatable(RESOURCE, 1)
    kubelet.restart()
    assert kubelet.allocatable() == {}
    assert [path.name for path in node.device_plugins_dir.iterdir()] == ["kubelet.sock"]


def test_waiting_for_too_much_says_what_there_is(kubelet: FakeKubelet) -> None:
    waits: Callable[[], None] = lambda: kubelet.wait_allocatable(RESOURCE, 1, timeout=0.05)  # noqa: E731
    with pytest.raises(TimeoutError, match=rf"not 1 of {RESOURCE} after 0.05 s but \{{\}}"):
        waits()
    eventually(lambda: kubelet.allocatable() == {})
