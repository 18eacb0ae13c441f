"""The device plugin over real sockets: two names, two ledgers, the same cores twice."""

from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from dra_driver.errors import KubeletError
from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2 as pb
from dra_driver.kubelet.api import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from dra_driver.legacy.device_plugin import CHIP_RESOURCE, CORE_RESOURCE, DevicePlugin
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.kubelet_devices import DeviceManager, DeviceNode

MakeMachine = Callable[[int, int], Machine]
DEADLINE = 10.0


def wait_for(manager: DeviceManager, allocatable: dict[str, int]) -> None:
    assert manager.wait_for(lambda: manager.allocatable() == allocatable, DEADLINE), manager.allocatable()


def test_both_names_are_advertised_for_the_same_chip(
    manager: DeviceManager, folder: Path, make_machine: MakeMachine
) -> None:
    with DevicePlugin(make_machine(1, 2), folder) as plugin:
        wait_for(manager, {CHIP_RESOURCE: 1, CORE_RESOURCE: 2})
        assert len(set(plugin.sockets.values())) == 2
        assert all(path.is_socket() for path in plugin.sockets.values())


def test_a_chip_and_its_cores_are_allocated_at_once(
    manager: DeviceManager, folder: Path, make_machine: MakeMachine
) -> None:
    """The fault: the second ledger doesn't know what the first one gave away."""
    with DevicePlugin(make_machine(1, 2), folder) as plugin:
        wait_for(manager, {CHIP_RESOURCE: 1, CORE_RESOURCE: 2})
        chip = manager.allocate(CHIP_RESOURCE, 1)
        assert manager.available() == {CHIP_RESOURCE: 0, CORE_RESOURCE: 2}
        cores = manager.allocate(CORE_RESOURCE, 2)
        node = DeviceNode("/dev/neuron0", "/dev/neuron0", "rw")
        assert (chip.devices, chip.envs) == ((node,), {})
        assert (cores.devices, cores.envs) == ((node,), {"NEURON_RT_VISIBLE_CORES": "0-1"})
        behind = [plugin.ledgers[each.resource].grant(each.ids).cores for each in (chip, cores)]
        assert behind == [((0, 0), (0, 1)), ((0, 0), (0, 1))]


def test_nodes_are_renumbered_and_cores_counted_from_the_first(
    manager: DeviceManager, folder: Path, make_machine: MakeMachine
) -> None:
    with DevicePlugin(make_machine(4, 2), folder):
        wait_for(manager, {CHIP_RESOURCE: 4, CORE_RESOURCE: 8})
        first = manager.allocate(CORE_RESOURCE, 3)
        second = manager.allocate(CORE_RESOURCE, 2)
        assert first.ids == ("neuroncore0-0", "neuroncore0-1", "neuroncore1-0")
        assert [node.container_path for node in first.devices] == ["/dev/neuron0", "/dev/neuron1"]
        assert first.envs == {"NEURON_RT_VISIBLE_CORES": "0-2"}
        assert [(node.host_path, node.container_path) for node in second.devices] == [
            ("/dev/neuron1", "/dev/neuron0"),
            ("/dev/neuron2", "/dev/neuron1"),
        ]
        assert second.envs == {"NEURON_RT_VISIBLE_CORES": "1-2"}


def test_chips_come_contiguous(manager: DeviceManager, folder: Path, make_machine: MakeMachine) -> None:
    with DevicePlugin(make_machine(4, 2), folder):
        wait_for(manager, {CHIP_RESOURCE: 4, CORE_RESOURCE: 8})
        one = manager.allocate(CHIP_RESOURCE, 1)
        assert manager.allocate(CHIP_RESOURCE, 2).ids == ("neuron1", "neuron2")
        manager.free(one)
        assert manager.allocate(CHIP_RESOURCE, 2).ids == ("neuron0", "neuron3")


def test_names_can_be_chosen(manager: DeviceManager, folder: Path, make_machine: MakeMachine) -> None:
    with DevicePlugin(make_machine(1, 8), folder, chips="test.dev/chip", cores="test.dev/core", lnc=2):
        wait_for(manager, {"test.dev/chip": 1, "test.dev/core": 4})


def test_stopped_it_leaves_no_socket_and_counts_as_zero(
    manager: DeviceManager, folder: Path, make_machine: MakeMachine
) -> None:
    with DevicePlugin(make_machine(1, 2), folder):
        wait_for(manager, {CHIP_RESOURCE: 1, CORE_RESOURCE: 2})
    wait_for(manager, {CHIP_RESOURCE: 0, CORE_RESOURCE: 0})
    assert [path.name for path in folder.iterdir()] == ["kubelet.sock"]


def test_without_a_kubelet_it_says_so_and_leaves_nothing(folder: Path, make_machine: MakeMachine) -> None:
    with pytest.raises(KubeletError, match=r"can't register aws\.amazon\.com/neuron at .*kubelet\.sock"):
        DevicePlugin(make_machine(1, 2), folder).start()
    assert list(folder.iterdir()) == []


def test_a_kubelet_that_refuses_is_quoted(
    manager: DeviceManager, folder: Path, make_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_driver.legacy.device_plugin.VERSION", "v1alpha")
    with pytest.raises(KubeletError, match="requested API version 'v1alpha' is not supported"):
        DevicePlugin(make_machine(1, 2), folder).start()
    assert manager.allocatable() == {}


def test_a_folder_that_is_missing_is_named(folder: Path, make_machine: MakeMachine) -> None:
    with pytest.raises(KubeletError, match="doesn't exist"):
        DevicePlugin(make_machine(1, 2), folder / "gone").start()


def test_an_id_that_it_does_not_have_is_refused(
    manager: DeviceManager, folder: Path, make_machine: MakeMachine
) -> None:
    with DevicePlugin(make_machine(1, 2), folder) as plugin:
        with grpc.insecure_channel(f"unix:{plugin.sockets[CHIP_RESOURCE]}") as channel:
            stub = pb_grpc.DevicePluginStub(channel)
            asked = pb.ContainerAllocateRequest(devices_ids=["neuroncore0-0"])
            with pytest.raises(grpc.RpcError, match="'neuroncore0-0' is no device of this resource") as caught:
                stub.Allocate(pb.AllocateRequest(container_requests=[asked]), timeout=DEADLINE)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_options_and_the_call_before_a_start(manager: DeviceManager, folder: Path, make_machine: MakeMachine) -> None:
    with DevicePlugin(make_machine(1, 2), folder) as plugin:
        with grpc.insecure_channel(f"unix:{plugin.sockets[CORE_RESOURCE]}") as channel:
            stub = pb_grpc.DevicePluginStub(channel)
            options = stub.GetDevicePluginOptions(pb.Empty(), timeout=DEADLINE)
            stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["neuroncore0-0"]), timeout=DEADLINE)
        assert options.get_preferred_allocation_available
        assert not options.pre_start_required


def test_a_list_that_is_cancelled_frees_its_worker(
    manager: DeviceManager, folder: Path, make_machine: MakeMachine
) -> None:
    """More lists than workers, one after the other: a leaked one would block the last."""
    with DevicePlugin(make_machine(1, 2), folder) as plugin:
        for _ in range(12):
            with grpc.insecure_channel(f"unix:{plugin.sockets[CHIP_RESOURCE]}") as channel:
                stream = pb_grpc.DevicePluginStub(channel).ListAndWatch(pb.Empty(), timeout=DEADLINE)
                assert [device.ID for device in next(stream).devices] == ["neuron0"]
                stream.cancel()
