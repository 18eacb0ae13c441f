"""Socket files: whose they are, their modes, what dead instances leave, what is gone after a stop."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from pathlib import Path

import grpc
import pytest

from dra_driver.errors import KubeletError
from dra_driver.kubelet import sockets
from dra_driver.kubelet.api import dra_v1_pb2 as dra
from dra_driver.kubelet.api import dra_v1_pb2_grpc as dra_grpc
from dra_driver.kubelet.types import ClaimRef
from dra_driver.simulator.kubelet import Timing
from tests.contract.kubelet.conftest import DRIVER, Node, claim, eventually

# As the real one looks: a connection is closed some time after the socket is gone, not within milliseconds.
REAL_TICK = Timing(tick=1.0)


def dead_socket(path: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_bc010_modes_don_t_follow_the_umask(node: Node, umask: int) -> None:
    node.kubelet()
    before = os.umask(umask)
    try:
        plugin = node.start_plugin()
        during = os.umask(umask)
    finally:
        os.umask(before)
    assert during == umask, "the process's own umask is back"
    assert [mode(path) for path in plugin.sockets] == [0o700, 0o700]


def test_bc010_the_plugin_folder_is_the_drivers_own(node: Node) -> None:
    node.kubelet()
    node.start_plugin()
    assert mode(node.plugin_dir) == 0o750


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_bc010_another_user_can_t_call(node: Node) -> None:
    node.kubelet()
    plugin = node.start_plugin()
    node.root.chmod(0o755)
    for folder in (node.plugins_dir, node.plugin_dir):
        folder.chmod(0o755)
    code = (
        "import os, socket; os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"socket.socket(socket.AF_UNIX).connect({str(plugin.sockets[0])!r})"
    )
    run = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=False)
    assert b"PermissionError" in run.stderr


def test_bc002_dead_sockets_go_and_live_ones_stay(node: Node) -> None:
    node.kubelet()
    node.plugin_dir.mkdir()
    dead = [
        dead_socket(node.registry_dir / f"{DRIVER}-old-1-reg.sock"),
        dead_socket(node.registry_dir / f".{DRIVER}-old-2-reg.sock"),
        dead_socket(node.plugin_dir / "dra-old-1.sock"),
    ]
    foreign = dead_socket(node.registry_dir / "other.example.dev-old-reg.sock")
    live = node.start_plugin("live")
    assert not any(path.exists() for path in dead)
    assert foreign.exists()
    node.start_plugin("next")
    assert all(path.exists() for path in live.sockets)


def test_bc002_a_live_socket_with_nobody_accepting_is_left_alone(node: Node) -> None:
    """A frozen instance: its backlog is full, a connect doesn't return."""
    node.kubelet()
    with socket.socket(socket.AF_UNIX) as frozen:
        path = node.registry_dir / f"{DRIVER}-frozen-reg.sock"
        frozen.bind(str(path))
        frozen.listen(0)
        with socket.socket(socket.AF_UNIX) as first:
            first.connect(str(path))
            node.start_plugin()
            assert path.exists()


def test_a_plain_file_that_has_the_name_is_in_the_way(node: Node) -> None:
    node.kubelet()
    path = node.registry_dir / f"{DRIVER}-uid-1-reg.sock"
    path.write_text("precious")
    with pytest.raises(KubeletError, match=f"can't serve {path}: the name is taken"):
        node.plugin().start()
    assert path.read_text() == "precious"
    assert list(node.plugin_dir.iterdir()) == []


def test_two_processes_with_one_instance_name_don_t_steal_from_each_other(node: Node) -> None:
    node.kubelet()
    first = node.start_plugin("same")
    with pytest.raises(KubeletError, match="an instance with the same name that still runs"):
        node.plugin("same").start()
    with grpc.insecure_channel(f"unix:{first.sockets[0]}") as channel:
        answer = dra_grpc.DRAPluginStub(channel).NodePrepareResources(dra.NodePrepareResourcesRequest(), timeout=5)
    assert not answer.claims


def test_a_container_that_restarts_in_its_pod_takes_its_old_name(node: Node) -> None:
    node.kubelet()
    node.plugin_dir.mkdir()
    dead_socket(node.plugin_dir / "dra-uid-1.sock")
    dead_socket(node.registry_dir / f"{DRIVER}-uid-1-reg.sock")
    plugin = node.start_plugin("uid-1")
    assert node.files() == {path.name for path in plugin.sockets}


