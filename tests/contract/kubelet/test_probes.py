"""The health service that the kubelet's grpc probes ask."""

from collections.abc import Callable, Iterator

import grpc
import pytest

from dra_driver.errors import KubeletError
from dra_driver.kubelet.api import grpc_health_v1_pb2 as pb
from dra_driver.kubelet.api import grpc_health_v1_pb2_grpc as pb_grpc
from dra_driver.kubelet.probes import ProbeServer
from tests.contract.kubelet.conftest import eventually

SERVING, NOT_SERVING, SERVICE_UNKNOWN = (
    pb.HealthCheckResponse.SERVING,
    pb.HealthCheckResponse.NOT_SERVING,
    pb.HealthCheckResponse.SERVICE_UNKNOWN,
)


class Truth:
    """What the process would say of itself."""

    def __init__(self) -> None:
        self.ready = False

    def services(self) -> dict[str, Callable[[], bool]]:
        return {"": lambda: True, "liveness": lambda: True, "readiness": lambda: self.ready, "broken": self.broken}

    def broken(self) -> bool:
        raise RuntimeError("no answer from within")


@pytest.fixture
def truth() -> Truth:
    return Truth()


@pytest.fixture
def server(truth: Truth) -> Iterator[ProbeServer]:
    server = ProbeServer(truth.services(), host="127.0.0.1", port=0, watch_interval=0.02)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def stub(server: ProbeServer) -> Iterator[pb_grpc.HealthStub]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield pb_grpc.HealthStub(channel)


def check(stub: pb_grpc.HealthStub, service: str) -> int:
    return stub.Check(pb.HealthCheckRequest(service=service), timeout=5).status


def test_a_free_port_is_taken_and_told(server: ProbeServer) -> None:
    assert server.port > 0


def test_each_question_is_answered_anew(stub: pb_grpc.HealthStub, truth: Truth) -> None:
    assert check(stub, "liveness") == SERVING
    assert check(stub, "") == SERVING
    assert check(stub, "readiness") == NOT_SERVING
    truth.ready = True
    assert check(stub, "readiness") == SERVING
    truth.ready = False
    assert check(stub, "readiness") == NOT_SERVING


def test_a_service_that_can_t_tell_is_not_serving(stub: pb_grpc.HealthStub, caplog: pytest.LogCaptureFixture) -> None:
    assert check(stub, "broken") == NOT_SERVING
    assert "no answer from within" in caplog.text


def test_an_unknown_service_is_not_found(stub: pb_grpc.HealthStub) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        check(stub, "liveliness")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert "liveliness" in str(caught.value.details())


def test_list_has_all_of_them(stub: pb_grpc.HealthStub) -> None:
    answer = stub.List(pb.HealthListRequest(), timeout=5)
    assert {name: one.status for name, one in answer.statuses.items()} == {
        "": SERVING,
        "liveness": SERVING,
        "readiness": NOT_SERVING,
        "broken": NOT_SERVING,
    }


def test_watch_tells_now_and_at_each_change(stub: pb_grpc.HealthStub, truth: Truth) -> None:
    stream = stub.Watch(pb.HealthCheckRequest(service="readiness"), timeout=20)
    seen = [next(stream).status]
    for ready in (True, False):
        truth.ready = ready
        seen.append(next(stream).status)
    assert seen == [NOT_SERVING, SERVING, NOT_SERVING]
    stream.cancel()


def test_watch_of_an_unknown_service_says_unknown_and_stays(stub: pb_grpc.HealthStub) -> None:
    stream = stub.Watch(pb.HealthCheckRequest(service="nobody"), timeout=20)
    assert next(stream).status == SERVICE_UNKNOWN
    assert stream.is_active()
    stream.cancel()


def test_watches_leave_workers_for_check(stub: pb_grpc.HealthStub) -> None:
    streams = [stub.Watch(pb.HealthCheckRequest(service="liveness"), timeout=20) for _ in range(2)]
    for stream in streams:
        next(stream)
    with pytest.raises(grpc.RpcError) as caught:
        next(stub.Watch(pb.HealthCheckRequest(service="liveness"), timeout=20))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert check(stub, "liveness") == SERVING
    for stream in streams:
        stream.cancel()


def watch_once(stub: pb_grpc.HealthStub) -> bool:
    """Whether there was room for one more watch, which is given up again."""
    stream = stub.Watch(pb.HealthCheckRequest(service="liveness"), timeout=20)
    try:
        return next(stream).status == SERVING
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False
    finally:
        stream.cancel()


def test_a_watch_that_ends_makes_room(stub: pb_grpc.HealthStub) -> None:
    for _ in range(10):
        eventually(lambda: watch_once(stub))


def test_a_stop_ends_watches_with_ok(stub: pb_grpc.HealthStub, server: ProbeServer) -> None:
    stream = stub.Watch(pb.HealthCheckRequest(service="liveness"), timeout=20)
    assert next(stream).status == SERVING
    server.stop()
    assert list(stream) == []
    assert stream.code() is grpc.StatusCode.OK


def test_a_port_that_is_taken_is_said(server: ProbeServer) -> None:
    second = ProbeServer({}, host="127.0.0.1", port=server.port)
    with pytest.raises(
        KubeletError, match=rf"can't serve health probes on 127\.0\.0\.1:{server.port}.*is the port taken"
    ):
        second.start()
    second.stop()


def test_ipv6_addresses_are_written_as_such() -> None:
    server = ProbeServer({"": lambda: True}, host="::1", port=0)
    server.start()
    with grpc.insecure_channel(f"[::1]:{server.port}") as channel:
        assert check(pb_grpc.HealthStub(channel), "") == SERVING
    server.stop()
