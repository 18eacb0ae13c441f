"""Prepare and Unprepare over the DRA socket, as the kubelet calls them and beyond."""

import logging
import threading
from collections.abc import Iterator

import grpc
import pytest

from dra_driver.kubelet.api import dra_v1_pb2 as pb
from dra_driver.kubelet.api import dra_v1_pb2_grpc as pb_grpc
from dra_driver.simulator.kubelet import FakeKubelet, PrepareError, UnprepareError
from tests.contract.kubelet.conftest import DRIVER, Node, claim, eventually


@pytest.fixture
def kubelet(node: Node) -> FakeKubelet:
    kubelet = node.start_kubelet()
    node.start_plugin()
    kubelet.wait_registered(DRIVER)
    return kubelet


@pytest.fixture
def stub(node: Node) -> Iterator[pb_grpc.DRAPluginStub]:
    node.kubelet()
    plugin = node.start_plugin()
    with grpc.insecure_channel(f"unix:{plugin.sockets[0]}") as channel:
        yield pb_grpc.DRAPluginStub(channel)


def wire(name: str) -> pb.Claim:
    ref = claim(name)
    return pb.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)


def prepare(stub: pb_grpc.DRAPluginStub, *names: str) -> dict[str, str]:
    """Error text by UID, empty where it went well."""
    request = pb.NodePrepareResourcesRequest(claims=map(wire, names))
    return {uid: one.error for uid, one in stub.NodePrepareResources(request, timeout=10).claims.items()}


def unprepare(stub: pb_grpc.DRAPluginStub, *names: str) -> dict[str, str]:
    request = pb.NodeUnprepareResourcesRequest(claims=map(wire, names))
    return {uid: one.error for uid, one in stub.NodeUnprepareResources(request, timeout=10).claims.items()}


def test_every_claim_is_answered_with_its_devices(kubelet: FakeKubelet, node: Node) -> None:
    prepared = kubelet.prepare_pod("pod", [claim("a"), claim("b")])
    assert {uid: [device.device for device in devices] for uid, devices in prepared.items()} == {
        "uid-of-a": ["a"],
        "uid-of-b": ["b"],
    }
    assert prepared["uid-of-a"][0].requests == ("r0",)
    assert prepared["uid-of-a"][0].pool == "pool"
    assert node.claims.prepares == [["a", "b"]]


def test_one_claims_fault_is_its_own(stub: pb_grpc.DRAPluginStub, node: Node) -> None:
    node.claims.failing["b"] = "device core-0-1 is held by another claim"
    assert prepare(stub, "a", "b") == {
        "uid-of-a": "",
        "uid-of-b": "device core-0-1 is held by another claim",
    }


def test_the_users_event_names_claim_and_reason(kubelet: FakeKubelet, node: Node) -> None:
    node.claims.failing["b"] = "no device core-7-0 on this node"
    with pytest.raises(
        PrepareError, match="NodePrepareResources failed for ResourceClaim b: no device core-7-0 on this node"
    ):
        kubelet.prepare_pod("pod", [claim("a"), claim("b")])


def test_a_claim_without_an_answer_gets_one(stub: pb_grpc.DRAPluginStub) -> None:
    answers = prepare(stub, "a", "unanswered")
    assert answers["uid-of-a"] == ""
    assert "gave no answer for this claim" in answers["uid-of-unanswered"]


