"""List and watch over real HTTP: versions, expiry, outages, stop."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from dra_driver.cluster import errors
from dra_driver.cluster.backoff import Backoff
from dra_driver.cluster.client import Api
from dra_driver.cluster.errors import ApiError
from dra_driver.cluster.watch import Handlers, Watch
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import eventually

NODES = "/api/v1/nodes"


@dataclass
class Log:
    lists: list[list[str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    connects: list[bool] = field(default_factory=list)
    errors: list[ApiError] = field(default_factory=list)
    times: list[float] = field(default_factory=list)  # of errors
    fail: Exception | None = None

    def handlers(self) -> Handlers:
        return Handlers(self.on_list, self.on_event, self.connects.append, self.on_error)

    def on_list(self, rows: list[dict[str, Any]]) -> None:
        self.lists.append([row["metadata"]["name"] for row in rows])

    def on_event(self, kind: str, obj: dict[str, Any]) -> None:
        fail, self.fail = self.fail, None
        if fail:
            raise fail
        self.events.append((kind, obj["metadata"]["name"]))

    def on_error(self, error: ApiError) -> None:
        self.errors.append(error)
        self.times.append(time.monotonic())


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def watch(api: Api, log: Log) -> Iterator[Watch]:
    watch = Watch(api, NODES, log.handlers(), backoff=Backoff(first=0.01, limit=0.1))
    yield watch
    watch.stop()


def add(server: ApiServer, name: str) -> None:
    server.store.create("nodes", {"metadata": {"name": name}})


def started(watch: Watch, server: ApiServer) -> None:
    watch.start()
    eventually(lambda: server.watches == 1)


def test_what_is_there_is_listed_and_what_happens_is_told(watch: Watch, log: Log, server: ApiServer) -> None:
    started(watch, server)
    add(server, "b")
    server.store.patch("nodes", "b", {"metadata": {"labels": {"x": "y"}}})
    server.store.delete("nodes", "b")
    eventually(lambda: len(log.events) == 3)
    assert log.events == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "b")]
    assert (log.lists, log.connects, log.errors) == ([["node-a"]], [False], [])


def test_bc138_the_watch_starts_at_the_version_of_the_list(watch: Watch, log: Log, server: ApiServer) -> None:
    for number in range(1000):
        server.store.patch("nodes", "node-a", {"metadata": {"labels": {"n": str(number)}}})
    add(server, "b")
    server.store.delete("nodes", "b")  # the list's version is newer than any item's
    at_list = server.store.version
    started(watch, server)
    add(server, "c")
    eventually(lambda: log.events)
    assert log.events == [("ADDED", "c")]
    assert f"resourceVersion={at_list}" in server.audit.rows("watch")[0].query


def test_a_selector_holds_for_list_and_watch(api: Api, log: Log, server: ApiServer) -> None:
    watch = Watch(api, NODES, log.handlers(), field_selector="metadata.name=b")
    started(watch, server)
    add(server, "c")
    add(server, "b")
    eventually(lambda: log.events)
    watch.stop()
    assert (log.lists, log.events) == ([[]], [("ADDED", "b")])


def test_a_stream_that_ends_goes_on_where_it_was(watch: Watch, log: Log, server: ApiServer) -> None:
    started(watch, server)
    add(server, "b")
    eventually(lambda: log.events)
    server.cut_connections()
    add(server, "c")
    eventually(lambda: len(log.events) == 2)
    eventually(lambda: len(log.connects) == 2)
    assert log.events == [("ADDED", "b"), ("ADDED", "c")]
    assert (len(log.lists), log.connects) == (1, [False, True])
    assert isinstance(log.errors[0], errors.Unavailable)


def test_the_servers_own_timeout_is_no_error(api: Api, log: Log, server: ApiServer) -> None:
    watch = Watch(api, NODES, log.handlers(), server_timeout=0.7, backoff=Backoff(first=0.01))
    watch.start()
    eventually(lambda: len(log.connects) == 2)
    watch.stop()
    assert (len(log.lists), log.errors) == (1, [])
    assert "allowWatchBookmarks=true" in server.audit.rows("watch")[0].query


def test_bc133_a_bookmark_moves_the_version_and_reaches_no_handler(api: Api, log: Log, server: ApiServer) -> None:
    watch = Watch(api, NODES, log.handlers(), server_timeout=0.7, backoff=Backoff(first=0.01))
    watch.start()
    eventually(lambda: server.watches == 1)
    server.store.create("pods", {"metadata": {"name": "p"}})  # another kind: newer version, no event
    eventually(lambda: len(server.audit.rows("watch")) >= 2)
    watch.stop()
    assert f"resourceVersion={server.store.version}" in server.audit.rows("watch")[1].query
    assert log.events == []


def test_bc133_an_expired_version_in_the_stream_leads_to_one_list(watch: Watch, log: Log, server: ApiServer) -> None:
    started(watch, server)
    server.expire_watches()
    eventually(lambda: len(log.connects) == 2)
    add(server, "b")
    eventually(lambda: log.events)
    assert log.events == [("ADDED", "b")]
    assert len(log.lists) == 2
    assert [type(error) for error in log.errors] == [errors.Gone]


def test_bc133_an_expired_version_as_http_status(watch: Watch, log: Log, server: ApiServer) -> None:
    met = server.faults.plant(Fault(code=410), verb="watch")
    started(watch, server)
    assert met() == 1
    assert len(log.lists) == 2
    assert [type(error) for error in log.errors] == [errors.Gone]


def test_bc133_twenty_in_a_row_one_list_each_and_waits_that_grow(api: Api, log: Log, server: ApiServer) -> None:
    server.faults.plant(Fault(code=410), verb="watch", times=20)
    watch = Watch(api, NODES, log.handlers(), backoff=Backoff(first=0.002, limit=0.2))
    started(watch, server)
    watch.stop()
    assert (len(log.lists), len(log.errors)) == (21, 20)
    assert log.times[-1] - log.times[-6] > 5 * (log.times[2] - log.times[0])


def test_bc133_after_a_compaction_in_an_outage_it_lists_again(watch: Watch, log: Log, server: ApiServer) -> None:
    started(watch, server)
    server.stop()
    add(server, "b")
    server.store.compact()
    server.start()
    eventually(lambda: server.watches == 1)
    assert log.lists[-1] == ["b", "node-a"]


@pytest.mark.parametrize("code", [403, 500, 429])
def test_a_refused_list_is_told_and_tried_again(watch: Watch, log: Log, server: ApiServer, code: int) -> None:
    server.faults.plant(Fault(code=code), verb="list", times=2)
    started(watch, server)
    assert [error.status for error in log.errors] == [code, code]
    assert len(log.lists) == 1


def test_bc135_a_server_that_is_down_costs_few_tries(api: Api, log: Log, server: ApiServer) -> None:
    server.stop()
    watch = Watch(api, NODES, log.handlers(), backoff=Backoff(first=0.05, limit=10.0))
    watch.start()
    start, spent = time.monotonic(), time.process_time()
    eventually(lambda: len(log.errors) >= 5)
    assert time.monotonic() - start >= 0.05 * (1 + 2 + 4 + 8) / 2
    assert time.process_time() - spent < 0.5 * (time.monotonic() - start) + 0.2
    watch.stop()


def test_bc135_streams_that_end_at_once_are_not_reopened_in_a_hot_loop(api: Api, log: Log, server: ApiServer) -> None:
    watch = Watch(api, NODES, log.handlers(), backoff=Backoff(first=0.05, limit=10.0))
    start = time.monotonic()
    server.stopping = True  # streams end as soon as they are open
    watch.start()
    eventually(lambda: len(log.connects) >= 5)
    assert time.monotonic() - start >= 0.05 * (1 + 2 + 4 + 8) / 2
    server.stopping = False
    watch.stop()


def test_nulls_in_a_list_are_an_empty_list(watch: Watch, log: Log, server: ApiServer) -> None:
    server.faults.plant(Fault(nulls=frozenset({"items"})), verb="list")
    started(watch, server)
    assert (log.lists, log.errors) == ([[]], [])


def test_a_handler_that_fails_does_not_end_the_watch(watch: Watch, log: Log, server: ApiServer) -> None:
    log.fail = ValueError("planted")
    started(watch, server)
    add(server, "b")
    eventually(lambda: len(log.lists) == 2)
    assert log.lists[-1] == ["b", "node-a"]
    eventually(lambda: server.watches == 1)
    add(server, "c")
    eventually(lambda: ("ADDED", "c") in log.events)


def test_stop_ends_a_quiet_stream_at_once(api: Api, log: Log, server: ApiServer) -> None:
    watch = Watch(api, NODES, log.handlers())
    started(watch, server)
    start = time.monotonic()
    watch.stop()
    assert time.monotonic() - start < 1.0
    assert "watch nodes" not in [thread.name for thread in threading.enumerate()]
    assert log.errors == []


def test_stop_ends_a_wait_between_tries(api: Api, log: Log, server: ApiServer) -> None:
    server.faults.plant(Fault(code=500), verb="list", times=None)
    watch = Watch(api, NODES, log.handlers(), backoff=Backoff(first=60.0, limit=60.0))
    watch.start()
    eventually(lambda: log.errors)
    start = time.monotonic()
    watch.stop()
    assert time.monotonic() - start < 1.0


def test_stop_before_start_is_no_error(api: Api, log: Log) -> None:
    Watch(api, NODES, log.handlers()).stop()
