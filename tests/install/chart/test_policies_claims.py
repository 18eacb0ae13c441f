"""The policy on claims and templates, on real API servers: one claim asks one device, in one request."""

import re
from typing import Any

import pytest
from testbed import settings
from testbed.api import Object
from testbed.charts import Chart, Server, refused
from testbed.waiting import until

DRIVER = "neuron.coreslice.dev"
API = "/apis/resource.k8s.io/v1/namespaces/default"
KINDS = ("ResourceClaim", "ResourceClaimTemplate")
EXTENDED = {"resource.kubernetes.io/extended-resource-claim": "true"}

pytestmark = pytest.mark.cluster


def plain(name: str, device_class: str, **more: Any) -> Object:
    """A request of the ordinary kind."""
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}


def either(name: str, *alternatives: tuple[str, int]) -> Object:
    """A request with alternatives a, b, c …: class and count."""
    listed = [
        {"name": chr(ord("a") + at), "deviceClassName": device_class, "count": count}
        for at, (device_class, count) in enumerate(alternatives)
    ]
    return {"name": name, "firstAvailable": listed}


def said(
    server: Server,
    *requests: Object,
    kind: str = "ResourceClaim",
    token: str = "",
    annotations: dict[str, str] | None = None,
    config: Object | None = None,
    namespace: str = "default",
) -> str:
    """What the server says to a claim or template of these requests; empty where it takes it."""
    spec: Object = {"devices": {"requests": list(requests)}}
    if config:
        spec["devices"]["config"] = [config]
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "asked", "annotations": annotations or {}},
        "spec": spec if kind == "ResourceClaim" else {"spec": spec},
    }
    path = f"{API.replace('default', namespace)}/{kind.lower()}s"
    code, message = refused(server.api(token or settings.token("admin")), "POST", path, body)
    assert code in (0, 422), message
    return message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("device_class", "count", "instead"),
    [
        ("neuron-core", 2, "ask one of class neuron-cores-2"),
        ("neuron-core", 32, "ask one of class neuron-cores-32"),
        ("neuron-cores-4", 4, "ask one of class neuron-cores-16"),
        ("neuron-chip", 4, "ask one of class neuron-chips-4"),
        ("neuron-chips-2", 3, "ask one of class neuron-chips-6"),
        ("neuron-core", 5, "classes have 1, 2, 4, 8, 12, 16, 24, 32, 64, 128 cores or 1, 2, 4, 6, 8, 12, 16 chips"),
        ("neuron-chip", 7, "classes have 1, 2, 4, 8, 12, 16, 24, 32, 64, 128 cores or 1, 2, 4, 6, 8, 12, 16 chips"),
        ("neuron-core", 24, "ask one of class neuron-cores-24"),
        ("neuron-chips-16", 2, "no class is that large"),
    ],
)
def test_bc077_count_is_refused_with_the_class_to_ask(
    server: Server, kind: str, device_class: str, count: int, instead: str
) -> None:
    text = said(server, plain("r", device_class, count=count), kind=kind)
    assert f"request r asks {count} devices of class {device_class}: " in text
    assert instead in text
    assert "one request is one device" in text


@pytest.mark.parametrize("kind", KINDS)
def test_count_inside_first_available_is_refused(server: Server, kind: str) -> None:
    text = said(server, either("r", ("neuron-cores-32", 1), ("neuron-core", 32), ("neuron-chip", 2)), kind=kind)
    assert "request r/b asks 32 devices of class neuron-core: ask one of class neuron-cores-32" in text
    assert "request r/c asks 2 devices of class neuron-chip: ask one of class neuron-chips-2" in text
    assert "r/a" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_second_request_is_refused(server: Server, kind: str) -> None:
    text = said(server, plain("a", "neuron-core"), plain("b", "neuron-core"), kind=kind)
    assert "requests a, b of one claim" in text
    assert "ask one device of class neuron-cores-2" in text
    assert "spec.resourceClaims" in text


@pytest.mark.parametrize(
    ("second", "instead"),
    [
        (plain("b", "neuron-cores-2"), "ask one device of a larger class"),  # 1 + 2 = 3: no such class
        (plain("b", "neuron-chip"), "ask one device of a larger class"),
        (either("b", ("neuron-core", 1), ("neuron-chip", 1)), "ask one device of a larger class"),
        (plain("b", "neuron-core", count=3), "ask one device of class neuron-cores-4"),
    ],
)
def test_second_request_of_another_kind(server: Server, second: Object, instead: str) -> None:
    assert instead in told(server, plain("a", "neuron-core"), second)


def told(server: Server, *requests: Object) -> str:
    """As `said`; where two rules are broken the server reports the first, so the count is taken out for the second."""
    text = said(server, *requests)
    if "asks 3 devices" not in text:
        return text
    halves = [plain("a", "neuron-core"), *(plain(f"b{at}", "neuron-core") for at in range(3))]
    return said(server, *halves)


@pytest.mark.parametrize("kind", KINDS)
def test_all_is_refused(server: Server, kind: str) -> None:
    text = said(server, plain("r", "neuron-core", allocationMode="All"), kind=kind)
    assert "request r asks all devices of class neuron-core: ask one of the class neuron-cores-N" in text


