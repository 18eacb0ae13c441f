"""Health streams: full snapshot first, on change and on a beat, ended with OK, nothing left behind."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_driver.kubelet.api import dra_health_v1_pb2 as v1
from dra_driver.kubelet.api import dra_health_v1_pb2_grpc as v1_grpc
from dra_driver.kubelet.api import dra_health_v1alpha1_pb2 as v1alpha1
from dra_driver.kubelet.api import dra_health_v1alpha1_pb2_grpc as v1alpha1_grpc
from dra_driver.kubelet.endpoint import CALL_WORKERS
from dra_driver.kubelet.health import MAX_STREAMS
from dra_driver.kubelet.plugin import KubeletPlugin
from dra_driver.kubelet.plugin import Timing as PluginTiming
from dra_driver.kubelet.types import DeviceHealth, DeviceState
from dra_driver.simulator.kubelet import Timing
from dra_driver.simulator.kubelet_channel import open_channel
from dra_driver.simulator.kubelet_health import HealthCache, HealthStream
from tests.contract.kubelet.conftest import DRIVER, Node, claim, eventually

WORKERS = CALL_WORKERS + MAX_STREAMS
VERSIONS: dict[str, Callable[[grpc.Channel], Any]] = {
    "v1": lambda channel: v1_grpc.DRAResourceHealthStub(channel).NodeWatchResources(v1.NodeWatchResourcesRequest()),
    "v1alpha1": lambda channel: v1alpha1_grpc.DRAResourceHealthStub(channel).NodeWatchResources(
        v1alpha1.NodeWatchResourcesRequest()
    ),
}


@contextmanager
def channel(plugin: KubeletPlugin) -> Iterator[grpc.Channel]:
    options = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(f"unix:{plugin.sockets[0]}", options=options) as opened:
        yield opened


def named(response: Any) -> dict[str, str]:
    return {device.device.device_name: v1.HealthStatus.Name(device.health) for device in response.devices}


def threads(*, workers: bool) -> int:
    """Threads of ours that do, or don't, belong to the DRA socket's pool."""
    return sum(thread.name.startswith("dra") == workers for thread in threading.enumerate())


def native_threads() -> int:
    """Threads of the process as the kernel counts them; gRPC's own come and go by a few."""
    return len(list(Path("/proc/self/task").iterdir()))


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def plugin(node: Node) -> KubeletPlugin:
    node.kubelet()
    return node.start_plugin()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_message_has_every_device(node: Node, plugin: KubeletPlugin, version: str) -> None:
    node.devices = [
        DeviceHealth("pool", "d0", DeviceState.HEALTHY),
        DeviceHealth("pool", "d1", DeviceState.UNHEALTHY, "12 uncorrected errors"),
        DeviceHealth("pool", "d2"),
    ]
    with channel(plugin) as opened:
        first = next(VERSIONS[version](opened))
    assert named(first) == {"d0": "HEALTHY", "d1": "UNHEALTHY", "d2": "UNKNOWN"}
    assert [device.device.pool_name for device in first.devices] == ["pool"] * 3
    assert first.devices[1].message == "12 uncorrected errors"
    assert {device.health_check_timeout_seconds for device in first.devices} == {30}
    assert all(abs(device.last_updated_time - time.time()) < 60 for device in first.devices)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_change_is_told_at_once_and_in_full(node: Node, plugin: KubeletPlugin, version: str) -> None:
    with channel(plugin) as opened:
        stream = VERSIONS[version](opened)
        next(stream)
        node.devices = [DeviceHealth("pool", "d0", DeviceState.UNHEALTHY), DeviceHealth("pool", "d1")]
        plugin.health_changed()
        assert named(next(stream)) == {"d0": "UNHEALTHY", "d1": "UNKNOWN"}


def test_it_is_repeated_without_any_change(node: Node) -> None:
    """The kubelet shows a device as unknown that isn't reported again within 30 s."""
    node.kubelet()
    plugin = node.start_plugin(timing=PluginTiming(health_interval=0.05))
    with channel(plugin) as opened:
        stream = VERSIONS["v1"](opened)
        assert [named(next(stream)) for _ in range(4)] == [{"d0": "HEALTHY", "d1": "UNKNOWN"}] * 4


def test_the_beat_leaves_room_for_two_to_be_lost() -> None:
    assert PluginTiming().health_interval * 3 <= 30


def test_no_devices_are_a_report_too(node: Node, plugin: KubeletPlugin) -> None:
    node.devices = []
    with channel(plugin) as opened:
        assert named(next(VERSIONS["v1"](opened))) == {}


