"""Rules on a slice's spec and metadata, each at its limit and one above."""

from collections.abc import Callable
from typing import Any

import pytest

Wire = dict[str, Any]
Judge = Callable[..., set[tuple[str, str]]]
MakeSlice = Callable[..., Wire]
MINORS = (34, 35, 36, 37)


def devices(count: int, **fields: Any) -> list[Wire]:
    found: list[Wire] = [{"name": f"d-{i}"} for i in range(count)]
    found[-1] |= fields
    return found


def sets(count: int, counters: int = 1) -> list[Wire]:
    return [{"name": f"s{i}", "counters": {f"c{j}": {"value": "1"} for j in range(counters)}} for i in range(count)]


DRAW = [{"counterSet": "s0", "counters": {"c0": {"value": "1"}}}]
TAINT = [{"key": "a", "effect": "NoSchedule"}]


@pytest.mark.parametrize("driver", ["a", "neuron.example.com", "Neuron.example.com", "d" * 63])
def test_good_drivers(make_slice: MakeSlice, refused: Judge, driver: str) -> None:
    assert refused(make_slice({"name": "d"}, driver=driver)) == set()


@pytest.mark.parametrize("driver", ["", "d" * 64, "a_b", "a/b", "-a", "a..b", None])
def test_bad_drivers(make_slice: MakeSlice, refused: Judge, driver: str) -> None:
    assert refused(make_slice({"name": "d"}, driver=driver)) == {("spec.driver", "driver-name")}


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("name", "a/b/c", ""),
        ("name", "a/" * 126 + "a", ""),
        ("name", "a/" * 127 + "a", "pool-name"),
        ("name", "", "dns-subdomain"),
        ("name", "a//b", "dns-subdomain"),
        ("name", "A", "dns-subdomain"),
        ("generation", 0, ""),
        ("generation", -1, "generation"),
        ("generation", 2**63, "type"),
        ("resourceSliceCount", 0, "slice-count"),
        ("resourceSliceCount", None, "slice-count"),
        ("resourceSliceCount", "1", "type"),
    ],
)
def test_pools(make_slice: MakeSlice, refused: Judge, field: str, value: Any, rule: str) -> None:
    made = make_slice({"name": "d"})
    made["spec"]["pool"][field] = value
    found = refused(made)
    assert {name for name, _ in found} <= {f"spec.pool.{field}"}
    assert {rule} - {""} <= {rule for _, rule in found}
    assert bool(found) == bool(rule)


@pytest.mark.parametrize(
    ("where", "rules"),
    [
        ({"nodeName": "n"}, set()),
        ({"allNodes": True}, set()),
        ({"nodeSelector": {"nodeSelectorTerms": [{}]}}, set()),
        ({}, {"slice-node"}),
        ({"nodeName": "n", "allNodes": True}, {"slice-node"}),
        ({"nodeName": ""}, {"node-name-empty", "slice-node"}),
        ({"nodeName": "A"}, {"dns-subdomain"}),
        ({"allNodes": False}, {"only-true", "slice-node"}),
        ({"nodeName": "n", "perDeviceNodeSelection": False}, {"only-true"}),
        ({"nodeSelector": {"nodeSelectorTerms": []}}, {"node-selector-terms"}),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, {"node-selector-terms"}),
    ],
)
def test_node_of_a_slice(make_slice: MakeSlice, refused: Judge, where: Wire, rules: set[str]) -> None:
    found = refused(make_slice({"name": "d"}, **({"nodeName": ...} | where)))
    assert {rule for _, rule in found} == rules


@pytest.mark.parametrize(
    ("kind", "requirement", "rules"),
    [
        ("matchExpressions", {"key": "zone", "operator": "In", "values": ["a", ""]}, set()),
        ("matchExpressions", {"key": "zone", "operator": "Exists"}, set()),
        ("matchExpressions", {"key": "zone", "operator": "Gt", "values": ["x"]}, set()),
        ("matchExpressions", {"key": "zone", "operator": "In"}, {"node-selector-values"}),
        ("matchExpressions", {"key": "zone", "operator": "Exists", "values": ["a"]}, {"node-selector-values"}),
        ("matchExpressions", {"key": "zone", "operator": "Lt", "values": ["1", "2"]}, {"node-selector-values"}),
        ("matchExpressions", {"key": "zone", "operator": "in", "values": ["a"]}, {"node-selector-operator"}),
        ("matchExpressions", {"key": "", "operator": "In", "values": ["a b"]}, {"label-key", "label-value"}),
        ("matchFields", {"key": "metadata.name", "operator": "In", "values": ["n"]}, set()),
        ("matchFields", {"key": "metadata.name", "operator": "In", "values": ["n", "m"]}, {"node-selector-values"}),
        ("matchFields", {"key": "metadata.name", "operator": "Exists"}, {"node-selector-operator"}),
        ("matchFields", {"key": "metadata.name", "operator": "NotIn", "values": ["A"]}, {"dns-subdomain"}),
        ("matchFields", {"key": "name", "operator": "In", "values": ["n"]}, {"node-selector-key"}),
    ],
)
def test_node_selectors(make_slice: MakeSlice, refused: Judge, kind: str, requirement: Wire, rules: set[str]) -> None:
    selector = {"nodeSelectorTerms": [{kind: [requirement]}]}
    found = refused(make_slice({"name": "d"}, nodeName=..., nodeSelector=selector))
    assert {rule for _, rule in found} == rules
    assert all(field.startswith(f"spec.nodeSelector.nodeSelectorTerms[0].{kind}[0]") for field, _ in found)


