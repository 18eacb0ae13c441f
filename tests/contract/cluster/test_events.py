"""Events over real HTTP: what is recorded, what is folded, and that nobody waits."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dra_driver.cluster import events
from dra_driver.cluster.client import Api
from dra_driver.cluster.events import EventRecorder
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import eventually

CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "namespace": "ns", "name": "c", "uid": "u"}
EVENTS = "/api/v1/namespaces/ns/events"


@pytest.fixture
def recorder(api: Api) -> Iterator[EventRecorder]:
    recorder = EventRecorder(api, component="device.example.dev", host="node-a")
    yield recorder
    recorder.stop()


def recorded(server: ApiServer, count: int) -> list[dict[str, Any]]:
    eventually(lambda: len(server.store.list("events")) >= count)
    return server.store.list("events")


def test_an_event_says_who_what_and_where(recorder: EventRecorder, server: ApiServer) -> None:
    recorder.warning(CLAIM, "DeviceHeld", "chip-0 is held by claim ns/d")
    (event,) = recorded(server, 1)
    assert event["metadata"]["namespace"] == "ns"
    assert event["metadata"]["name"].startswith("c.")
    assert event["involvedObject"] == CLAIM
    assert (event["type"], event["reason"], event["message"]) == (
        "Warning",
        "DeviceHeld",
        "chip-0 is held by claim ns/d",
    )
    assert event["source"] == {"component": "device.example.dev", "host": "node-a"}
    assert (event["reportingComponent"], event["reportingInstance"]) == ("device.example.dev", "node-a")
    assert event["firstTimestamp"] == event["lastTimestamp"]
    assert event["count"] == 1


def test_an_event_on_a_node_lives_in_default(recorder: EventRecorder, server: ApiServer) -> None:
    recorder.normal({"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "node-a"}, "Published", "ok")
    (event,) = recorded(server, 1)
    assert (event["metadata"]["namespace"], event["type"]) == ("default", "Normal")


def test_the_same_report_is_one_event_and_others_are_others(recorder: EventRecorder, server: ApiServer) -> None:
    for _ in range(20):
        recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.warning(CLAIM, "DeviceHeld", "two")
    recorder.warning({**CLAIM, "name": "d"}, "DeviceHeld", "one")
    recorder.stop()
    assert len(server.store.list("events")) == 3
    assert len(server.audit.writes()) == 3


def test_a_report_that_goes_on_raises_the_count(
    recorder: EventRecorder, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_REWRITE_AFTER", 0.0)
    for _ in range(3):
        recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.stop()
    (event,) = server.store.list("events")
    assert event["count"] == 3


def test_after_the_time_of_folding_it_is_a_new_event(
    recorder: EventRecorder, server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "_REPEAT_WITHIN", 0.0)
    recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.stop()
    assert len(server.store.list("events")) == 2


def test_nobody_waits_for_an_api_that_hangs_and_the_queue_is_bounded(
    api: Api, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    hold = threading.Event()
    met = server.faults.plant(Fault(hold=hold), verb="create")
    recorder = EventRecorder(api, component="c", host="h", queue_size=4)
    recorder.warning(CLAIM, "DeviceHeld", "first")
    eventually(met)
    start = time.monotonic()
    for number in range(50):
        recorder.warning(CLAIM, "DeviceHeld", f"message {number}")
    assert time.monotonic() - start < 1.0
    assert sum("too many events" in row.message for row in caplog.records) == 46
    hold.set()
    recorder.stop()
    assert len(server.store.list("events")) == 5


@pytest.mark.parametrize("code", [403, 404, 500])
def test_a_refused_event_is_logged_and_the_next_one_is_sent(
    recorder: EventRecorder, server: ApiServer, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    server.faults.plant(Fault(code=code), verb="create")
    recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.warning(CLAIM, "DeviceHeld", "two")
    recorder.stop()
    assert [event["message"] for event in server.store.list("events")] == ["two"]
    assert any("event DeviceHeld not recorded" in row.message for row in caplog.records)


def test_what_gets_no_answer_waits_for_the_server(
    recorder: EventRecorder, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    met = server.faults.plant(Fault(cut="before"), verb="create", times=2)
    recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.warning(CLAIM, "DeviceHeld", "two")
    assert sorted(event["message"] for event in recorded(server, 2)) == ["one", "two"]
    assert met() == 2
    assert caplog.records == []


def test_stop_doesnt_wait_for_a_server_that_is_down(
    recorder: EventRecorder, server: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    met = server.faults.plant(Fault(cut="before"), verb="create", times=None)
    recorder.warning(CLAIM, "DeviceHeld", "one")
    eventually(met)
    start = time.monotonic()
    recorder.stop()
    assert time.monotonic() - start < 1.0
    assert any("event DeviceHeld not recorded" in row.message for row in caplog.records)


def test_a_refused_event_is_sent_when_it_is_reported_again(recorder: EventRecorder, server: ApiServer) -> None:
    server.faults.plant(Fault(code=500), verb="create")
    recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.warning(CLAIM, "DeviceHeld", "one")
    recorder.stop()
    assert len(server.store.list("events")) == 1


def test_long_messages_are_cut_to_what_the_api_takes(recorder: EventRecorder, server: ApiServer) -> None:
    recorder.warning(CLAIM, "DeviceHeld", "x" * 5000)
    (event,) = recorded(server, 1)
    assert event["message"] == "x" * 1024


def test_a_reason_that_is_not_camel_case_is_a_fault_in_the_log(
    recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    recorder.warning(CLAIM, "device held", "one")
    assert any("not a CamelCase reason" in row.message for row in caplog.records)


def test_stop_without_reports_starts_no_thread_and_later_reports_are_dropped(
    recorder: EventRecorder, server: ApiServer
) -> None:
    recorder.stop()
    recorder.warning(CLAIM, "DeviceHeld", "one")
    assert "events" not in [thread.name for thread in threading.enumerate()]
    assert server.audit.writes() == []
