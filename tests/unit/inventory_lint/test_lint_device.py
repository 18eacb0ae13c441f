"""Rules on one device, each at its limit and one above."""

from collections.abc import Callable
from typing import Any

import pytest

Wire = dict[str, Any]
Judge = Callable[..., set[tuple[str, str]]]
MakeSlice = Callable[..., Wire]
MINORS = (34, 35, 36, 37)
AT = "spec.devices[0]"


@pytest.mark.parametrize("minor", MINORS)
def test_a_plain_device_is_good(make_slice: MakeSlice, refused: Judge, minor: int) -> None:
    device = {"name": "core-0-0", "attributes": {"type": {"string": "core"}}, "capacity": {"memory": {"value": "16Gi"}}}
    assert refused(make_slice(device), minor=minor) == set()


@pytest.mark.parametrize("name", ["a", "0", "core-0-1-lnc2", "a" * 63])
def test_good_device_names(make_slice: MakeSlice, refused: Judge, name: str) -> None:
    assert refused(make_slice({"name": name})) == set()


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a_b", "é", "a" * 64, "a\n", None])
def test_bad_device_names(make_slice: MakeSlice, refused: Judge, name: str) -> None:
    assert refused(make_slice({"name": name})) == {(f"{AT}.name", "dns-label")}


def test_two_devices_of_one_name(make_slice: MakeSlice, refused: Judge) -> None:
    slices = make_slice({"name": "a"}, {"name": "b"}, {"name": "a"})
    assert refused(slices) == {("spec.devices[2]", "duplicate")}


@pytest.mark.parametrize("version", ["2.29.0.0", "2.29", "2.x.8072.0", "garbage", "", "v1.2.3", "01.2.3", "1.2.3-01"])
def test_bc014_version_is_not_semver(make_slice: MakeSlice, refused: Judge, version: str) -> None:
    device = {"name": "d", "attributes": {"driverVersion": {"version": version}}}
    assert refused(make_slice(device)) == {(f"{AT}.attributes[driverVersion].version", "version")}


@pytest.mark.parametrize("version", ["2.29.0+0", "0.0.0-unknown", "1.2.3-rc.1+build.7", "1.2.3+" + "b" * 58])
def test_bc015_what_stands_for_an_unknown_version_is_one(make_slice: MakeSlice, refused: Judge, version: str) -> None:
    device = {"name": "d", "attributes": {"driverVersion": {"version": version}}}
    assert refused(make_slice(device)) == set()


def test_bc014_version_longer_than_the_limit(make_slice: MakeSlice, refused: Judge) -> None:
    device = {"name": "d", "attributes": {"driverVersion": {"version": "1.2.3+" + "b" * 59}}}
    assert refused(make_slice(device)) == {(f"{AT}.attributes[driverVersion].version", "value-length")}


@pytest.mark.parametrize(
    ("text", "good"), [("", True), ("x" * 64, True), ("é" * 32, True), ("x" * 65, False), ("é" * 33, False)]
)
def test_strings_are_measured_in_bytes(make_slice: MakeSlice, refused: Judge, text: str, *, good: bool) -> None:
    expected = set() if good else {(f"{AT}.attributes[a].string", "value-length")}
    assert refused(make_slice({"name": "d", "attributes": {"a": {"string": text}}})) == expected


@pytest.mark.parametrize("key", ["model", "_a", "a1", "x" * 32, "example.com/x", "d" * 63 + "/x", "Dom.ain/x"])
def test_bc018_good_keys(make_slice: MakeSlice, refused: Judge, key: str) -> None:
    device = {"name": "d", "attributes": {key: {"int": 1}}, "capacity": {f"{key[:-1]}y": {"value": "1"}}}
    assert refused(make_slice(device)) == set()


@pytest.mark.parametrize(
    "key", ["numa-1", "core-3", "9a", "", "x" * 33, "a b", "é", "/x", "x/", "d" * 64 + "/x", "a.b/x-y"]
)
def test_bc018_attribute_key_with_a_dash_refused(make_slice: MakeSlice, refused: Judge, key: str) -> None:
    in_attributes = refused(make_slice({"name": "d", "attributes": {key: {"int": 1}}}))
    assert {field for field, _ in in_attributes} == {f"{AT}.attributes[{key}]"}
    in_capacity = refused(make_slice({"name": "d", "capacity": {key: {"value": "1"}}}))
    assert {rule for _, rule in in_capacity} == {rule for _, rule in in_attributes} <= {"qualified-name", "driver-name"}


@pytest.mark.parametrize("value", [{}, {"int": 1, "bool": True}, {"string": "", "version": "1.2.3"}, None])
def test_exactly_one_value(make_slice: MakeSlice, refused: Judge, value: Any) -> None:
    assert refused(make_slice({"name": "d", "attributes": {"a": value}})) == {
        (f"{AT}.attributes[a]", "attribute-value")
    }


