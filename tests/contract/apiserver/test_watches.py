"""Watches over HTTP: from a version on, with selectors, expiry, bookmarks and an end."""

import threading
import time
from http.client import HTTPException

import pytest

from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import Client, connect

PODS = "/api/v1/pods"


def version(server: ApiServer) -> int:
    return server.store.version


def add(server: ApiServer, name: str, node: str = "n") -> None:
    server.store.create("pods", {"metadata": {"name": name}, "spec": {"nodeName": node}})


def test_everything_after_the_version_is_told_in_order(call: Client, server: ApiServer) -> None:
    add(server, "before")
    since = version(server)
    add(server, "a")
    server.store.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}}, namespace="default")
    server.store.delete("pods", "a", namespace="default")
    server.store.create("nodes", {"metadata": {"name": "other-kind"}})
    events = call.watch(f"{PODS}?watch=true&resourceVersion={since}")
    got = [next(events) for _ in range(3)]
    assert [event["type"] for event in got] == ["ADDED", "MODIFIED", "DELETED"]
    assert {event["object"]["metadata"]["name"] for event in got} == {"a"}
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in got]
    assert versions == sorted(versions)
    assert versions[0] > since


def test_a_change_reaches_a_waiting_watch_at_once(call: Client, server: ApiServer) -> None:
    events = call.watch(f"{PODS}?watch=true&resourceVersion={version(server)}")
    threading.Timer(0.1, add, (server, "a")).start()
    start = time.monotonic()
    assert next(events)["object"]["metadata"]["name"] == "a"
    assert time.monotonic() - start < 0.4


def test_a_selector_shows_what_enters_and_leaves_its_view(call: Client, server: ApiServer) -> None:
    since = version(server)
    add(server, "a", node="other")
    add(server, "b", node="n")
    server.store.patch("pods", "a", {"spec": {"nodeName": "n"}}, namespace="default")
    server.store.patch("pods", "b", {"spec": {"nodeName": "other"}}, namespace="default")
    events = call.watch(f"{PODS}?watch=true&resourceVersion={since}&fieldSelector=spec.nodeName%3Dn")
    got = [next(events) for _ in range(3)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in got] == [
        ("ADDED", "b"),
        ("ADDED", "a"),
        ("DELETED", "b"),
    ]


def test_a_namespace_sees_its_own(call: Client, server: ApiServer) -> None:
    since = version(server)
    server.store.create("pods", {"metadata": {"name": "a"}}, namespace="other")
    server.store.create("pods", {"metadata": {"name": "b"}}, namespace="ns")
    events = call.watch(f"/api/v1/namespaces/ns/pods?watch=true&resourceVersion={since}")
    assert next(events)["object"]["metadata"]["name"] == "b"


def test_an_old_version_is_gone_before_the_stream_begins(call: Client, server: ApiServer) -> None:
    since = version(server)
    add(server, "a")
    server.store.compact()
    code, answer = call("GET", f"{PODS}?watch=true&resourceVersion={since}")
    assert (code, answer["reason"]) == (410, "Expired")


def test_the_newest_version_is_good_also_after_a_compaction(call: Client, server: ApiServer) -> None:
    add(server, "a")
    server.store.compact()
    events = call.watch(f"{PODS}?watch=true&resourceVersion={version(server)}")
    add(server, "b")
    assert next(events)["object"]["metadata"]["name"] == "b"


def test_an_expired_stream_ends_with_an_error_event(call: Client, server: ApiServer) -> None:
    events = call.watch(f"{PODS}?watch=true&resourceVersion={version(server)}")
    threading.Timer(0.1, server.expire_watches).start()
    got = list(events)
    assert [event["type"] for event in got] == ["ERROR"]
    assert (got[0]["object"]["code"], got[0]["object"]["reason"]) == (410, "Expired")


@pytest.mark.parametrize(("asked", "types"), [("", []), ("&allowWatchBookmarks=true", ["BOOKMARK"])])
def test_a_stream_ends_at_its_timeout_with_a_bookmark_if_asked(
    call: Client, server: ApiServer, asked: str, types: list[str]
) -> None:
    start = time.monotonic()
    got = list(call.watch(f"{PODS}?watch=true&timeoutSeconds=1&resourceVersion={version(server)}{asked}"))
    assert 0.9 < time.monotonic() - start < 5.0
    assert [event["type"] for event in got] == types
    for event in got:
        assert event["object"]["metadata"] == {"resourceVersion": str(version(server))}


def test_a_cut_stream_just_ends_and_the_server_goes_on(call: Client, server: ApiServer) -> None:
    events = call.watch(f"{PODS}?watch=true&resourceVersion={version(server)}")
    threading.Timer(0.1, server.cut_connections).start()
    with pytest.raises((HTTPException, StopIteration, OSError)):
        next(events)
    again = connect(server)
    assert again("GET", PODS)[0] == 200
    again.connection.close()


def test_a_client_that_leaves_is_noticed(server: ApiServer) -> None:
    client = connect(server)
    events = client.watch(f"{PODS}?watch=true&resourceVersion={version(server)}")
    threading.Timer(0.05, add, (server, "a")).start()
    next(events)
    assert server.watches == 1
    del events
    client.connection.close()
    deadline = time.monotonic() + 10
    while server.watches:
        assert time.monotonic() < deadline
        server.store.wake()


def test_stop_ends_streams_and_a_second_start_keeps_port_and_objects(call: Client, server: ApiServer) -> None:
    add(server, "a")
    url = server.url
    events = call.watch(f"{PODS}?watch=true&resourceVersion={version(server)}")
    stopper = threading.Timer(0.1, server.stop)
    stopper.start()
    with pytest.raises((HTTPException, StopIteration, OSError)):
        next(events)
    stopper.join()
    call.connection.close()
    server.start()
    assert server.url == url
    again = connect(server)
    assert [row["metadata"]["name"] for row in again("GET", PODS)[1]["items"]] == ["a"]
    again.connection.close()


def test_a_controller_in_the_process_watches_without_http(server: ApiServer) -> None:
    stop, seen = threading.Event(), []

    def follow() -> None:
        for kind, obj in server.store.watch("pods", since=0, stop=stop, fields={"spec.nodeName": "n"}):
            seen.append((kind, obj["metadata"]["name"]))
            if len(seen) == 2:
                stop.set()

    add(server, "a")
    thread = threading.Thread(target=follow)
    thread.start()
    add(server, "x", node="other")
    add(server, "b")
    thread.join(10)
    assert not thread.is_alive()
    assert seen == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_can_be_refused_by_a_fault(call: Client, server: ApiServer) -> None:
    server.faults.plant(Fault(code=403), verb="watch")
    assert call("GET", f"{PODS}?watch=1")[0] == 403
