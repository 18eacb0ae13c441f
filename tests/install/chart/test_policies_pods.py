"""The policy on pods that ask by a class's extended resource name, on real API servers."""

import pytest
from testbed.api import Object
from testbed.charts import Chart, Server, refused
from testbed.waiting import until

NAME = "deviceclass.resource.kubernetes.io/"
PODS = "/api/v1/namespaces/default/pods"
SIZES = "classes have 1, 2, 4, 8, 12, 16, 24, 32, 64, 128 cores or 1, 2, 4, 6, 8, 12, 16 chips"

pytestmark = pytest.mark.cluster


def container(name: str, **resources: dict[str, str]) -> Object:
    """A container with limits and requests."""
    return {"name": name, "image": "none", "resources": resources}


def said(server: Server, *containers: Object, init: tuple[Object, ...] = ()) -> str:
    """What the server says to a pod; empty where it takes it."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "asks"},
        "spec": {"containers": list(containers), "initContainers": list(init)},
    }
    code, message = refused(server.admin, "POST", PODS, body)
    assert code in (0, 422), message
    return message


@pytest.mark.parametrize(
    ("device_class", "amount", "instead"),
    [
        ("neuron-core", "2", f"ask 1 of {NAME}neuron-cores-2"),
        ("neuron-core", "32", f"ask 1 of {NAME}neuron-cores-32"),
        ("neuron-cores-2", "2", f"ask 1 of {NAME}neuron-cores-4"),
        ("neuron-chip", "16", f"ask 1 of {NAME}neuron-chips-16"),
        ("neuron-core", "3", SIZES),
        ("neuron-core", "500m", SIZES),
        ("neuron-core", "1500m", SIZES),
        ("neuron-core", "1k", SIZES),
    ],
)
@pytest.mark.parametrize("fields", [("limits",), ("requests",), ("limits", "requests")], ids="+".join)
def test_amount_is_refused_with_the_name_to_ask(
    server: Server, device_class: str, amount: str, instead: str, fields: tuple[str, ...]
) -> None:
    asked = {field: {NAME + device_class: amount, "cpu": "1"} for field in fields}
    text = said(server, container("main", **asked))
    assert f"container main has {fields[0]} of {NAME}{device_class}: {amount}" in text
    assert instead in text


def test_requests_below_limits_are_seen(server: Server) -> None:
    """The API's own rule, requests equal to limits, doesn't hold for these names."""
    text = said(server, container("main", limits={NAME + "neuron-core": "2"}, requests={NAME + "neuron-core": "1"}))
    assert "has limits of" in text
    assert "has requests of" not in text


def test_each_container_is_named(server: Server) -> None:
    many = {NAME + "neuron-core": "2"}
    text = said(
        server, container("one", limits=many), container("two", requests=many), init=(container("zero", limits=many),)
    )
    assert [word in text for word in ("container zero", "container one", "container two")] == [True] * 3


def test_two_names_in_one_container_are_refused(server: Server) -> None:
    both = {NAME + "neuron-core": "1", NAME + "neuron-cores-2": "1"}
    text = said(server, container("main", limits=both))
    assert "container main asks" in text
    assert (
        f"{NAME}neuron-core and {NAME}neuron-cores-2" in text or f"{NAME}neuron-cores-2 and {NAME}neuron-core" in text
    )
    assert SIZES in text  # 1 + 2 = 3 cores: no such class


def test_two_names_that_make_a_size(server: Server) -> None:
    both = {NAME + "neuron-cores-4": "1", NAME + "neuron-cores-8": "1"}
    assert f"ask 1 of {NAME}neuron-cores-12" in said(server, container("main", limits=both))


def test_chip_and_core_in_one_container(server: Server) -> None:
    text = said(server, container("main", limits={NAME + "neuron-core": "1"}, requests={NAME + "neuron-chip": "1"}))
    assert f"{NAME}neuron-chip" in text
    assert "ask one name of the right size" in text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"limits": {NAME + "neuron-core": "1"}}, {"limits": {NAME + "neuron-core": "1"}}),
        ({"limits": {NAME + "neuron-core": "1000m"}}, {"limits": {NAME + "neuron-chip": "1"}}),
        ({"limits": {NAME + "neuron-core": "0", NAME + "neuron-chip": "1"}}, {}),
        ({"limits": {NAME + "neuron-core-of-mine": "4"}}, {"requests": {"cpu": "2", "memory": "1Gi"}}),
        ({"limits": {"aws.amazon.com/neuroncore": "2"}}, {"limits": {"nvidia.com/gpu": "8"}}),
    ],
    ids=["two-containers", "as-thousandths", "zero-of-another", "own-class", "other-names"],
)
def test_what_is_meant_to_work_passes(server: Server, first: Object, second: Object) -> None:
    assert said(server, container("a", **first), container("b", **second)) == ""


def test_own_name_of_a_class_counts_as_well(server: Server, chart: Chart) -> None:
    """Where the legacy names are on the classes, `neuroncore: 2` is refused too, with the implicit name to ask."""
    names = {"extendedResourceNames": {"neuron-core": "aws.amazon.com/neuroncore"}}
    before, after = (
        [item for item in chart.objects(classes=classes) if item["metadata"]["name"] == "coreslice-pods"]
        for classes in ({}, names)
    )
    many = container("main", limits={"aws.amazon.com/neuroncore": "2"})
    server.apply(*after)
    try:
        until(lambda: said(server, many) != "", what="the changed policy", timeout=30)
        assert f"ask 1 of {NAME}neuron-cores-2" in said(server, many)
        assert said(server, container("main", limits={"aws.amazon.com/neuroncore": "1"})) == ""
        mixed = {"aws.amazon.com/neuroncore": "1", NAME + "neuron-core": "1"}
        assert f"ask 1 of {NAME}neuron-cores-2" in said(server, container("main", limits=mixed))
    finally:
        server.apply(*before)
        until(lambda: said(server, many) == "", what="the policy as it was", timeout=30)
