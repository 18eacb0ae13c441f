"""The simulated kubelet is as strict and as forgetful as the real one: it is what the others are tested with."""

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments

import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from dra_driver.kubelet.api import dra_v1_pb2 as dra
from dra_driver.kubelet.api import dra_v1_pb2_grpc as dra_grpc
from dra_driver.kubelet.api import pluginregistration_v1_pb2 as pb
from dra_driver.kubelet.api import pluginregistration_v1_pb2_grpc as pb_grpc
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.kubelet.types import ClaimRef
from dra_driver.simulator.kubelet import FakeKubelet, PrepareError, Timing, UnprepareError
from tests.contract.kubelet.conftest import DRIVER, Node, claim, eventually


class Registrar(pb_grpc.RegistrationServicer):
    """Says whatever a test wants to have said."""

    def __init__(self, info: pb.PluginInfo) -> None:
        self.info = info
        self.asked = 0
        self.told: list[tuple[bool, str]] = []
        self.slow: threading.Event | None = None
        self.fail_notification = False

    def GetInfo(self, request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:
        self.asked += 1
        if self.slow:
            self.slow.wait(20)
        return self.info

    def NotifyRegistrationStatus(
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        self.told.append((request.plugin_registered, request.error))
        if self.fail_notification:
            context.abort(grpc.StatusCode.INTERNAL, "not in the mood")
        return pb.RegistrationStatusResponse()


class Odd(dra_grpc.DRAPluginServicer):
    """Breaks the rules of the DRA service, as told."""

    def __init__(self) -> None:
        self.answer = dra.NodePrepareResourcesResponse()

    def NodePrepareResources(
        self, request: dra.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra.NodePrepareResourcesResponse:
        return self.answer

    def NodeUnprepareResources(
        self, request: dra.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> dra.NodeUnprepareResourcesResponse:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not today")


@pytest.fixture
def kubelet(node: Node) -> FakeKubelet:
    return node.start_kubelet(Timing(tick=0.02, first_backoff=0.1, wipe_delay=0.3))


def serve(node: Node, path: Path, servicer: Registrar) -> SocketServer:
    server = SocketServer(
        path,
        add=lambda server: pb_grpc.add_RegistrationServicer_to_server(servicer, server),
        workers=4,
        name="registrar",
    )
    server.start()

    def stop() -> None:
        server.unlink()
        server.stop(0)

    node.cleanup.append(stop)
    return server


@pytest.fixture
def odd(node: Node, kubelet: FakeKubelet) -> Iterator[Odd]:
    """A registered driver that breaks rules."""
    odd = Odd()
    path = node.plugins_dir / "odd.sock"
    server = SocketServer(
        path, add=lambda server: dra_grpc.add_DRAPluginServicer_to_server(odd, server), workers=2, name="odd"
    )
    server.start()
    info = pb.PluginInfo(type="DRAPlugin", name=DRIVER, endpoint=str(path), supported_versions=["v1.DRAPlugin"])
    serve(node, node.registry_dir / "odd-reg.sock", Registrar(info))
    kubelet.wait_registered(DRIVER)
    yield odd
    server.unlink()
    server.stop(0)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (pb.PluginInfo(type="CSIPlugin", name="x", supported_versions=["v1.DRAPlugin"]), "plugin type: CSIPlugin"),
        (pb.PluginInfo(type="DRAPlugin", name="x", supported_versions=["v9.DRAPlugin"]), "v9.DRAPlugin"),
        (pb.PluginInfo(type="DRAPlugin", name="x", supported_versions=[]), "none"),
        (pb.PluginInfo(type="DRAPlugin", name="x", supported_versions=["v1.DRAResourceHealth"]), "no version"),
    ],
)
def test_what_it_doesn_t_take_it_refuses_with_a_text(
    node: Node, kubelet: FakeKubelet, info: pb.PluginInfo, text: str
) -> None:
    servicer = Registrar(info)
    serve(node, node.registry_dir / "x-reg.sock", servicer)
    eventually(lambda: servicer.told)
    registered, told = servicer.told[0]
    assert not registered
    assert text in told
    assert kubelet.plugins.drivers() == []


def test_it_tries_again_with_back_off(node: Node, kubelet: FakeKubelet) -> None:
    servicer = Registrar(pb.PluginInfo(type="CSIPlugin", name="x"))
    serve(node, node.registry_dir / "x-reg.sock", servicer)
    eventually(lambda: len(servicer.told) == 3)
    servicer.info = pb.PluginInfo(type="DRAPlugin", name="x", supported_versions=["v1.DRAPlugin"])
    eventually(lambda: servicer.told[-1] == (True, ""))
    assert kubelet.plugins.drivers() == ["x"]


def test_get_info_has_one_second(node: Node, kubelet: FakeKubelet) -> None:
    servicer = Registrar(pb.PluginInfo(type="DRAPlugin", name="x", supported_versions=["v1.DRAPlugin"]))
    servicer.slow = threading.Event()
    serve(node, node.registry_dir / "x-reg.sock", servicer)
    eventually(lambda: servicer.asked == 2, "given up and tried again")
    assert servicer.told == [], "nobody is told of that"
    servicer.slow.set()
    eventually(lambda: kubelet.plugins.drivers() == ["x"])


def test_a_failed_notification_takes_the_registration_back(node: Node, kubelet: FakeKubelet) -> None:
    servicer = Registrar(pb.PluginInfo(type="DRAPlugin", name="x", supported_versions=["v1.DRAPlugin"]))
    servicer.fail_notification = True
    serve(node, node.registry_dir / "x-reg.sock", servicer)
    eventually(lambda: len(servicer.told) == 2)
    servicer.fail_notification = False
    eventually(lambda: kubelet.plugins.drivers() == ["x"])


def test_an_endpoint_is_registered_once(node: Node, kubelet: FakeKubelet) -> None:
    info = pb.PluginInfo(type="DRAPlugin", name="x", endpoint="/e.sock", supported_versions=["v1.DRAPlugin"])
    first, second = Registrar(info), Registrar(info)
    serve(node, node.registry_dir / "1.sock", first)
    eventually(lambda: first.told == [(True, "")])
    serve(node, node.registry_dir / "2.sock", second)
    eventually(lambda: second.told)
    assert "/e.sock already registered" in second.told[0][1]


def test_dot_names_and_plain_files_don_t_count(node: Node, kubelet: FakeKubelet) -> None:
    hidden, shown = (
        Registrar(pb.PluginInfo(type="DRAPlugin", name=name, supported_versions=["v1.DRAPlugin"]))
        for name in ("hidden", "shown")
    )
    serve(node, node.registry_dir / ".hidden.sock", hidden)
    (node.registry_dir / "note.txt").write_text("no socket")
    serve(node, node.registry_dir / "shown.sock", shown)
    eventually(lambda: kubelet.plugins.drivers() == ["shown"])
    assert hidden.asked == 0


def test_sockets_in_subfolders_count(node: Node, kubelet: FakeKubelet) -> None:
    (node.registry_dir / "sub").mkdir()
    servicer = Registrar(pb.PluginInfo(type="DRAPlugin", name="x", supported_versions=["v1.DRAPlugin"]))
    serve(node, node.registry_dir / "sub" / "x.sock", servicer)
    eventually(lambda: kubelet.plugins.drivers() == ["x"])


def test_an_endpoint_that_never_answers_costs_the_slices(node: Node, kubelet: FakeKubelet) -> None:
    info = pb.PluginInfo(type="DRAPlugin", name="x", endpoint="/e.sock", supported_versions=["v1.DRAPlugin"])
    serve(node, node.registry_dir / "x.sock", Registrar(info))
    eventually(lambda: node.wiped == [None, "x"])
    with pytest.raises(TimeoutError, match=r"x isn't registered and connected after 0\.1 s; known: x"):
        kubelet.wait_registered("x", timeout=0.1)


def test_a_dead_driver_loses_its_slices_although_its_sockets_stay(node: Node, kubelet: FakeKubelet) -> None:
    """Its connection decides, not its files."""
    plugin = node.plugin()
    plugin.start()
    kubelet.wait_registered(DRIVER)
    plugin._current._dra._server.stop(0).wait()
    eventually(lambda: node.wiped == [None, DRIVER])
    plugin.stop()


def test_two_restarts_of_a_driver_within_the_delay_keep_the_slices(node: Node) -> None:
    kubelet = node.start_kubelet()
    for number in range(3):
        plugin = node.plugin(f"i{number}")
        plugin.start()
        kubelet.wait_registered(DRIVER)
        plugin.stop()
        eventually(lambda: kubelet.plugins.drivers() == [])
    assert node.wiped == [None]


def test_without_a_driver_the_pod_is_told(node: Node, kubelet: FakeKubelet) -> None:
    with pytest.raises(PrepareError, match=f"DRA driver {DRIVER} is not registered"):
        kubelet.prepare_pod("pod", [claim("a")], driver=DRIVER)
    with pytest.raises(PrepareError, match="say which driver: none registered"):
        kubelet.prepare_pod("pod", [claim("a")])


def test_a_claim_is_named_once(node: Node, kubelet: FakeKubelet) -> None:
    node.start_plugin()
    kubelet.wait_registered(DRIVER)
    kubelet.prepare_pod("p1", [claim("shared"), claim("own-1")])
    prepared = kubelet.prepare_pod("p2", [claim("shared"), claim("own-2")])
    assert node.claims.prepares == [["shared", "own-1"], ["own-2"]]
    assert set(prepared) == {"uid-of-shared", "uid-of-own-2"}
    kubelet.prepare_pod("p3", [claim("shared")])
    assert len(node.claims.prepares) == 2, "all prepared: no call"


def test_after_any_error_the_whole_call_comes_again(node: Node, kubelet: FakeKubelet) -> None:
    node.start_plugin()
    kubelet.wait_registered(DRIVER)
    node.claims.failing["b"] = "not now"
    with pytest.raises(PrepareError):
        kubelet.prepare_pod("pod", [claim("a"), claim("b")])
    del node.claims.failing["b"]
    kubelet.prepare_pod("pod", [claim("a"), claim("b")])
    assert node.claims.prepares == [["a", "b"], ["a", "b"]]


def test_a_failed_pod_is_unprepared_too(node: Node, kubelet: FakeKubelet) -> None:
    node.start_plugin()
    kubelet.wait_registered(DRIVER)
    node.claims.failing["a"] = "never"
    with pytest.raises(PrepareError):
        kubelet.prepare_pod("pod", [claim("a")])
    del node.claims.failing["a"]
    kubelet.unprepare_pod("pod")
    assert node.claims.unprepares == [["a"]]
    kubelet.unprepare_pod("pod")
    assert node.claims.unprepares == [["a"]], "it is forgotten"


def test_after_a_restart_a_prepared_claim_is_prepared_again(node: Node, kubelet: FakeKubelet) -> None:
    node.start_plugin()
    kubelet.wait_registered(DRIVER)
    kubelet.prepare_pod("p1", [claim("shared")])
    kubelet.restart()
    kubelet.wait_registered(DRIVER)
    kubelet.prepare_pod("p2", [claim("shared")])
    assert node.claims.prepares == [["shared"], ["shared"]]
    kubelet.unprepare_pod("p1")
    assert node.claims.unprepares == [], "the checkpoint remembered both pods"
    kubelet.unprepare_pod("p2")
    assert node.claims.unprepares == [["shared"]]


def test_the_same_name_with_another_uid_waits_for_the_old_one(node: Node, kubelet: FakeKubelet) -> None:
    node.start_plugin()
    kubelet.wait_registered(DRIVER)
    kubelet.prepare_pod("p1", [claim("a")])
    with pytest.raises(PrepareError, match="old ResourceClaim with same name a and different UID uid-of-a"):
        kubelet.prepare_pod("p2", [ClaimRef("default", "a", "another-uid")])


def test_a_container_gets_the_ids_of_its_requests(node: Node, kubelet: FakeKubelet) -> None:
    node.start_plugin()
    kubelet.wait_registered(DRIVER)
    kubelet.prepare_pod("pod", [claim("a"), claim("b")])
    ids = [f"{DRIVER}/claim=uid-of-a", f"{DRIVER}/claim=uid-of-b"]
    assert kubelet.cdi_ids([("uid-of-a", None), ("uid-of-b", "r0")]) == ids
    assert kubelet.cdi_ids([("uid-of-a", "r1")]) == [], "an unknown request is a container without the device"


def test_an_answer_with_an_unknown_claim_fails(odd: Odd, kubelet: FakeKubelet) -> None:
    odd.answer.claims["uid-of-x"].error = ""
    with pytest.raises(PrepareError, match="returned ResourceClaim uid-of-x"):
        kubelet.prepare_pod("pod", [claim("a")])


def test_an_answer_that_leaves_claims_out_fails(odd: Odd, kubelet: FakeKubelet) -> None:
    odd.answer.claims["uid-of-a"].error = ""
    with pytest.raises(PrepareError, match="skipped 1 ResourceClaims"):
        kubelet.prepare_pod("pod", [claim("a"), claim("b")])


def test_a_failed_call_is_worded_as_the_kubelet_does(odd: Odd, kubelet: FakeKubelet) -> None:
    odd.answer.claims["uid-of-a"].error = ""
    kubelet.prepare_pod("pod", [claim("a")])
    text = "NodeUnprepareResources: rpc error: code = FailedPrecondition desc = not today"
    with pytest.raises(UnprepareError, match=text):
        kubelet.unprepare_pod("pod")
    with pytest.raises(PrepareError, match="ResourceClaim a is being unprepared"):
        kubelet.prepare_pod("p2", [claim("a")])


def test_a_driver_that_advertises_no_health_isn_t_asked(odd: Odd, kubelet: FakeKubelet) -> None:
    kubelet.restart()
    kubelet.wait_registered(DRIVER)
    assert kubelet.health.ends == []
    assert kubelet.health.reports == []