def test_all_with_admin_access_passes(server: Server) -> None:
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "monitoring", "labels": {"resource.kubernetes.io/admin-access": "true"}},
    }
    server.apply(namespace)
    request = plain("r", "neuron-core", allocationMode="All", adminAccess=True)
    assert said(server, request, namespace="monitoring") == ""
    assert "asks 2 devices" in said(
        server, plain("r", "neuron-core", count=2, adminAccess=True), namespace="monitoring"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_opaque_parameters_for_our_driver_are_refused(server: Server, kind: str) -> None:
    ours = {"opaque": {"driver": DRIVER, "parameters": {"logicalNeuronCore": 1}}}
    text = said(server, plain("r", "neuron-chip"), kind=kind, config=ours)
    assert f"opaque parameters for driver {DRIVER}" in text
    assert "remove that entry" in text
    foreign = {"opaque": {"driver": "gpu.example.com", "parameters": {"mode": "x"}}}
    assert said(server, plain("r", "neuron-chip"), kind=kind, config=foreign) == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "requests",
    [
        (),
        (plain("r", "neuron-core"),),
        (plain("r", "neuron-cores-32", count=1),),
        (either("r", ("neuron-chips-4", 1), ("neuron-chip", 1), ("neuron-core", 1)),),
        (plain("r", "neuron-core"), plain("nic", "efa", count=4), plain("all", "efa", allocationMode="All")),
        (plain("r", "neuron-core-of-mine", count=8),),  # a class that a user made is outside
        (either("r", ("gpu", 2), ("neuron-core", 1)),),
    ],
    ids=["empty", "core", "count-1", "fallback", "beside-others", "own-class", "other-alternative"],
)
def test_what_is_meant_to_work_passes(server: Server, kind: str, requests: tuple[Object, ...]) -> None:
    assert said(server, *requests, kind=kind) == ""


def test_claim_of_the_scheduler_passes(server: Server) -> None:
    requests = (plain("container-0-request-0", "neuron-core", count=2), plain("container-1-request-0", "neuron-core"))
    scheduler = settings.token("scheduler")
    assert said(server, *requests, token=scheduler, annotations=EXTENDED) == ""
    assert "asks 2 devices" in said(server, *requests, token=scheduler)  # by name alone it is no exemption either


def test_annotation_of_the_scheduler_is_no_way_around(server: Server) -> None:
    alice = server.token("alice")
    requests = (plain("r", "neuron-core", count=2),)
    assert "ask one of class neuron-cores-2" in said(server, *requests, token=alice, annotations=EXTENDED)
    assert "ask one of class neuron-cores-2" in said(server, *requests, token=alice)
    assert said(server, plain("r", "neuron-core"), token=alice) == ""


def test_scheduler_of_another_name_passes_by_the_right_to_bind(server: Server) -> None:
    """A second scheduler has a name of its own, and the right that schedulers have from 1.36 on."""
    group = "rbac.authorization.k8s.io"
    rule = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims/binding"], "verbs": ["update", "patch"]}
    subjects = [{"kind": "ServiceAccount", "name": "batch-scheduler", "namespace": "default"}]
    make = [plain("container-0-request-0", "neuron-core", count=2)]
    server.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "batch-scheduler", "namespace": "default"}},
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "binder"}, "rules": [rule]},
        *(
            {
                "apiVersion": f"{group}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": role},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
                "subjects": subjects,
            }
            for role in ("binder",)
        ),
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "batch-scheduler"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "people"},
            "subjects": subjects,
        },
    )
    token = server.token("batch-scheduler")
    assert said(server, *make, token=token, annotations=EXTENDED) == ""


def test_older_api_versions_are_no_way_around(server: Server) -> None:
    body = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {"name": "old"},
        "spec": {"devices": {"requests": [{"name": "r", "deviceClassName": "neuron-core", "count": 2}]}},
    }
    code, message = refused(server.admin, "POST", API.replace("/v1/", "/v1beta1/") + "/resourceclaims", body)
    if server.version == "1.34":
        assert "ask one of class neuron-cores-2" in message
    else:
        assert code == 404  # the node's own server doesn't serve it


def test_server_of_1_34_is_one(server: Server) -> None:
    """What makes the run on it mean something."""
    version = server.admin.request("GET", "/version")
    assert version.get("emulationMinor", version["minor"]) == server.version.removeprefix("1.")


def test_no_function_that_servers_of_1_34_lack(chart: Chart) -> None:
    """The emulating server has one library too many: it compiles as 1.35 does, for servers from 1.34 on."""
    later = re.compile(r"\.(flatten|slice|distinct|sort|sortBy|reverse|first|last)\(|lists\.range")
    assert later.search("[[1], [2]].flatten()")
    for item in chart.objects():
        if item["kind"] == "ValidatingAdmissionPolicy":
            assert not later.search(str(item["spec"])), item["metadata"]["name"]


def test_nothing_in_the_policies_is_of_the_wrong_type(server: Server) -> None:
    """The controller manager checks expressions against the types of what they are for; it serves the node's own."""
    if server.version == "1.34":
        return
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/coreslice-"
    for name in ("claims", "pods", "slices"):
        status = until(
            lambda path=path + name: server.admin.request("GET", path).get("status") or None,  # type: ignore[misc]
            what=f"{name} checked",
            timeout=30,
        )
        assert status["observedGeneration"] == 1
        assert "expressionWarnings" not in status["typeChecking"], status