@pytest.mark.parametrize(
    ("minor", "fields", "most"),
    [
        (34, {}, 128),
        (34, {"taints": TAINT}, 128),
        (35, {}, 128),
        (35, {"taints": TAINT}, 64),
        (35, {"consumesCounters": DRAW}, 64),
        (35, {"taints": [], "consumesCounters": []}, 128),
        (36, {"attributes": {"a": {"ints": [1]}}}, 64),
        (37, {"consumesCounters": DRAW}, 64),
        (37, {}, 128),
    ],
)
def test_bc017_the_limit_of_devices_depends_on_what_they_use(
    make_slice: MakeSlice, refused: Judge, minor: int, fields: Wire, most: int
) -> None:
    assert refused(make_slice(*devices(most, **fields)), minor=minor) == set()
    assert refused(make_slice(*devices(most + 1, **fields)), minor=minor) == {("spec.devices", "device-count")}


def test_bc017_one_device_in_128_that_gets_a_taint(make_slice: MakeSlice, refused: Judge) -> None:
    """Why slices are always split at 64."""
    assert refused(make_slice(*devices(128))) == set()
    assert refused(make_slice(*devices(128, taints=TAINT))) == {("spec.devices", "device-count")}


@pytest.mark.parametrize("minor", MINORS)
def test_bc032_one_layout_for_134_another_from_135_on(make_slice: MakeSlice, refused: Judge, minor: int) -> None:
    drawing = {"name": "d", "consumesCounters": DRAW}
    together = refused(make_slice(drawing, sharedCounters=sets(1)), minor=minor)
    apart = refused(make_slice(sharedCounters=sets(1)), make_slice(drawing, name="slice-1"), minor=minor)
    if minor == 34:
        assert together == set()
        assert apart == {("spec.devices[0].consumesCounters[0].counterSet", "counter-reference")}
    else:
        assert together == {("spec", "separate-counters")}
        assert apart == set()


def test_bc032_an_empty_list_is_enough_to_be_refused(make_slice: MakeSlice, refused: Judge) -> None:
    assert refused(make_slice(sharedCounters=sets(1), devices=[])) == {("spec", "separate-counters")}
    assert refused(make_slice(sharedCounters=sets(1), devices=None)) == set()


def test_counter_sets(make_slice: MakeSlice, refused: Judge) -> None:
    assert refused(make_slice(sharedCounters=sets(8, 32))) == set()
    assert refused(make_slice(sharedCounters=sets(9))) == {("spec.sharedCounters", "counter-sets")}
    assert refused(make_slice(sharedCounters=sets(1, 33))) == {("spec.sharedCounters[0].counters", "counter-count")}
    assert refused(make_slice(sharedCounters=sets(1) * 2)) == {("spec.sharedCounters[1]", "duplicate")}
    bad = [{"name": "S", "counters": {"C": {"value": "1"}}}, {"name": "t", "counters": {}}]
    assert refused(make_slice(sharedCounters=bad)) == {
        ("spec.sharedCounters[0].name", "dns-label"),
        ("spec.sharedCounters[0].counters[C]", "dns-label"),
        ("spec.sharedCounters[1].counters", "required"),
    }


def drawing(count: int, counters: int) -> list[Wire]:
    draw = {"counterSet": "s0", "counters": {f"c{j}": {"value": "1"} for j in range(counters)}}
    return [{"name": f"d-{i}", "consumesCounters": [draw]} for i in range(count)]


@pytest.mark.parametrize(
    ("found", "counters", "fields"),
    [
        (drawing(32, 32), 32, set()),
        (drawing(33, 32), 32, {"spec.devices"}),
        (drawing(1, 32), 33, {"spec.sharedCounters"}),
        (drawing(1, 33), 33, {"spec.sharedCounters", "spec.devices[0]"}),
        (drawing(1, 2), 1, {"spec.devices[0].consumesCounters[0].counters[c1]"}),
    ],
)
def test_totals_and_references_of_134(
    make_slice: MakeSlice, refused: Judge, found: list[Wire], counters: int, fields: set[str]
) -> None:
    faults = refused(make_slice(*found, sharedCounters=sets(1, counters)), minor=34)
    assert {field for field, _ in faults} == fields


@pytest.mark.parametrize(
    ("operations", "rules"),
    [
        ([], set()),
        (["NodeUnprepareResources"], set()),
        (["NodePrepareResources", "NodeUnprepareResources"], set()),
        (["NodePrepareResources", "*"], set()),
        (["NodePrepareResources"], {"operation"}),
        (["Other"], {"operation"}),
        (["*", "*"], {"duplicate"}),
    ],
)
def test_node_operations(make_slice: MakeSlice, refused: Judge, operations: list[str], rules: set[str]) -> None:
    found = refused(make_slice({"name": "d"}, skipNodeOperations=operations))
    assert {rule for _, rule in found} == rules


