"""The client over real HTTP: connections, timeouts, credentials, nulls."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dra_driver import __version__
from dra_driver.cluster import errors
from dra_driver.cluster.client import Api, Timeout, items
from dra_driver.cluster.reads import ClaimReader
from dra_driver.errors import SettingsError
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

NODE = "/api/v1/nodes/node-a"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/ns/pods"


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except errors.ApiError as error:
        return type(error)


def test_objects_come_and_go_as_plain_json(api: Api) -> None:
    created = api.create(PODS, {"metadata": {"name": "p"}, "spec": {"future": {"field": [1]}}})
    assert created["spec"] == {"future": {"field": [1]}}
    created["spec"]["future"]["field"] = [2]
    replaced = api.replace(f"{PODS}/p", created)
    assert replaced["metadata"]["generation"] == 2
    patched = api.patch(f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert [row["metadata"]["name"] for row in items(api.list(PODS))] == ["p"]
    api.delete(f"{PODS}/p", uid=created["metadata"]["uid"])
    assert outcome(lambda: api.get(f"{PODS}/p")) is errors.NotFound


def test_reader_reads_claims_pods_and_nodes(api: Api, server: ApiServer) -> None:
    for plural in ("resourceclaims", "pods"):
        server.store.create(plural, {"metadata": {"name": "x"}, "spec": {}}, namespace="ns")
    reader = ClaimReader(api)
    found = [reader.get_claim("ns", "x"), reader.get_pod("ns", "x"), reader.get_node("node-a")]
    assert [obj["kind"] for obj in found] == ["ResourceClaim", "Pod", "Node"]


def test_a_dry_run_stores_nothing(api: Api, server: ApiServer) -> None:
    assert api.create(PODS, {"metadata": {"generateName": "p-"}}, dry_run=True)["metadata"]["name"]
    assert server.store.list("pods") == []


def test_errors_have_their_classes(api: Api) -> None:
    created = api.create(PODS, {"metadata": {"name": "p"}})
    stale = {**created, "spec": {"n": 1}}
    api.replace(f"{PODS}/p", {**created, "spec": {"n": 2}})
    assert outcome(lambda: api.create(PODS, {"metadata": {"name": "p"}})) is errors.AlreadyExists
    assert outcome(lambda: api.replace(f"{PODS}/p", stale)) is errors.Conflict
    assert outcome(lambda: api.delete(f"{PODS}/p", uid="other")) is errors.Conflict
    assert outcome(lambda: api.create(PODS, {"metadata": {}})) is errors.Invalid
    assert outcome(lambda: api.get("/apis/none/v1/things")) is errors.NotFound


def test_one_connection_serves_request_after_request(api: Api, server: ApiServer) -> None:
    for _ in range(50):
        api.get(NODE)
    assert server.connections == 1
    with pytest.raises(errors.NotFound):  # an error's body is read: its connection is kept too
        api.get(NODE + "-none")
    api.create(PODS, {"metadata": {"name": "p"}})
    api.delete(f"{PODS}/p")
    assert server.connections == 1


def test_eight_threads_use_at_most_eight_connections_beside_running_watches(api: Api, server: ApiServer) -> None:
    version = api.list(NODES)["metadata"]["resourceVersion"]
    watches = [api.watch(NODES, query={"resourceVersion": version}, read_timeout=60.0) for _ in range(3)]
    before = server.connections
    barrier = threading.Barrier(8)

    def work(_: int) -> set[str]:
        barrier.wait()
        return {api.get(NODE)["metadata"]["name"] for _ in range(40)}

    with ThreadPoolExecutor(8) as pool:
        assert set.union(*pool.map(work, range(8))) == {"node-a"}
    assert server.connections <= before + 8
    for watch in watches:
        with watch:
            watch.close()
            assert list(watch) == []


def test_the_server_sees_who_asks(api: Api, server: ApiServer) -> None:
    api.get(NODE)
    assert server.audit.rows()[-1].user_agent == f"coreslice/{__version__}"


def test_a_server_that_hangs_is_given_up(kubeconfig: Path, server: ApiServer) -> None:
    server.faults.plant(Fault(hold=threading.Event()))
    with Api(kubeconfig=kubeconfig, timeout=Timeout(connect=1.0, read=0.2)) as api:
        start = time.monotonic()
        assert outcome(lambda: api.get(NODE)) is errors.Unavailable
        assert time.monotonic() - start < 2.0
        assert api.get(NODE)["kind"] == "Node"


def test_a_request_may_bring_its_own_timeout(api: Api, server: ApiServer) -> None:
    server.faults.plant(Fault(hold=threading.Event()))
    start = time.monotonic()
    assert outcome(lambda: api.get(NODE, timeout=Timeout(1.0, 0.1))) is errors.Unavailable
    assert time.monotonic() - start < 2.0


def test_a_server_that_is_down_and_up_again(api: Api, server: ApiServer) -> None:
    assert api.get(NODE)
    server.stop()
    with pytest.raises(errors.Unavailable, match=r"get /api/v1/nodes/node-a: no answer.*tried again"):
        api.get(NODE)
    server.start()
    assert api.get(NODE)


def test_a_read_on_a_connection_that_was_just_closed_is_sent_again(api: Api, server: ApiServer) -> None:
    api.get(NODE)
    met = server.faults.plant(Fault(cut="before"))
    assert api.get(NODE)["kind"] == "Node"
    assert met() == 1


def test_a_write_whose_answer_is_lost_is_not_sent_again(api: Api, server: ApiServer) -> None:
    api.get(NODE)
    server.faults.plant(Fault(cut="after"), verb="create")
    assert outcome(lambda: api.create(PODS, {"metadata": {"name": "p"}})) is errors.Unavailable
    server.faults.plant(Fault(cut="before"), verb="delete")
    assert outcome(lambda: api.delete(f"{PODS}/p")) is errors.Unavailable
    assert [row.verb for row in server.audit.writes()] == ["create", "delete"]
    assert len(server.store.list("pods")) == 1


def test_half_an_answer_is_no_answer(api: Api, server: ApiServer) -> None:
    server.faults.plant(Fault(cut="half"), times=2)
    assert outcome(lambda: api.get(NODE)) is errors.Unavailable


def test_no_retry_is_hidden_when_the_server_is_overloaded(api: Api, server: ApiServer) -> None:
    met = server.faults.plant(Fault(code=429, headers={"Retry-After": "3"}), times=None)
    start = time.monotonic()
    with pytest.raises(errors.TooManyRequests) as caught:
        api.get(NODE)
    assert (met(), caught.value.retry_after) == (1, 3.0)
    assert time.monotonic() - start < 2.0


def test_server_errors_are_reported_at_once(api: Api, server: ApiServer) -> None:
    met = server.faults.plant(Fault(code=500), times=None)
    assert outcome(lambda: api.get(NODE)) is errors.ServerError
    assert met() == 1


def test_bc132_null_lists_are_empty(api: Api, server: ApiServer) -> None:
    server.faults.plant(Fault(nulls=frozenset({"items"})))
    listed = api.list(NODES)
    assert listed["items"] is None
    assert items(listed) == []
    assert items({}) == []


def test_a_field_selector_goes_to_the_server(api: Api, server: ApiServer) -> None:
    server.store.create("nodes", {"metadata": {"name": "node-b"}})
    listed = items(api.list(NODES, field_selector="metadata.name=node-b"))
    assert [row["metadata"]["name"] for row in listed] == ["node-b"]
    with pytest.raises(errors.ApiError, match="field label not supported"):
        api.list(NODES, field_selector="spec.unknown=1")


def test_a_kubeconfig_that_makes_no_sense_is_a_setting_that_makes_no_sense(tmp_path: Path) -> None:
    for content in (None, "", "{}", "a: [", '{"current-context": "x"}'):
        path = tmp_path / "kubeconfig"
        if content is not None:
            path.write_text(content)
        with pytest.raises(SettingsError, match=r"no usable credentials.*kubeconfig"):
            Api(kubeconfig=path)


def test_bc129_a_token_that_was_rotated_is_read_again_once(tmp_path: Path, server: ApiServer) -> None:
    path = server.kubeconfig(tmp_path / "kubeconfig", token="one")
    server.tokens = {"one"}
    with Api(kubeconfig=path) as api:
        assert api.get(NODE)
        server.tokens = {"two"}
        server.kubeconfig(path, token="two")
        assert api.get(NODE)
        assert [row.code for row in server.audit.rows("get")] == [200, 401, 200]


def test_bc129_a_token_that_stays_refused_is_reported_after_one_try(tmp_path: Path, server: ApiServer) -> None:
    server.tokens = {"two"}
    with Api(kubeconfig=server.kubeconfig(tmp_path / "kubeconfig", token="one")) as api:
        with pytest.raises(errors.Unauthorized, match="check the service account's token"):
            api.get(NODE)
        assert len(server.audit.rows("get")) == 1  # nothing new to offer
        server.kubeconfig(tmp_path / "kubeconfig", token="three")
        assert outcome(lambda: api.get(NODE)) is errors.Unauthorized
        assert len(server.audit.rows("get")) == 3
        server.kubeconfig(tmp_path / "kubeconfig", token="two")
        assert api.get(NODE)


def test_bc129_many_threads_survive_one_rotation(tmp_path: Path, server: ApiServer) -> None:
    path = server.kubeconfig(tmp_path / "kubeconfig", token="one")
    server.tokens = {"one"}
    with Api(kubeconfig=path) as api, ThreadPoolExecutor(8) as pool:
        assert api.get(NODE)
        server.kubeconfig(path, token="two")
        server.tokens = {"two"}
        assert set(pool.map(lambda _: api.get(NODE)["kind"], range(64))) == {"Node"}


def test_a_write_is_sent_again_after_a_401_since_it_was_not_done(tmp_path: Path, server: ApiServer) -> None:
    path = server.kubeconfig(tmp_path / "kubeconfig", token="one")
    server.tokens = {"two"}
    with Api(kubeconfig=path) as api:
        server.kubeconfig(path, token="two")
        api.create(PODS, {"metadata": {"name": "p"}})
    assert len(server.store.list("pods")) == 1