@pytest.mark.parametrize(
    ("attributes", "capacities", "good"), [(32, 0, True), (31, 1, True), (32, 1, False), (0, 33, False)]
)
def test_attributes_and_capacities_together(
    make_slice: MakeSlice, refused: Judge, attributes: int, capacities: int, *, good: bool
) -> None:
    device = {
        "name": "d",
        "attributes": {f"a{i}": {"int": i} for i in range(attributes)},
        "capacity": {f"c{i}": {"value": "1"} for i in range(capacities)},
    }
    assert refused(make_slice(device)) == (set() if good else {(AT, "attribute-count")})


def test_values_of_lists_count_one_by_one(make_slice: MakeSlice, refused: Judge) -> None:
    device: Wire = {"name": "d", "attributes": {"many": {"ints": list(range(47))}, "one": {"int": 1}}}
    assert refused(make_slice(device)) == set()
    device["attributes"]["another"] = {"bool": True}
    assert refused(make_slice(device)) == {(AT, "attribute-values")}


def test_lists_are_not_empty_and_their_items_are_good(make_slice: MakeSlice, refused: Judge) -> None:
    attributes = {"a": {"strings": []}, "b": {"strings": ["x", "x" * 65]}, "c": {"versions": ["1.2.3", "1.2"]}}
    at = f"{AT}.attributes"
    assert refused(make_slice({"name": "d", "attributes": attributes})) == {
        (f"{at}[a].strings", "attribute-list-empty"),
        (f"{at}[b].strings[1]", "value-length"),
        (f"{at}[c].versions[1]", "version"),
    }


@pytest.mark.parametrize(("minor", "most"), [(34, 4), (35, 16), (36, 16), (37, 16)])
def test_number_of_taints(make_slice: MakeSlice, refused: Judge, minor: int, most: int) -> None:
    taint = {"key": "example.com/bad", "effect": "NoSchedule"}
    assert refused(make_slice({"name": "d", "taints": [taint] * most}), minor=minor) == set()
    assert refused(make_slice({"name": "d", "taints": [taint] * (most + 1)}), minor=minor) == {
        (f"{AT}.taints", "taint-count")
    }


@pytest.mark.parametrize(
    ("field", "value", "rule"),
    [
        ("key", "", "label-key"),
        ("key", "a/b/c", "label-key"),
        ("key", "k" * 64, "label-key"),
        ("value", "a b", "label-value"),
        ("value", "v" * 64, "label-value"),
        ("effect", "", "taint-effect"),
        ("effect", "PreferNoSchedule", "taint-effect"),
        ("timeAdded", "2026-13-01T00:00:00Z", "type"),
        ("timeAdded", "", "type"),
    ],
)
def test_bad_taints(make_slice: MakeSlice, refused: Judge, field: str, value: str, rule: str) -> None:
    taint = {"key": "example.com/bad", "effect": "NoExecute", field: value}
    assert refused(make_slice({"name": "d", "taints": [taint]})) == {(f"{AT}.taints[0].{field}", rule)}


def test_effect_none_came_with_135(make_slice: MakeSlice, refused: Judge) -> None:
    tainted = make_slice({"name": "d", "taints": [{"key": "a", "effect": "None"}]})
    assert refused(tainted, minor=34) == {(f"{AT}.taints[0].effect", "taint-effect")}
    assert refused(tainted, minor=35) == set()


@pytest.mark.parametrize(
    "time", ["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456789+02:00", "2024-02-29T3:04:05,5-11:30", None]
)
def test_times_that_the_server_reads(make_slice: MakeSlice, refused: Judge, time: str | None) -> None:
    taint = {"key": "a", "effect": "NoSchedule", "timeAdded": time}
    assert refused(make_slice({"name": "d", "taints": [taint]})) == set()


@pytest.mark.parametrize(
    "time",
    ["2026-02-29T00:00:00Z", "2026-01-02T24:00:00Z", "2026-01-02T00:60:00Z", "2026-01-02T00:00:60Z", "2026-01-02"],
)
def test_times_that_it_does_not(make_slice: MakeSlice, refused: Judge, time: str) -> None:
    taint = {"key": "a", "effect": "NoSchedule", "timeAdded": time}
    assert refused(make_slice({"name": "d", "taints": [taint]})) == {(f"{AT}.taints[0].timeAdded", "type")}


def draw(sets: int = 1, counters: int = 1) -> list[Wire]:
    return [
        {"counterSet": f"s{i}", "counters": {f"c{j}": {"value": "1"} for j in range(counters)}} for i in range(sets)
    ]


@pytest.mark.parametrize(
    ("sets", "counters", "rules"), [(2, 32, set()), (3, 1, {"consumed-sets"}), (1, 33, {"counter-count"})]
)
def test_what_a_device_draws(make_slice: MakeSlice, refused: Judge, sets: int, counters: int, rules: set[str]) -> None:
    found = refused(make_slice({"name": "d", "consumesCounters": draw(sets, counters)}))
    assert {rule for _, rule in found} == rules


def test_draws_name_sets_and_counters(make_slice: MakeSlice, refused: Judge) -> None:
    bad = [{"counterSet": "", "counters": {"a": {"value": "1"}}}, {"counterSet": "S", "counters": {}}]
    assert refused(make_slice({"name": "d", "consumesCounters": bad})) == {
        (f"{AT}.consumesCounters[0].counterSet", "required"),
        (f"{AT}.consumesCounters[1].counterSet", "dns-label"),
        (f"{AT}.consumesCounters[1].counters", "required"),
    }


