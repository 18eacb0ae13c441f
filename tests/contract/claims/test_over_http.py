"""The same reads over real HTTP: what a server answers, late or wrong, reaches the user as text."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.refusals import Reason
from dra_driver.cluster.client import Api, Timeout
from dra_driver.cluster.reads import CLAIMS, ClaimReader
from dra_driver.kubelet.types import Prepared
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer
from dra_driver.simulator.samples import NAMESPACE, claim, pod

Obj = dict[str, Any]
Node = Any  # as conftest.py makes it


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running:
        yield running


@pytest.fixture
def api(server: ApiServer, tmp_path: Path) -> Iterator[ClaimReader]:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    with Api(kubeconfig=kubeconfig, timeout=Timeout(connect=1.0, read=1.0)) as client:
        yield ClaimReader(client)


def stored(server: ApiServer, obj: Obj) -> Obj:
    """The object as the server has it: with the server's UID, its status written apart."""
    plural = "pods" if obj["kind"] == "Pod" else "resourceclaims"
    made = server.store.create(plural, obj, namespace=NAMESPACE)
    name = made["metadata"]["name"]
    return server.store.patch(plural, name, {"status": obj["status"]}, namespace=NAMESPACE, subresource="status")


@pytest.fixture
def two(server: ApiServer) -> list[Obj]:
    """Two claims of pod p that meet in a container."""
    who = stored(server, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    claims = [claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")]
    for one in claims:
        one["metadata"]["ownerReferences"][0]["uid"] = who["metadata"]["uid"]
        one["status"]["reservedFor"][0]["uid"] = who["metadata"]["uid"]
    return [stored(server, one) for one in claims]


def path_of(name: str) -> str:
    return CLAIMS.format(NAMESPACE, name)


def test_two_claims_of_a_pod_over_one_connection(node: Node, server: ApiServer, two: list[Obj]) -> None:
    answers = node.prepared(*two)
    assert node.see(*answers.values()).variable("NEURON_RT_VISIBLE_CORES") == "0-1"
    assert server.connections == 1


@pytest.mark.parametrize("fault", [Fault(code=500), Fault(code=429), Fault(cut="before"), Fault(cut="half")])
def test_a_server_that_fails_once_for_the_second_claim(
    node: Node, server: ApiServer, two: list[Obj], fault: Fault
) -> None:
    node.start(wait=20.0)
    met = server.faults.plant(fault, verb="get", prefix=path_of("b"))
    answers = node.prepared(*two)
    assert met() == 1
    assert node.see(*answers.values()).variable("NEURON_RT_VISIBLE_CORES") == "0-1"


@pytest.mark.parametrize(("code", "told"), [(403, "resourceclaims"), (410, "410"), (500, "500")])
def test_a_server_that_goes_on_failing_is_told_to_the_user(
    node: Node, server: ApiServer, two: list[Obj], code: int, told: str
) -> None:
    node.start(wait=0.2)
    server.faults.plant(Fault(code=code, message="planted"), verb="get", times=None)
    error = node.refused(*two)
    assert error.startswith(Reason.CLAIM_UNREADABLE.code)
    assert told in error
    assert "planted" in error
    assert node.files() == []


def test_a_server_that_answers_too_late_is_not_waited_for_for_ever(
    node: Node, server: ApiServer, two: list[Obj]
) -> None:
    node.start(wait=0.2)
    server.faults.plant(Fault(hold=threading.Event()), verb="get", times=None)
    assert Reason.CLAIM_UNREADABLE.code in node.refused(*two)
    server.faults.clear()
    node.prepared(*two)


def test_one_timeout_is_enough_for_all_claims_of_a_call(node: Node, server: ApiServer) -> None:
    """A timeout for each of many claims would outlast the kubelet's patience, and its user would read no reason."""
    claims = [stored(server, claim(f"c{i}", f"core-{i}-0", users=["p"])) for i in range(4)]
    met = server.faults.plant(Fault(hold=threading.Event()), verb="get", times=None)
    answers = node.prepare(*claims)
    assert met() == 1
    assert all(answer.error.startswith(Reason.CLAIM_UNREADABLE.code) for answer in answers.values())


def test_a_server_that_is_down(node: Node, server: ApiServer, two: list[Obj]) -> None:
    server.stop()
    node.start(wait=0.2)
    assert "no answer" in node.refused(*two)
    assert node.files() == []
    server.start()
    node.prepared(*two)


def test_a_claim_that_is_not_there(node: Node, server: ApiServer, two: list[Obj]) -> None:
    server.faults.plant(Fault(code=404), verb="get", prefix=path_of("a"), times=None)
    assert node.refused(*two).startswith(Reason.CLAIM_REPLACED.code)


def test_bc132_nulls_where_lists_belong(node: Node, server: ApiServer, two: list[Obj]) -> None:
    nulls = frozenset({"config", "initContainers", "ownerReferences", "reservedFor", "claims", "requests"})
    server.faults.plant(Fault(nulls=nulls), verb="get", times=None)
    answers = node.prepare(*two)
    assert all(isinstance(answer, Prepared) for answer in answers.values()), answers
    server.faults.clear()
    server.faults.plant(Fault(nulls=frozenset({"results"})), verb="get", times=None)
    node.unprepare(*two)
    assert [answer.devices for answer in node.prepared(*two).values()] == [(), ()]