@pytest.mark.parametrize(
    ("name", "attributes", "rules"),
    [
        ("neuron.example.com/type", {"type": {"string": "core"}}, set()),
        ("neuron.example.com/type", {"neuron.example.com/type": {"string": "core"}}, set()),
        ("example.org/type", {"example.org/type": {"string": "core"}}, set()),
        ("example.org/type", {"type": {"string": "core"}}, {"partition-type"}),
        ("neuron.example.com/type", {"type": {"int": 1}}, {"partition-type"}),
        ("type", {"type": {"string": "core"}}, {"fully-qualified"}),
        ("Example.org/type", {"Example.org/type": {"string": "core"}}, {"dns-subdomain"}),
        ("example.org/a-b", {}, {"qualified-name"}),
    ],
)
def test_partition_type(make_slice: MakeSlice, refused: Judge, name: str, attributes: Wire, rules: set[str]) -> None:
    device = {"name": "d", "attributes": attributes, "consumesCounters": DRAW}
    found = refused(make_slice(device, partitionTypeAttribute=name))
    assert {rule for _, rule in found} == rules


def test_partition_type_needs_counters(make_slice: MakeSlice, refused: Judge) -> None:
    slices = make_slice({"name": "d"}, partitionTypeAttribute="example.org/type")
    assert refused(slices) == {("spec.partitionTypeAttribute", "partition-type")}


OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("metadata", "rules"),
    [
        ({"name": "a" * 253}, set()),
        ({"name": "a" * 254}, {"dns-subdomain"}),
        ({"name": "A"}, {"dns-subdomain"}),
        ({"name": ""}, {"required"}),
        ({"name": None, "generateName": "slice-"}, set()),
        ({"name": None, "generateName": "a."}, {"dns-subdomain"}),
        ({"name": None, "generateName": "a" * 57 + ".b"}, set()),
        ({"name": None, "generateName": "A"}, {"dns-subdomain"}),
        ({"labels": {"a": "b", "x.y/z": ""}}, set()),
        ({"labels": {"a/b/c": "d"}}, {"label-key"}),
        ({"labels": {"a": "b c"}}, {"label-value"}),
        ({"annotations": {"A.b/C": "anything at all"}}, set()),
        ({"annotations": {"a b": ""}}, {"label-key"}),
        ({"annotations": {"a": "x" * 262143}}, set()),
        ({"annotations": {"a": "x" * 262144}}, {"annotations-size"}),
        ({"ownerReferences": [OWNER, OWNER | {"controller": False}]}, set()),
        ({"ownerReferences": [OWNER, OWNER]}, {"owner-controller"}),
        ({"ownerReferences": [OWNER | {"uid": ""}]}, {"required"}),
        ({"ownerReferences": [OWNER | {"apiVersion": "a/b/c"}]}, {"owner-version"}),
        ({"ownerReferences": [OWNER | {"kind": "Event"}]}, {"owner-event"}),
        ({"finalizers": ["orphan", "example.com/x"]}, set()),
        ({"finalizers": ["mine"]}, {"finalizer"}),
        ({"finalizers": ["orphan", "foregroundDeletion"]}, {"finalizer"}),
        ({"namespace": "anything", "uid": "x", "creationTimestamp": None}, set()),
    ],
)
def test_metadata(make_slice: MakeSlice, refused: Judge, metadata: Wire, rules: set[str]) -> None:
    made = make_slice({"name": "d"})
    made["metadata"] |= metadata
    assert {rule for _, rule in refused(made)} == rules


@pytest.mark.parametrize("version", ["resource.k8s.io/v1beta1", "v1", None])
def test_only_v1_is_judged(make_slice: MakeSlice, refused: Judge, version: Any) -> None:
    assert refused(make_slice({"name": "d"}) | {"apiVersion": version}) == {("apiVersion", "api-version")}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("driver", 5),
        ("driver", ["x"]),
        ("pool", "p"),
        ("pool", []),
        ("devices", {}),
        ("devices", "x"),
        ("devices", ["x"]),
        ("allNodes", "true"),
        ("nodeSelector", []),
        ("sharedCounters", [[]]),
    ],
)
def test_values_of_another_type_are_refused_and_nothing_breaks(
    make_slice: MakeSlice, refused: Judge, field: str, value: Any
) -> None:
    found = refused(make_slice(**{field: value}))
    assert "type" in {rule for name, rule in found if name.startswith(f"spec.{field}")}


@pytest.mark.parametrize("spec", [None, "x", [], 5, {}])
def test_a_spec_that_is_none(make_slice: MakeSlice, refused: Judge, spec: Any) -> None:
    assert refused(make_slice() | {"spec": spec}) >= {("spec.driver", "driver-name"), ("spec", "slice-node")}
