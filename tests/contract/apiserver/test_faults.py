"""Faults, tokens, audit and connections: what tests of clients rest on."""

import json
import threading
import time
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import Client, connect

if TYPE_CHECKING:
    from dra_driver.simulator.apiserver.store import Change

NODES = "/api/v1/nodes"


def test_a_planted_status_is_answered_as_often_as_planted(call: Client, server: ApiServer) -> None:
    met = server.faults.plant(Fault(code=503, headers={"Retry-After": "1"}), times=2)
    assert [call("GET", NODES)[0] for _ in range(3)] == [503, 503, 200]
    assert met() == 2


def test_a_fault_is_for_its_verb_and_path(call: Client, server: ApiServer) -> None:
    server.faults.plant(Fault(code=403), verb="list", prefix="/api/v1/pods")
    assert call("GET", NODES)[0] == 200
    assert call("GET", "/api/v1/pods")[0] == 403


@pytest.mark.parametrize(
    ("method", "path", "verb"),
    [
        ("GET", f"{NODES}/n", "get"),
        ("GET", NODES, "list"),
        ("GET", f"{NODES}?watch=true", "watch"),
        ("POST", NODES, "create"),
        ("PUT", f"{NODES}/n", "update"),
        ("PATCH", f"{NODES}/n", "patch"),
        ("DELETE", f"{NODES}/n", "delete"),
        ("DELETE", NODES, "deletecollection"),
    ],
)
def test_verbs_are_the_apis(call: Client, server: ApiServer, method: str, path: str, verb: str) -> None:
    server.faults.plant(Fault(code=500), verb=verb)
    assert call(method, path, {} if method in ("POST", "PUT", "PATCH") else None)[0] == 500
    assert [(row.verb, row.code) for row in server.audit.rows()] == [(verb, 500)]


def test_faults_are_used_up_in_order(call: Client, server: ApiServer) -> None:
    for code in (500, 429):
        server.faults.plant(Fault(code=code))
    assert [call("GET", NODES)[0] for _ in range(3)] == [500, 429, 200]


def test_a_permanent_fault_lasts_until_cleared(call: Client, server: ApiServer) -> None:
    server.faults.plant(Fault(code=500), times=None)
    assert [call("GET", NODES)[0] for _ in range(5)] == [500] * 5
    server.faults.clear()
    assert call("GET", NODES)[0] == 200


def test_a_held_request_is_done_when_it_is_let_go(call: Client, server: ApiServer) -> None:
    hold = threading.Event()
    server.faults.plant(Fault(hold=hold), verb="create")
    thread = threading.Thread(target=call, args=("POST", NODES, {"metadata": {"name": "n"}}))
    thread.start()
    thread.join(0.1)
    assert server.store.list("nodes") == []
    hold.set()
    thread.join(10)
    assert len(server.store.list("nodes")) == 1


@pytest.mark.parametrize(("cut", "done"), [("before", 0), ("after", 1)])
def test_a_cut_loses_the_request_or_the_answer(server: ApiServer, cut: str, done: int) -> None:
    server.faults.plant(Fault(cut=cut))
    client = connect(server)
    with pytest.raises((HTTPException, OSError)):
        client("POST", NODES, {"metadata": {"name": "n"}})
    client.connection.close()
    assert len(server.store.list("nodes")) == done
    assert [row.code for row in server.audit.rows()] == [0]


def test_half_an_answer(server: ApiServer) -> None:
    server.faults.plant(Fault(cut="half"))
    client = connect(server)
    with pytest.raises(IncompleteRead):
        client("GET", NODES)
    client.connection.close()


def test_nulls_where_lists_belong(call: Client, server: ApiServer) -> None:
    server.faults.plant(Fault(nulls=frozenset({"items", "taints"})), times=None)
    assert call("GET", NODES)[1]["items"] is None
    got = call("POST", NODES, {"metadata": {"name": "n"}, "spec": {"taints": [1], "other": [2]}})[1]
    assert got["spec"] == {"taints": None, "other": [2]}
    assert server.store.get("nodes", "n")["spec"]["taints"] == [1]


def test_stop_does_not_wait_for_held_requests(server: ApiServer) -> None:
    server.faults.plant(Fault(hold=threading.Event()))
    client = connect(server)
    client.connection.request("GET", NODES)
    deadline = time.monotonic() + 10
    while not server.connections:
        assert time.monotonic() < deadline
    start = time.monotonic()
    server.stop()
    assert time.monotonic() - start < 5
    client.connection.close()


def test_tokens_are_asked_for_once_there_are_some(call: Client, server: ApiServer) -> None:
    assert call("GET", NODES)[0] == 200
    server.tokens = {"one"}
    code, answer = call("GET", NODES)
    assert (code, answer["reason"]) == (401, "Unauthorized")
    assert call("GET", NODES, token="two")[0] == 401
    assert call("GET", NODES, token="one")[0] == 200


def test_the_audit_knows_who_asked_what_and_which_requests_write(call: Client, server: ApiServer) -> None:
    call("GET", f"{NODES}?fieldSelector=metadata.name%3Dn")
    call("POST", f"{NODES}?dryRun=All", {"metadata": {"name": "n"}})
    call("POST", NODES, {"metadata": {"name": "n"}})
    call("DELETE", f"{NODES}/n")
    assert [(row.verb, row.code) for row in server.audit.rows()] == [
        ("list", 200),
        ("create", 201),
        ("create", 201),
        ("delete", 200),
    ]
    assert server.audit.rows("list")[0].query == "fieldSelector=metadata.name%3Dn"
    assert [row.verb for row in server.audit.writes()] == ["create", "delete"]


def test_connections_are_counted_and_kept(call: Client, server: ApiServer) -> None:
    for _ in range(3):
        call("GET", NODES)
        call("GET", f"{NODES}/none")
    assert server.connections == 1
    other = connect(server)
    other("GET", NODES)
    other.connection.close()
    assert server.connections == 2


def test_an_observer_sees_every_state_there_ever_was(call: Client, server: ApiServer) -> None:
    seen: list[Change] = []
    server.store.observers.append(seen.append)
    call("POST", NODES, {"metadata": {"name": "n"}, "spec": {"a": 1}})
    call("PUT", f"{NODES}/n", {"metadata": {"name": "n"}, "spec": {"a": 2}})
    call("PUT", f"{NODES}/n?dryRun=All", {"metadata": {"name": "n"}, "spec": {"a": 3}})
    call("DELETE", f"{NODES}/n")
    assert [(change.type, change.obj["spec"]["a"]) for change in seen] == [
        ("ADDED", 1),
        ("MODIFIED", 2),
        ("DELETED", 2),
    ]
    assert seen == server.store.history


def test_a_kubeconfig_names_server_and_token(server: ApiServer, tmp_path: Path) -> None:
    path = server.kubeconfig(tmp_path / "kubeconfig", token="one")
    config = json.loads(path.read_text())
    assert config["clusters"][0]["cluster"]["server"] == server.url
    assert config["users"][0]["user"]["token"] == "one"