def test_bc088_a_hundred_connections_leave_nothing_behind(node: Node, plugin: KubeletPlugin) -> None:
    def connect() -> None:
        with channel(plugin) as opened:
            assert named(next(VERSIONS["v1"](opened))) == {"d0": "HEALTHY", "d1": "UNKNOWN"}

    for _ in range(MAX_STREAMS * 2):
        connect()
        eventually(lambda: plugin.open_health_streams == 0)
    others, native, files = threads(workers=False), native_threads(), descriptors()
    for _ in range(100):
        connect()
        eventually(lambda: plugin.open_health_streams == 0, "the worker is free again")
    assert threads(workers=True) <= WORKERS, "a pool grows as it likes up to its size"
    eventually(lambda: threads(workers=False) <= others, f"{others} other threads before")
    eventually(lambda: native_threads() <= native + WORKERS + 8, f"{native} threads in all before")
    eventually(lambda: descriptors() <= files + 8, f"{files} descriptors before")


def test_bc088_open_streams_leave_workers_for_claims(node: Node) -> None:
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    kubelet.wait_registered(DRIVER)
    eventually(lambda: plugin.open_health_streams == 1)
    with channel(plugin) as opened:
        streams = [VERSIONS["v1"](opened) for _ in range(MAX_STREAMS - 1)]
        for stream in streams:
            next(stream)
        with pytest.raises(grpc.RpcError) as caught:
            next(VERSIONS["v1"](opened))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        kubelet.prepare_pod("pod", [claim("a")])
        streams[0].cancel()
        eventually(lambda: plugin.open_health_streams == MAX_STREAMS - 1)
        assert named(next(VERSIONS["v1"](opened))), "a place that is free is given again"


def test_a_stop_ends_the_stream_with_ok(node: Node, plugin: KubeletPlugin) -> None:
    with channel(plugin) as opened:
        stream = VERSIONS["v1"](opened)
        next(stream)
        ended: list[object] = []
        reader = threading.Thread(target=lambda: ended.append(list(stream)))
        reader.start()
        plugin.stop()
        reader.join(10)
        assert ended == [[]]
        assert stream.code() is grpc.StatusCode.OK


def test_the_kubelet_shows_health_and_forgets_it_quietly_at_the_stop(node: Node) -> None:
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    assert kubelet.health.wait_for(lambda: len(kubelet.health.states(DRIVER)) == 2, 10)
    assert kubelet.health.states(DRIVER) == {("pool", "d0"): "HEALTHY", ("pool", "d1"): "UNKNOWN"}
    plugin.stop()
    assert kubelet.health.wait_for(lambda: kubelet.health.ends != [], 10)
    assert kubelet.health.ends[0] == (DRIVER, "OK")
    assert kubelet.health.states(DRIVER) == {}


def test_a_report_that_fails_costs_one_beat_not_the_stream(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.kubelet()
    asked: list[int] = []

    def report() -> list[DeviceHealth]:
        asked.append(len(asked))
        if asked == [0]:
            raise RuntimeError("sysfs is away")
        return [DeviceHealth("pool", "d0", DeviceState.HEALTHY)]

    plugin = KubeletPlugin(
        driver_name=DRIVER,
        plugins_dir=node.plugins_dir,
        registry_dir=node.registry_dir,
        instance="i",
        service=node.claims,
        health=report,
        on_registration=node.states.append,
        timing=PluginTiming(health_interval=0.05),
    )
    plugin.start()
    node.cleanup.append(plugin.stop)
    with channel(plugin) as opened:
        assert named(next(VERSIONS["v1"](opened))) == {"d0": "HEALTHY"}
    assert "sysfs is away" in caplog.text


def test_after_a_new_pair_the_kubelet_has_health_again(node: Node) -> None:
    kubelet = node.start_kubelet(Timing(tick=0.02, health_retry=0.05))
    plugin = node.start_plugin(timing=PluginTiming(health_interval=0.1, backoff_first=0.05))
    assert kubelet.health.wait_for(lambda: len(kubelet.health.states(DRIVER)) == 2, 10)
    plugin.sockets[0].unlink()
    eventually(lambda: len(kubelet.plugins.endpoints(DRIVER)) == 1 and plugin.confirmed)
    eventually(lambda: kubelet.health.ends != [], "the old instance's stream cleared what the new one said")
    assert kubelet.health.wait_for(lambda: len(kubelet.health.states(DRIVER)) == 2, 10)


def test_an_end_that_was_sent_before_the_kubelet_hangs_up_is_read(node: Node) -> None:
    """Closing a channel puts CANCELLED in the place of an OK that lies in the socket, and this kubelet is quick."""
    node.kubelet()  # makes the folders
    ends = []
    for number in range(20):
        plugin = node.start_plugin(instance=f"i{number}")
        opened = open_channel(plugin.sockets[0])
        cache = HealthCache()
        stream = HealthStream(DRIVER, ["v1.DRAResourceHealth"], opened, cache=cache, retry=60)
        stream.start()
        assert cache.wait_for(lambda cache=cache: cache.reports != [], 10)  # type: ignore[misc]
        plugin._current.streams.close(10)
        stream.stop()
        opened.close()
        stream.join()
        ends += [code for _, code in cache.ends]
        plugin.stop()
    assert ends == ["OK"] * 20
