"""Registration with the kubelet: confirmed, refused, repeated, lost, and told about."""

import re
import threading
import time
from functools import partial
from pathlib import Path

import grpc
import pytest

from dra_driver.errors import KubeletError
from dra_driver.kubelet.api import dra_v1_pb2, dra_v1_pb2_grpc
from dra_driver.kubelet.api import pluginregistration_v1_pb2 as pb
from dra_driver.kubelet.api import pluginregistration_v1_pb2_grpc as pb_grpc
from dra_driver.kubelet.plugin import KubeletPlugin
from dra_driver.kubelet.plugin import Timing as PluginTiming
from dra_driver.kubelet.types import RegistrationStatus
from dra_driver.simulator.kubelet import Timing
from tests.contract.kubelet.conftest import DRIVER, Node, claim, eventually

PENDING, CONFIRMED, REFUSED = RegistrationStatus


def get_info(path: Path, timeout: float = 1.0) -> pb.PluginInfo:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        return pb_grpc.RegistrationStub(channel).GetInfo(pb.InfoRequest(), timeout=timeout)


def notify(path: Path, *, registered: bool, error: str = "") -> None:
    with grpc.insecure_channel(f"unix:{path}") as channel:
        status = pb.RegistrationStatus(plugin_registered=registered, error=error)
        pb_grpc.RegistrationStub(channel).NotifyRegistrationStatus(status, timeout=5)


def has_name(plugin: KubeletPlugin, name: str) -> bool:
    return plugin.sockets[1].name == name


def statuses(node: Node) -> list[RegistrationStatus]:
    return [state.status for state in node.states]


def test_the_kubelet_finds_registers_and_confirms(node: Node) -> None:
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    kubelet.wait_registered(DRIVER)
    eventually(lambda: plugin.confirmed)
    assert kubelet.plugins.endpoints(DRIVER) == [str(node.plugin_dir / "dra-uid-1.sock")]
    eventually(lambda: statuses(node) == [PENDING, CONFIRMED], "both states were told")


def test_get_info_says_what_the_kubelet_needs(node: Node) -> None:
    node.kubelet()
    plugin = node.start_plugin()
    info = get_info(plugin.sockets[1])
    assert (info.type, info.name) == ("DRAPlugin", DRIVER)
    assert info.endpoint == str(plugin.sockets[0])
    assert Path(info.endpoint).is_absolute()
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]