def test_one_entry_for_each_set(make_slice: MakeSlice, refused: Judge) -> None:
    assert refused(make_slice({"name": "d", "consumesCounters": draw() * 2})) == {
        (f"{AT}.consumesCounters[1]", "duplicate")
    }


def test_compatibility_groups(make_slice: MakeSlice, refused: Judge) -> None:
    entry = draw()[0] | {"compatibilityGroups": ["a", "b"]}
    assert refused(make_slice({"name": "d", "consumesCounters": [entry]})) == set()
    entry["compatibilityGroups"] = ["a", "a", "B"]
    found = refused(make_slice({"name": "d", "consumesCounters": [entry]}))
    assert {rule for _, rule in found} == {"group-count", "duplicate", "dns-label"}


@pytest.mark.parametrize(
    ("wanted", "failures", "rules"),
    [
        (["a"], ["b"], set()),
        (["a", "b", "c", "d"], ["e", "f", "g", "h"], set()),
        (["a", "b", "c", "d", "e"], ["f"], {"binding-count"}),
        (["a"], [], {"binding-conditions"}),
        ([], ["a"], {"binding-conditions"}),
        (["a", "a"], ["b"], {"duplicate"}),
        (["a", "b"], ["b"], {"binding-overlap"}),
        (["a b"], ["c"], {"label-key"}),
    ],
)
def test_binding_conditions(
    make_slice: MakeSlice, refused: Judge, wanted: list[str], failures: list[str], rules: set[str]
) -> None:
    device = {"name": "d", "bindingConditions": wanted, "bindingFailureConditions": failures}
    assert {rule for _, rule in refused(make_slice(device))} == rules


@pytest.mark.parametrize(
    ("where", "good"),
    [
        ({"nodeName": "n"}, True),
        ({"allNodes": True}, True),
        ({"nodeSelector": {"nodeSelectorTerms": [{}, {}]}}, True),
        ({}, False),
        ({"nodeName": "n", "allNodes": True}, False),
        ({"nodeName": ""}, False),
        ({"allNodes": False}, False),
        ({"nodeSelector": {}}, False),
    ],
)
def test_node_of_a_device(make_slice: MakeSlice, refused: Judge, where: Wire, *, good: bool) -> None:
    own = make_slice({"name": "d", **where}, nodeName=..., perDeviceNodeSelection=True)
    assert (refused(own) == set()) is good
    found = refused(make_slice({"name": "d", **where}))
    assert found == ({(AT, "device-node")} if where else set())


def test_node_resources_of_136(make_slice: MakeSlice, refused: Judge) -> None:
    good = {"cpu": {}, "memory": {"capacityKey": "m"}, "kubernetes.io/x": {"allocationMultiplier": "2"}}
    capacity = {"m": {"value": "1"}}
    device = {"name": "d", "capacity": capacity, "nodeAllocatableResourceMappings": good}
    assert refused(make_slice(device), minor=36) == set()
    bad = {
        "example.com/x": {"allocationMultiplier": "0"},
        "cpu": {"capacityKey": "other"},
        "memory": {"capacityKey": ""},
    }
    device["nodeAllocatableResourceMappings"] = bad
    at = f"{AT}.nodeAllocatableResourceMappings"
    assert refused(make_slice(device), minor=36) == {
        (f"{at}[example.com/x]", "native-resource"),
        (f"{at}[example.com/x].allocationMultiplier", "multiplier"),
        (f"{at}[cpu].capacityKey", "capacity-key"),
        (f"{at}[memory].capacityKey", "capacity-key"),
    }


@pytest.mark.parametrize(
    ("entry", "rules"),
    [
        ({"mapping": {"capacityKey": "m", "capacityMultiplier": "1"}}, set()),
        ({"mapping": {"deviceMultiplier": "100m"}}, set()),
        ({"overhead": {"perPod": "0"}}, set()),
        ({}, {"mapping-empty"}),
        ({"mapping": {}}, {"mapping-one"}),
        ({"mapping": {"capacityKey": "m"}}, {"mapping-pair"}),
        ({"mapping": {"deviceMultiplier": "0"}}, {"multiplier"}),
        ({"mapping": {"capacityKey": "m", "capacityMultiplier": "1", "deviceMultiplier": "1"}}, {"mapping-one"}),
        ({"overhead": {}}, {"overhead-empty"}),
        ({"overhead": {"perPod": "-1"}}, {"overhead-negative"}),
    ],
)
def test_node_resources_of_137(make_slice: MakeSlice, refused: Judge, entry: Wire, rules: set[str]) -> None:
    device = {"name": "d", "capacity": {"m": {"value": "1"}}, "nodeAllocatableResources": {"cpu": entry}}
    assert {rule for _, rule in refused(make_slice(device))} == rules
    device["nodeAllocatableResources"] = {"pods": entry}
    assert {rule for _, rule in refused(make_slice(device))} == rules | {"native-resource"}
