"""The policy on slices, on real API servers: the driver's token writes its own node's slices and no others."""

from collections.abc import Iterator
from typing import Any

import pytest
from testbed.api import Api, Object
from testbed.charts import NAMESPACE, Server, refused

DRIVER = "neuron.coreslice.dev"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
NODES = ("node-a", "node-b")

pytestmark = pytest.mark.cluster


def piece(node: str, *, driver: str = DRIVER, pool: str = "", **spec: Any) -> Object:
    """A slice of one node's pool."""
    where = {"nodeName": node} if node else {}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"of-{node or 'all'}"},
        "spec": {
            "driver": driver,
            **where,
            "pool": {"name": pool or f"{driver}/{node}", "generation": 1, "resourceSliceCount": 1},
            "devices": [],
            **spec,
        },
    }


@pytest.fixture
def nodes(server: Server) -> Iterator[dict[str, Api]]:
    """Two nodes with a pod of the driver bound to each; a client with each pod's token."""
    objects: list[Object] = []
    clients = {}
    for name in NODES:
        server.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        pod: Object = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"driver-{name}"},
            "spec": {
                "nodeName": name,
                "serviceAccountName": "coreslice",
                "containers": [{"name": "driver", "image": "none"}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        made = server.admin.create(pod, NAMESPACE)
        objects.append(made)
        clients[name] = server.api(server.token("coreslice", NAMESPACE, bound=made))
    yield clients
    for item in objects:
        server.admin.delete("pods", item["metadata"]["name"], NAMESPACE, gracePeriodSeconds=0)
    for name in NODES:
        server.admin.delete("resourceslices", f"of-{name}")
        server.admin.delete("nodes", name)


def test_own_slice_is_written_changed_and_deleted(nodes: dict[str, Api]) -> None:
    api = nodes["node-a"]
    made = api.create(piece("node-a"))
    made["spec"]["pool"]["generation"] = 2
    changed = api.request("PUT", f"{SLICES}/of-node-a", made)
    assert changed["spec"]["pool"]["generation"] == 2
    api.request("DELETE", f"{SLICES}/of-node-a")
    assert api.find("resourceslices", "of-node-a") is None


def test_another_nodes_slice_is_out_of_reach(nodes: dict[str, Api]) -> None:
    stored = nodes["node-a"].create(piece("node-a"))
    intruder = nodes["node-b"]
    wanted = "a driver on node node-b may write slices with spec.nodeName node-b only, not of node-a"
    for method, path, body in (
        ("POST", SLICES, piece("node-a")),
        ("PUT", f"{SLICES}/of-node-a", stored),
        ("DELETE", f"{SLICES}/of-node-a", None),
    ):
        code, message = refused(intruder, method, path, body)
        assert (code, wanted in message) == (403, True), (method, message)


def test_all_of_them_at_once_are_out_of_reach_too(nodes: dict[str, Api]) -> None:
    nodes["node-a"].create(piece("node-a"))
    code, message = refused(nodes["node-b"], "DELETE", SLICES)
    assert code == 403, message
    assert nodes["node-a"].find("resourceslices", "of-node-a") is not None


def test_slice_for_all_nodes_is_refused(nodes: dict[str, Api]) -> None:
    code, message = refused(nodes["node-a"], "POST", SLICES, piece("", pool=f"{DRIVER}/node-a", allNodes=True))
    assert (code, "not of no single node" in message) == (403, True), message


def test_another_nodes_pool_is_refused(nodes: dict[str, Api]) -> None:
    """A slice of a higher generation in a pool makes the pool's own slices outdated."""
    code, message = refused(nodes["node-a"], "POST", SLICES, piece("node-a", pool=f"{DRIVER}/node-b"))
    assert (code, f"may write to pool {DRIVER}/node-a only" in message) == (403, True), message


def test_another_drivers_slice_is_refused(nodes: dict[str, Api]) -> None:
    code, message = refused(nodes["node-a"], "POST", SLICES, piece("node-a", driver="gpu.example.com"))
    assert (code, f"slices of driver {DRIVER} only" in message) == (403, True), message


def test_token_without_a_node_writes_nothing(server: Server, nodes: dict[str, Api]) -> None:
    api = server.api(server.token("coreslice", NAMESPACE))
    for body in (piece("node-a"), piece("", pool=f"{DRIVER}/node-a", allNodes=True)):
        code, message = refused(api, "POST", SLICES, body)
        assert (code, "doesn't say on which node" in message) == (403, True), message


def test_others_are_not_concerned(server: Server, nodes: dict[str, Api]) -> None:
    assert refused(server.admin, "POST", SLICES, piece("node-a", driver="gpu.example.com")) == (0, "")
    assert refused(server.api(server.token("alice")), "POST", SLICES, piece("node-b")) == (0, "")