def test_relative_folders_become_an_absolute_endpoint(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.kubelet()
    monkeypatch.chdir(node.root)
    plugin = KubeletPlugin(
        driver_name=DRIVER,
        plugins_dir=Path("plugins"),
        registry_dir=Path("plugins_registry"),
        instance="uid-1",
        service=node.claims,
        health=list,
        on_registration=node.states.append,
    )
    plugin.start()
    node.cleanup.append(plugin.stop)
    assert get_info(node.registry_dir / f"{DRIVER}-uid-1-reg.sock").endpoint == str(node.plugin_dir / "dra-uid-1.sock")


def test_bc003_get_info_is_quick_while_everything_else_is_slow(node: Node) -> None:
    """The registration socket has workers of its own."""
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    kubelet.wait_registered(DRIVER)
    node.claims.hold = threading.Event()
    pods = [threading.Thread(target=kubelet.prepare_pod, args=(f"pod-{i}", [claim(f"c{i}")])) for i in range(20)]
    for pod in pods:
        pod.start()
    assert node.claims.entered.wait(10)
    for _ in range(20):
        assert get_info(plugin.sockets[1], timeout=1.0).name == DRIVER
    assert any(pod.is_alive() for pod in pods)
    node.claims.hold.set()
    for pod in pods:
        pod.join()
    assert len(node.claims.prepares) == 20


def test_bc012_the_registrar_serves_for_life(node: Node) -> None:
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    for restart in range(5):
        kubelet.wait_registered(DRIVER)
        eventually(lambda: plugin.confirmed)
        kubelet.prepare_pod(f"pod-{restart}", [claim(f"c{restart}")])
        kubelet.restart()
    kubelet.wait_registered(DRIVER)
    assert plugin.sockets[1].name == f"{DRIVER}-uid-1-reg.sock", "no new name was needed"
    assert node.wiped == [None] * 6


def test_a_second_get_info_and_notification_change_nothing(node: Node) -> None:
    node.kubelet()
    plugin = node.start_plugin()
    for _ in range(5):
        assert get_info(plugin.sockets[1]).name == DRIVER
        notify(plugin.sockets[1], registered=True)
        assert plugin.confirmed
    eventually(lambda: len(node.states) == 2)
    assert statuses(node) == [PENDING, CONFIRMED]


def test_bc007_a_refusal_is_told_in_the_kubelets_words(node: Node) -> None:
    kubelet = node.start_kubelet()
    kubelet.refuse_registrations("no handler registered for plugin type: DRAPlugin")
    plugin = node.start_plugin(timing=PluginTiming(backoff_first=30))
    eventually(lambda: plugin.state.status is REFUSED)
    assert not plugin.confirmed
    assert "no handler registered for plugin type: DRAPlugin" in str(plugin.state)
    eventually(lambda: statuses(node) == [PENDING, REFUSED])


def test_bc007_after_a_refusal_a_new_name_is_offered(node: Node) -> None:
    kubelet = node.start_kubelet()
    kubelet.refuse_registrations("bad version")
    plugin = node.start_plugin()
    first = plugin.sockets
    eventually(lambda: plugin.sockets[1].name == f"{DRIVER}-uid-1-3-reg.sock", "two more names")
    kubelet.refuse_registrations(None)
    kubelet.wait_registered(DRIVER)
    eventually(lambda: plugin.confirmed)
    assert plugin.sockets != first
    eventually(lambda: node.files() == {path.name for path in plugin.sockets}, "old names are gone")
    kubelet.prepare_pod("pod", [claim("a")])


def test_bc007_the_kubelets_own_retry_may_come_first(node: Node) -> None:
    kubelet = node.start_kubelet(Timing(tick=0.02, first_backoff=0.05))
    kubelet.refuse_registrations("not yet")
    plugin = node.start_plugin(timing=PluginTiming(backoff_first=60))
    eventually(lambda: plugin.state.status is REFUSED)
    kubelet.refuse_registrations(None)
    eventually(lambda: plugin.confirmed)
    assert plugin.sockets[1].name == f"{DRIVER}-uid-1-reg.sock"


def test_bc007_without_any_notification_it_says_where_it_waits(node: Node) -> None:
    node.kubelet()
    plugin = node.start_plugin(timing=PluginTiming(confirm_within=0.1))
    eventually(lambda: "not confirmed within" in plugin.state.text)
    assert plugin.state.status is PENDING
    assert not plugin.confirmed
    assert str(node.registry_dir) in plugin.state.text
    eventually(lambda: len(node.states) == 2)
    assert node.states[-1] == plugin.state


def test_a_late_confirmation_still_counts(node: Node) -> None:
    node.kubelet()
    plugin = node.start_plugin(timing=PluginTiming(confirm_within=0.05))
    eventually(lambda: "not confirmed within" in plugin.state.text)
    notify(plugin.sockets[1], registered=True)
    assert plugin.confirmed


@pytest.mark.parametrize("which", [0, 1])
def test_a_vanished_socket_brings_a_new_pair(node: Node, which: int) -> None:
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    eventually(lambda: plugin.confirmed)
    first = plugin.sockets
    first[which].unlink()
    assert not plugin.confirmed, "looked at when asked, not when noticed"
    eventually(lambda: plugin.confirmed)
    kubelet.wait_registered(DRIVER)
    assert [path.name for path in plugin.sockets] == ["dra-uid-1-2.sock", f"{DRIVER}-uid-1-2-reg.sock"]
    eventually(lambda: node.files() == {path.name for path in plugin.sockets})
    eventually(lambda: kubelet.plugins.endpoints(DRIVER) == [str(plugin.sockets[0])])
    eventually(lambda: statuses(node) == [PENDING, CONFIRMED, PENDING, PENDING, CONFIRMED])
    assert str(first[which]) in node.states[2].text
    kubelet.prepare_pod("pod", [claim("a")])


def test_a_replaced_socket_is_not_ours_and_is_left_alone(node: Node) -> None:
    node.kubelet()
    plugin = node.start_plugin()
    mine = plugin.sockets[1]
    notify(mine, registered=True)
    mine.unlink()
    mine.write_text("somebody else's")
    assert not plugin.confirmed
    eventually(lambda: plugin.sockets[1] != mine)
    plugin.stop()
    assert mine.read_text() == "somebody else's"


def test_a_verdict_about_a_replaced_pair_does_not_count(node: Node) -> None:
    """The old registration server still answers, since a call keeps its pair alive."""
    node.kubelet()
    node.claims.hold = threading.Event()
    plugin = node.start_plugin()
    old = plugin.sockets
    with grpc.insecure_channel(f"unix:{old[1]}") as registrar, grpc.insecure_channel(f"unix:{old[0]}") as dra:
        stub = pb_grpc.RegistrationStub(registrar)
        stub.GetInfo(pb.InfoRequest(), timeout=5)
        request = dra_v1_pb2.NodePrepareResourcesRequest(claims=[dra_v1_pb2.Claim(uid="u", name="a")])
        call = dra_v1_pb2_grpc.DRAPluginStub(dra).NodePrepareResources.future(request, timeout=20)
        assert node.claims.entered.wait(10)
        old[1].unlink()
        eventually(lambda: plugin.sockets != old)
        stub.NotifyRegistrationStatus(pb.RegistrationStatus(plugin_registered=True), timeout=5)
        assert not plugin.confirmed
        assert plugin.state.status is PENDING
        node.claims.hold.set()
        assert not call.result(timeout=10).claims["u"].error


def test_sockets_that_keep_vanishing_are_made_anew_with_back_off(node: Node) -> None:
    """Without a confirmation in between it is as good as refused, and must not spin."""
    node.kubelet()
    started = time.monotonic()
    plugin = node.start_plugin(timing=PluginTiming(backoff_first=0.2))
    for number in range(2, 5):
        plugin.sockets[1].unlink()
        eventually(partial(has_name, plugin, f"{DRIVER}-uid-1-{number}-reg.sock"))
    assert time.monotonic() - started >= 0.1 + 0.2 + 0.4, "the least that jitter leaves of 0.2, 0.4 and 0.8"


def test_folders_that_are_removed_and_made_again(node: Node) -> None:
    kubelet = node.kubelet()
    kubelet.start()
    plugin = node.start_plugin()
    eventually(lambda: plugin.confirmed)
    kubelet.stop()
    for path in node.registry_dir.iterdir():
        path.unlink()
    node.registry_dir.rmdir()
    eventually(lambda: "registering again failed" in plugin.state.text)
    assert plugin.state.status is PENDING
    assert str(node.registry_dir) in plugin.state.text
    node.start_kubelet()
    eventually(lambda: plugin.confirmed)
    plugin.sockets[1].unlink()
    eventually(lambda: plugin.confirmed, "the watch follows the new folder")


def test_without_the_kubelets_folder_the_start_says_so(node: Node) -> None:
    node.plugins_dir.mkdir()
    with pytest.raises(KubeletError, match=rf"{node.registry_dir} doesn't exist; check the kubelet's --root-dir"):
        node.plugin().start()
    assert list(node.plugin_dir.iterdir()) == [], "nothing is left behind"


def test_an_error_of_the_listener_doesn_t_stop_the_watch(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    node.start_kubelet()

    class Picky(list[object]):
        def append(self, state: object) -> None:
            super().append(state)
            raise RuntimeError("the listener is broken")

    node.states = Picky()  # type: ignore[assignment]
    plugin = node.start_plugin()
    eventually(lambda: plugin.confirmed)
    plugin.sockets[1].unlink()
    eventually(lambda: plugin.confirmed)
    assert re.search("the listener is broken", caplog.text)