def test_only_one_socket_appears_at_a_time_and_only_when_it_answers(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the kubelet's watcher could see at each rename: DRA first, and it answers by then."""
    node.kubelet()
    seen: list[tuple[str, bool]] = []
    rename = Path.rename

    def watched(self: Path, target: Path) -> Path:
        result = rename(self, target)
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(5)
            seen.append((target.name, client.connect_ex(str(target)) == 0))
        return result

    monkeypatch.setattr(Path, "rename", watched)
    node.start_plugin()
    assert seen == [("dra-uid-1.sock", True), (f"{DRIVER}-uid-1-reg.sock", True)]


def test_bc001_after_a_stop_no_socket_is_left(node: Node) -> None:
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    eventually(lambda: plugin.confirmed)
    plugin.stop()
    assert node.files() == set()
    assert not plugin.confirmed
    eventually(lambda: kubelet.plugins.drivers() == [], "the kubelet let it go")


def test_bc001_after_a_kill_the_next_instance_is_the_only_one(node: Node) -> None:
    node.kubelet()
    code = (
        "import sys, threading; from pathlib import Path; from dra_driver.kubelet.plugin import KubeletPlugin\n"
        f"p = KubeletPlugin(driver_name={DRIVER!r}, plugins_dir=Path({str(node.plugins_dir)!r}),"
        f" registry_dir=Path({str(node.registry_dir)!r}), instance='killed', service=None, health=list,"
        " on_registration=lambda state: None)\n"
        "p.start(); print('up', flush=True); threading.Event().wait()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    assert node.files() == {"dra-killed.sock", f"{DRIVER}-killed-reg.sock"}
    plugin = node.start_plugin("next")
    assert node.files() == {path.name for path in plugin.sockets}
    kubelet = node.start_kubelet()
    kubelet.wait_registered(DRIVER)


def test_a_stop_waits_for_a_call_in_flight(node: Node) -> None:
    """Both sockets stay until it is answered; its answer arrives."""
    kubelet = node.start_kubelet(REAL_TICK)
    plugin = node.start_plugin()
    eventually(lambda: plugin.confirmed)
    node.claims.hold = threading.Event()
    prepared: list[object] = []
    pod = threading.Thread(target=lambda: prepared.append(kubelet.prepare_pod("pod", [claim("a")])))
    pod.start()
    assert node.claims.entered.wait(10)
    stop = threading.Thread(target=plugin.stop)
    stop.start()
    stop.join(0.2)
    assert stop.is_alive()
    assert node.files() == {path.name for path in plugin.sockets}
    node.claims.hold.set()
    for thread in (pod, stop):
        thread.join(10)
    assert len(prepared) == 1
    assert node.files() == set()


def test_a_stop_doesn_t_wait_for_ever(node: Node) -> None:
    kubelet = node.start_kubelet()
    plugin = node.start_plugin()
    eventually(lambda: plugin.confirmed)
    node.claims.hold = threading.Event()
    failures: list[Exception] = []

    def pod() -> None:
        try:
            kubelet.prepare_pod("pod", [claim("a")])
        except Exception as error:  # noqa: BLE001 -- looked at below
            failures.append(error)

    thread = threading.Thread(target=pod)
    thread.start()
    assert node.claims.entered.wait(10)
    plugin.stop(grace=0.1)
    assert node.files() == set()
    thread.join(10)
    node.claims.hold.set()
    assert len(failures) == 1
    assert "rpc error" in str(failures[0])


def test_a_lost_pair_answers_its_calls_before_it_goes(node: Node) -> None:
    kubelet = node.start_kubelet(REAL_TICK)
    plugin = node.start_plugin()
    eventually(lambda: plugin.confirmed)
    node.claims.hold = threading.Event()
    prepared: list[object] = []
    pod = threading.Thread(target=lambda: prepared.append(kubelet.prepare_pod("pod", [claim("a")])))
    pod.start()
    assert node.claims.entered.wait(10)
    plugin.sockets[0].unlink()
    eventually(lambda: plugin.confirmed)
    node.claims.hold.set()
    pod.join(10)
    assert len(prepared) == 1


def test_two_instances_serve_side_by_side(node: Node) -> None:
    """A rolling update: the newer one gets the calls, and the older one's end doesn't touch it."""
    kubelet = node.start_kubelet()
    old = node.start_plugin("old")
    eventually(lambda: old.confirmed)
    new = node.start_plugin("new")
    eventually(lambda: new.confirmed)
    assert kubelet.plugins.endpoints(DRIVER) == [str(old.sockets[0]), str(new.sockets[0])]
    old.stop()
    eventually(lambda: kubelet.plugins.endpoints(DRIVER) == [str(new.sockets[0])])
    kubelet.prepare_pod("pod", [claim("a")])
    assert new.confirmed
    assert node.wiped == [None]


def test_a_plugin_folder_without_a_parent_is_said(node: Node) -> None:
    with pytest.raises(KubeletError, match="nowhere doesn't exist; check the kubelet's --root-dir"):
        sockets.prepare_plugin_dir(node.root / "nowhere" / DRIVER)


def test_a_plugin_folder_that_can_t_be_made_is_said() -> None:
    with pytest.raises(KubeletError, match=f"can't make the plugin folder /proc/{DRIVER}"):
        sockets.prepare_plugin_dir(Path("/proc") / DRIVER)


def test_a_claim_can_be_asked_for_as_soon_as_the_socket_is_there(node: Node) -> None:
    node.kubelet()
    plugin = node.start_plugin()
    with grpc.insecure_channel(f"unix:{plugin.sockets[0]}") as channel:
        request = dra.NodePrepareResourcesRequest(claims=[dra.Claim(namespace="n", name="a", uid="u")])
        answer = dra_grpc.DRAPluginStub(channel).NodePrepareResources(request, timeout=5)
    assert answer.claims["u"].devices[0].cdi_device_ids == [f"{DRIVER}/claim=u"]
    assert str(ClaimRef("n", "a", "u")) == "n/a (u)"
