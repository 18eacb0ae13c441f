"""What a server takes though it does harm, and what findings look like."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.inventory.lint.findings import Finding, Severity, render
from dra_driver.inventory.lint.linter import lint, slices

Wire = dict[str, Any]
Judge = Callable[..., set[tuple[str, str]]]
MakeSlice = Callable[..., Wire]


def device(name: str = "d", counters: dict[str, int] | None = None, counter_set: str = "s", **attributes: Any) -> Wire:
    made: Wire = {"name": name, "attributes": {key: {"int": value} for key, value in attributes.items()}}
    if counters:
        drawn = {key: {"value": str(value)} for key, value in counters.items()}
        made["consumesCounters"] = [{"counterSet": counter_set, "counters": drawn}]
    return made


def counters(**values: int) -> list[Wire]:
    return [{"name": "s", "counters": {key: {"value": str(value)} for key, value in values.items()}}]


def pool(count: int, generation: int = 1, name: str = "example.com/node-1") -> Wire:
    return {"name": name, "generation": generation, "resourceSliceCount": count}


def counted(make_slice: MakeSlice, *found: Wire, **values: int) -> list[Wire]:
    """A pool of two slices: counters and devices."""
    return [
        make_slice(name="a", pool=pool(2), sharedCounters=counters(**values)),
        make_slice(*found, name="b", pool=pool(2)),
    ]


def test_a_whole_pool_without_fault(make_slice: MakeSlice) -> None:
    assert lint(counted(make_slice, device(counters={"c": 2}), c=2), minor=37) == []


@pytest.mark.parametrize("promised", [1, 3])
def test_bc021_pool_with_another_number_of_slices(make_slice: MakeSlice, harmful: Judge, promised: int) -> None:
    found = [make_slice(device(f"d{i}"), name=f"s{i}", pool=pool(promised)) for i in range(2)]
    assert harmful(*found) == {("spec.pool.resourceSliceCount", "pool-incomplete")}


def test_bc021_slices_of_two_generations(make_slice: MakeSlice) -> None:
    old = make_slice(device("old"), name="old", pool=pool(1, generation=1))
    new = make_slice(device("new"), name="new", pool=pool(1, generation=2))
    (found,) = lint([new, old], minor=37)
    assert (found.slice, found.field, found.rule) == ("old", "spec.pool.generation", "pool-generations")


def test_pools_and_drivers_are_apart(make_slice: MakeSlice, harmful: Judge) -> None:
    one = make_slice(device("d"), name="a")
    two = make_slice(device("d"), name="b", pool=pool(1, name="example.com/node-2"))
    three = make_slice(device("d"), name="c", driver="other.example.com")
    assert harmful(one, two, three) == set()


def test_a_device_in_two_slices(make_slice: MakeSlice) -> None:
    found = lint([make_slice(device("d"), name=name, pool=pool(2)) for name in "ab"], minor=37)
    assert [(each.slice, each.field, each.rule) for each in found] == [("b", "spec.devices[0]", "device-twice")]


def test_a_counter_set_in_two_slices(make_slice: MakeSlice, harmful: Judge) -> None:
    found = [make_slice(name=name, pool=pool(2), sharedCounters=counters(c=1)) for name in "ab"]
    assert harmful(*found) == {("spec.sharedCounters[0]", "counter-set-twice")}


def test_a_slice_name_that_stands_twice(make_slice: MakeSlice, harmful: Judge) -> None:
    found = [make_slice(device("d"), pool=pool(1, name=name)) for name in ("p", "q")]
    assert harmful(*found) == {("metadata.name", "slice-name-twice")}


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (device(counters={"c": 3}), ("counters[c]", "counter-overdrawn")),
        (device(counters={"other": 1}), ("counters[other]", "counter-missing")),
        (device(counters={"c": 1}, counter_set="t"), ("counterSet", "counter-missing")),
    ],
)
def test_what_a_device_draws_is_not_there(
    make_slice: MakeSlice, harmful: Judge, found: Wire, fault: tuple[str, str]
) -> None:
    field, rule = fault
    assert harmful(*counted(make_slice, found, c=2)) == {(f"spec.devices[0].consumesCounters[0].{field}", rule)}


def test_in_134_counters_count_within_their_slice(make_slice: MakeSlice, harmful: Judge) -> None:
    drawing = device(counters={"c": 3})
    assert harmful(make_slice(drawing, sharedCounters=counters(c=3)), minor=34) == set()
    found = harmful(make_slice(drawing, sharedCounters=counters(c=2)), minor=34)
    assert {rule for _, rule in found} == {"counter-overdrawn"}


def test_a_common_attribute_that_one_device_lacks(make_slice: MakeSlice) -> None:
    found = make_slice(device("a", index=1, cores=2), device("b", index=1))
    common = {"neuron.example.com": ("index", "cores")}
    assert [(each.field, each.rule) for each in lint([found], minor=37, common=common)] == [
        ("spec.devices[1].attributes[cores]", "attribute-missing")
    ]
    assert lint([found], minor=37, common={"other.example.com": ("index", "cores")}) == []


def test_an_attribute_with_two_types(make_slice: MakeSlice, harmful: Judge) -> None:
    other = {"name": "b", "attributes": {"index": {"string": "1"}}}
    found = harmful(make_slice(device("a", index=1), other))
    assert found == {("spec.devices[1].attributes[index]", "attribute-type")}


def test_bc019_same_attribute_both_bare_and_with_the_drivers_domain(make_slice: MakeSlice, harmful: Judge) -> None:
    twice = device("d") | {"attributes": {"index": {"int": 1}, "neuron.example.com/index": {"int": 2}}}
    at = "spec.devices[0].attributes[neuron.example.com/index]"
    assert harmful(make_slice(twice)) == {(at, "attribute-twice")}
    foreign = device("d") | {"attributes": {"index": {"int": 1}, "example.com/index": {"int": 2}}}
    assert harmful(make_slice(foreign)) == set()


def test_bc026_a_slice_that_lists_nothing(make_slice: MakeSlice, harmful: Judge) -> None:
    assert harmful(make_slice()) == harmful(make_slice(devices=[])) == {("spec", "slice-empty")}


def test_no_numa_node_is_not_minus_one(make_slice: MakeSlice, harmful: Judge) -> None:
    key = "resource.kubernetes.io/numaNode"
    assert harmful(make_slice(device() | {"attributes": {key: {"int": -1}}})) == {
        (f"spec.devices[0].attributes[{key}]", "numa-negative")
    }
    assert harmful(make_slice(device() | {"attributes": {key: {"int": 0}}})) == set()


def test_counters_that_outlive_their_node(make_slice: MakeSlice, harmful: Judge) -> None:
    found = counted(make_slice, device(counters={"c": 1}), c=1)
    del found[0]["spec"]["nodeName"]
    found[0]["spec"]["allNodes"] = True
    assert harmful(*found) == {("spec.nodeName", "pool-nodes")}


def test_names_that_are_taken_and_do_no_good(make_slice: MakeSlice, harmful: Judge, refused: Judge) -> None:
    found = make_slice(device() | {"attributes": {"a/b/c": {"int": 1}}}, driver="Neuron.example.com")
    assert refused(found) == set()
    assert harmful(found) == {
        ("spec.driver", "driver-case"),
        ("spec.devices[0].attributes[a/b/c]", "qualified-name-parts"),
    }


def test_lists_are_looked_into_and_other_kinds_passed_over(make_slice: MakeSlice) -> None:
    found = make_slice(device())
    nested = {"kind": "List", "items": [found, {"kind": "Pod"}, {"kind": "ResourceSliceList", "items": [found]}]}
    assert list(slices([nested, None, "text", [], {"kind": 5}, {"kind": "List"}])) == [found, found]


def test_a_finding_says_where_and_what(finding: Finding) -> None:
    assert finding.severity is Severity.REFUSED
    assert finding.path == ("spec", "devices", 0, "attributes", "v", "version")
    assert str(finding).startswith(
        "slice-0: spec.devices[0].attributes[v].version: refused: '2.30.2.0' isn't a version"
    )
    assert str(finding).endswith("[version]")


def test_a_slice_without_a_name_is_told_by_its_number(make_slice: MakeSlice) -> None:
    nameless = make_slice(device()) | {"metadata": {}}
    assert {each.slice for each in lint([make_slice(device("x")), nameless], minor=37)} >= {"#1"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("spec",), "spec"),
        (("spec", "devices", 3, "name"), "spec.devices[3].name"),
        (("spec", "devices", 0, "capacity", "a.b/c", "value"), "spec.devices[0].capacity[a.b/c].value"),
        (("metadata", "labels", "attributes"), "metadata.labels[attributes]"),
    ],
)
def test_paths_as_kubernetes_writes_them(path: tuple[str | int, ...], text: str) -> None:
    assert render(path) == text


def test_linting_changes_nothing(make_slice: MakeSlice) -> None:
    """The slices are published afterwards."""
    before = make_slice({"name": "d", "taints": [{"key": "a", "effect": "None"}], "extra": None})
    lint([before], minor=34)
    assert before == make_slice({"name": "d", "taints": [{"key": "a", "effect": "None"}], "extra": None})
