"""What the account doesn't need: writes of a claim's status (BC-097). What users get: aggregated roles (BC-104)."""

from collections.abc import Iterator

import pytest
from testbed import binaries, objects
from testbed.api import Object
from testbed.charts import Chart
from testbed.node import Node
from testbed.pod_driver import ACCOUNT, PodDriver
from testbed.waiting import until

from dra_driver.inventory.classes import device_classes

from .conftest import may

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

GROUP = "resource.k8s.io"
RBAC = "rbac.authorization.k8s.io"


def test_bc097_no_claim_status_is_written_and_no_right_to_is_needed(node: Node, pod_driver: PodDriver) -> None:
    """From 1.36 on a driver that writes it needs `resourceclaims/driver` too, or its claims stop being prepared."""
    role = node.api.get("clusterroles", ACCOUNT)
    assert [rule for rule in role["rules"] if "/" in str(rule["resources"])] == []
    node.make_device("neuron0", pod_driver.major, 0)
    try:
        node.apply(*device_classes(pod_driver.name), objects.claim("mine", r="neuron-core"))
        node.run_pod(objects.pod("a", objects.container(claims=["c"]), claims={"c": "claim/mine"}))
        assert node.view("a").cores == "0"
        assert "devices" not in node.api.get("resourceclaims", "mine")["status"]
        for verb, subresource in (("update", "status"), ("patch", "status"), ("associated-node:update", "driver")):
            assert not may(node, pod_driver.user, verb, GROUP, "resourceclaims", subresource)
        node.delete_pods("a")
    finally:
        node.remove_device("neuron0")
    asked = [event for event in node.audit(pod_driver.user) if ref(event).get("resource") == "resourceclaims"]
    assert {event["verb"] for event in asked} == {"get"}
    assert [event for event in asked if ref(event).get("subresource")] == []


def ref(event: Object) -> Object:
    """What a request was about; `/version` is about nothing."""
    return dict(event.get("objectRef", {}))


@pytest.fixture
def distribution(node: Node) -> Iterator[Node]:
    """A cluster whose own roles say nothing of claims, as some distributions' do; its own come back afterwards."""
    names = ("system:aggregate-to-edit", "system:aggregate-to-view")
    before = {name: node.api.get("clusterroles", name)["rules"] for name in names}
    try:
        for name, rules in before.items():
            node.api.patch("clusterroles", name, {"rules": [rule for rule in rules if GROUP not in rule["apiGroups"]]})
        yield node
    finally:
        for name, rules in before.items():
            node.api.patch("clusterroles", name, {"rules": rules})


def binding(user: str, role: str) -> Object:
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": user}],
    }


def can_i(node: Node, user: str, verb: str, resource: str) -> bool:
    """`kubectl auth can-i`, as that user; a warning may stand before the answer."""
    said = node.kubectl("auth", "can-i", verb, f"{resource}.{GROUP}", f"--as={user}", check=False).text.split("\n")
    assert {"yes", "no"} & set(said), said
    return "yes" in said


def test_bc104_editors_make_claims_and_viewers_read_what_there_is(distribution: Node) -> None:
    node = distribution
    chart = Chart(binaries.build(binaries.helm())["helm"])
    made = chart.objects("--no-hooks", rbac={"aggregate": True})
    roles = [item for item in made if item["metadata"]["name"] in {"coreslice-edit", "coreslice-view"}]
    people = [binding("erin", "edit"), binding("vera", "view")]
    node.apply(*people)
    try:
        until(lambda: not can_i(node, "erin", "create", "resourceclaimtemplates"), what="no right yet", timeout=30)
        assert not can_i(node, "vera", "list", "deviceclasses")
        node.apply(*roles)
        until(lambda: can_i(node, "erin", "create", "resourceclaimtemplates"), what="the right to create", timeout=30)
        until(lambda: can_i(node, "vera", "list", "deviceclasses"), what="the right to look", timeout=30)
        for verb in ("create", "delete", "patch"):
            assert can_i(node, "erin", verb, "resourceclaims")
            assert not can_i(node, "vera", verb, "resourceclaims")
        for resource in ("resourceslices", "resourceclaims", "resourceclaimtemplates"):
            assert can_i(node, "vera", "list", resource)
        for resource in ("resourceslices", "deviceclasses"):
            assert not can_i(node, "erin", "create", resource)
    finally:
        node.delete_all_of([*people, *roles])


def test_bc104_kubernetes_own_roles_let_editors_make_claims(node: Node) -> None:
    """Why the chart's roles are off by default."""
    node.apply(binding("erin", "edit"))
    try:
        until(lambda: can_i(node, "erin", "create", "resourceclaimtemplates"), what="the right to create", timeout=30)
        assert can_i(node, "erin", "create", "resourceclaims")
        assert not can_i(node, "erin", "list", "resourceslices")
    finally:
        node.delete_all_of([binding("erin", "edit")])
