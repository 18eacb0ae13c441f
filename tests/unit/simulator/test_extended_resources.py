"""Extended resource names: device plugin or claim, and which container gets which request."""

from typing import Any

import pytest

from dra_driver.simulator.extended_resources import IMPLICIT, Plan, classic_amounts, plan, special_claim

Wire = dict[str, Any]
CHIP, CORE = "aws.amazon.com/neuron", "aws.amazon.com/neuroncore"


def container(name: str, limits: Wire | None = None, **more: Any) -> Wire:
    return {"name": name, "resources": {"limits": limits or {}}, **more}


def pod(*main: Wire, init: list[Wire] | None = None) -> Wire:
    spec = {"containers": list(main)} | ({"initContainers": init} if init else {})
    return {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}


def device_class(name: str, extended: str = "", created: str = "2026-01-01T00:00:00Z") -> Wire:
    spec = {"extendedResourceName": extended} if extended else {}
    return {"metadata": {"name": name, "creationTimestamp": created}, "spec": spec}


CLASSES = [device_class("neuron-core", CORE), device_class("neuron-chip", CHIP)]


def planned(subject: Wire, allocatable: Wire | None = None, classes: list[Wire] | None = None) -> Plan:
    return plan(subject, allocatable=allocatable or {}, classes=CLASSES if classes is None else classes)


def counts(result: Plan) -> dict[str, int]:
    return {request["name"]: request["exactly"]["count"] for request in result.requests}


def mapped(result: Plan) -> list[tuple[str, str]]:
    return [(mapping["containerName"], mapping["requestName"]) for mapping in result.mappings]


def test_a_name_that_the_node_offers_is_the_device_plugins() -> None:
    result = planned(pod(container("main", {CORE: "2"})), {CORE: "4"})
    assert result == Plan(classic={CORE: 2})


@pytest.mark.parametrize("allocatable", [{}, {CORE: "0"}])
def test_a_name_at_zero_is_the_class_s(allocatable: Wire) -> None:
    result = planned(pod(container("main", {CORE: "2"})), allocatable)
    assert result.classic == {}
    assert result.requests == [
        {
            "name": "container-0-request-0",
            "exactly": {"deviceClassName": "neuron-core", "allocationMode": "ExactCount", "count": 2},
        }
    ]
    assert result.mappings == [{"containerName": "main", "resourceName": CORE, "requestName": "container-0-request-0"}]


def test_the_implicit_name_needs_no_extended_name() -> None:
    result = planned(pod(container("main", {IMPLICIT + "plain": "1"})), classes=[device_class("plain")])
    assert [request["exactly"]["deviceClassName"] for request in result.requests] == ["plain"]


def test_a_name_that_nobody_serves_stays_with_the_device_plugin() -> None:
    assert planned(pod(container("main", {"else.dev/x": "1"}))).classic == {"else.dev/x": 1}


def test_of_two_classes_with_one_name_the_newer_wins_then_the_first_by_name() -> None:
    old, new = device_class("a-old", CORE), device_class("z-new", CORE, "2026-02-02T00:00:00Z")
    same = device_class("b-old", CORE)
    subject = pod(container("main", {CORE: "1"}))
    for classes, winner in (
        ([old, new], "z-new"),
        ([new, old], "z-new"),
        ([same, old], "a-old"),
        ([old, same], "a-old"),
    ):
        (request,) = planned(subject, classes=classes).requests
        assert request["exactly"]["deviceClassName"] == winner


def test_native_resources_are_none() -> None:
    limits = {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": "4Mi", "kubernetes.io/batch": "1"}
    assert planned(pod(container("main", limits))) == Plan()


def test_a_request_is_numbered_among_all_names_of_its_container() -> None:
    subject = pod(
        container("first", {"cpu": "1"}),
        {"name": "main", "resources": {"limits": {CORE: "1", CHIP: "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}},
    )
    assert counts(planned(subject)) == {"container-1-request-0": 1, "container-1-request-1": 1}
    by_resource = {one["resourceName"]: one["requestName"] for one in planned(subject).mappings}
    assert by_resource == {CHIP: "container-1-request-0", CORE: "container-1-request-1"}


def test_zero_asks_for_nothing() -> None:
    assert planned(pod(container("main", {CORE: "0"}))) == Plan()


def test_each_container_has_a_request_of_its_own_and_they_are_sorted_as_text() -> None:
    result = planned(pod(*(container(f"c{at}", {CORE: "1"}) for at in range(11))))
    names = [request["name"] for request in result.requests]
    assert names == sorted(names)
    assert names[1:3] == ["container-1-request-0", "container-10-request-0"]


def test_an_init_container_reuses_a_later_ones_request() -> None:
    result = planned(pod(container("main", {CORE: "2"}), init=[container("load", {CORE: "1"})]))
    assert counts(result) == {"container-1-request-0": 2}
    assert mapped(result) == [("load", "container-1-request-0"), ("main", "container-1-request-0")]


def test_init_containers_add_the_largest_shortfall_once() -> None:
    init = [container("small", {CORE: "2"}), container("large", {CORE: "4"})]
    result = planned(pod(container("main", {CORE: "1"}), init=init))
    assert counts(result) == {"container-1-request-0": 3, "container-2-request-0": 1}
    assert mapped(result) == [
        ("small", "container-2-request-0"),
        ("small", "container-1-request-0"),
        ("large", "container-2-request-0"),
        ("large", "container-1-request-0"),
        ("main", "container-2-request-0"),
    ]


def test_a_sidecar_keeps_its_own() -> None:
    sidecar = container("side", {CORE: "1"}, restartPolicy="Always")
    result = planned(pod(container("main", {CORE: "1"}), init=[sidecar]))
    assert counts(result) == {"container-0-request-0": 1, "container-1-request-0": 1}


def test_an_earlier_sidecar_is_not_reused() -> None:
    sidecar = container("side", {CORE: "1"}, restartPolicy="Always")
    result = planned(pod(container("main"), init=[sidecar, container("load", {CORE: "1"})]))
    assert counts(result) == {"container-0-request-0": 1, "container-1-request-0": 1}


@pytest.mark.parametrize(
    ("init", "main", "amount"), [([1], [2, 1], 3), ([5], [2, 1], 5), ([2, 3], [1], 3), ([], [], 0)]
)
def test_what_a_pod_takes_of_a_device_plugin(init: list[int], main: list[int], amount: int) -> None:
    subject = pod(
        *(container(f"m{at}", {CORE: str(n)}) for at, n in enumerate(main)),
        init=[container(f"i{at}", {CORE: str(n)}) for at, n in enumerate(init)],
    )
    assert classic_amounts(subject).get(CORE, 0) == amount


def test_requests_go_before_limits() -> None:
    main = {"name": "main", "resources": {"requests": {CORE: "2"}, "limits": {CORE: "2"}}}
    assert classic_amounts(pod(main)) == {CORE: 2}
    assert classic_amounts(pod({"name": "main"})) == {}


def test_the_special_claim_is_the_schedulers() -> None:
    request = {"name": "r", "exactly": {"deviceClassName": "c"}}
    claim = special_claim(pod(container("main")), [request])
    assert claim["metadata"] == {
        "generateName": "p-extended-resources-",
        "namespace": "ns",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": "p",
                "uid": "u",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    assert claim["spec"] == {"devices": {"requests": [request]}}