def test_an_answer_that_nobody_asked_for_is_not_sent(
    stub: pb_grpc.DRAPluginStub, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = node.claims.prepare
    monkeypatch.setattr(node.claims, "prepare", lambda claims, call: answer([*claims, claim("extra")], call))
    assert set(prepare(stub, "a")) == {"uid-of-a"}


def test_an_exception_becomes_the_text_of_each_claim(
    stub: pb_grpc.DRAPluginStub, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.claims.failing["raise"] = "disk on fire"
    for call in (prepare, unprepare):
        answers = call(stub, "a", "b")
        assert set(answers) == {"uid-of-a", "uid-of-b"}
        assert all("unexpected RuntimeError in the driver: disk on fire" in text for text in answers.values())
    assert "Traceback" in caplog.text


def test_a_claim_that_is_named_twice_is_asked_for_once(stub: pb_grpc.DRAPluginStub, node: Node) -> None:
    assert set(prepare(stub, "a", "a")) == {"uid-of-a"}
    assert node.claims.prepares == [["a"]]


def test_no_claims_no_answers(stub: pb_grpc.DRAPluginStub) -> None:
    assert prepare(stub) == {}
    assert unprepare(stub) == {}


def test_unprepare_answers_success_with_an_empty_entry(stub: pb_grpc.DRAPluginStub, node: Node) -> None:
    node.claims.failing["b"] = "still in use"
    assert unprepare(stub, "a", "b") == {"uid-of-a": "", "uid-of-b": "still in use"}


def test_a_failed_unprepare_keeps_the_pod_and_is_tried_again(kubelet: FakeKubelet, node: Node) -> None:
    kubelet.prepare_pod("pod", [claim("a")])
    node.claims.failing["a"] = "still in use"
    with pytest.raises(UnprepareError, match="failed for ResourceClaim a: still in use"):
        kubelet.unprepare_pod("pod")
    del node.claims.failing["a"]
    kubelet.unprepare_pod("pod")
    assert node.claims.unprepares == [["a"], ["a"]]


def test_the_call_tells_the_kubelets_deadline(stub: pb_grpc.DRAPluginStub, node: Node) -> None:
    node.claims.hold = threading.Event()
    future = stub.NodePrepareResources.future(pb.NodePrepareResourcesRequest(claims=[wire("a")]), timeout=2)
    assert node.claims.entered.wait(10)
    call = node.claims.calls[0]
    error = future.exception(timeout=10)
    assert isinstance(error, grpc.RpcError)
    assert future.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    eventually(lambda: not call.is_active(), "nobody waits any more")
    eventually(lambda: call.time_remaining() == 0)
    node.claims.hold.set()


def test_a_call_without_a_deadline_has_none(stub: pb_grpc.DRAPluginStub, node: Node) -> None:
    node.claims.hold = threading.Event()
    future = stub.NodePrepareResources.future(pb.NodePrepareResourcesRequest(claims=[wire("a")]))
    assert node.claims.entered.wait(10)
    assert node.claims.calls[0].time_remaining() is None
    assert node.claims.calls[0].is_active()
    node.claims.hold.set()
    assert set(future.result(timeout=10).claims) == {"uid-of-a"}


def test_a_call_with_a_deadline_knows_what_is_left(stub: pb_grpc.DRAPluginStub, node: Node) -> None:
    node.claims.hold = threading.Event()
    future = stub.NodePrepareResources.future(pb.NodePrepareResourcesRequest(claims=[wire("a")]), timeout=45)
    assert node.claims.entered.wait(10)
    remaining = node.claims.calls[0].time_remaining()
    assert remaining is not None
    assert 30 < remaining <= 46, "gRPC rounds a deadline up"
    node.claims.hold.set()
    future.result(timeout=10)


def test_each_claim_leaves_a_line_with_uid_and_duration(
    stub: pb_grpc.DRAPluginStub, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "dra_driver.kubelet.dra_service")
    node.claims.failing["b"] = "held"
    prepare(stub, "a", "b")
    unprepare(stub, "a")
    lines = [record for record in caplog.records if record.name == "dra_driver.kubelet.dra_service"]
    told = [(r.__dict__["claim_uid"], r.__dict__["claim"], r.__dict__["outcome"]) for r in lines]
    assert told == [
        ("uid-of-a", "default/a", "done"),
        ("uid-of-b", "default/b", "failed"),
        ("uid-of-a", "default/a", "done"),
    ]
    assert all(0 <= record.__dict__["duration_s"] < 10 for record in lines)
    assert lines[1].levelno == logging.WARNING
    assert "held" in lines[1].getMessage()


def test_prepares_run_side_by_side(kubelet: FakeKubelet, node: Node) -> None:
    """Also of one claim that two pods share: the kubelet sends both at once."""
    node.claims.hold = threading.Event()
    pods = [threading.Thread(target=kubelet.prepare_pod, args=(f"pod-{i}", [claim("shared")])) for i in (0, 1)]
    for pod in pods:
        pod.start()
    eventually(lambda: node.claims.prepares == [["shared"], ["shared"]])
    node.claims.hold.set()
    for pod in pods:
        pod.join()
    kubelet.unprepare_pod("pod-0")
    assert node.claims.unprepares == []
    kubelet.unprepare_pod("pod-1")
    assert node.claims.unprepares == [["shared"]]
