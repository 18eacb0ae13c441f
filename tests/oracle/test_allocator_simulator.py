"""The simulator's allocator and the scheduler's: the same devices, the same refusals, the same pods that stop.

Pools here are made up, not published by us: overlapping and poisoned counters, missing attributes, taints,
incomplete pools, foreign drivers, devices of other nodes.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from testbed.allocator import Allocator, Verdict
from testbed.published import Shape, Wire, claim, classes, exactly, first_available

from dra_driver.simulator.allocator import Unallocatable, allocate
from dra_driver.simulator.pools import DeviceId
from dra_driver.simulator.requests import AllocationError

pytestmark = pytest.mark.go

OURS, OTHER = "ours.example.com", "other.example.com"
NODE = "n1"
STOPS = "stops the pod"
EXAMPLES = int(os.environ.get("ALLOCATOR_EXAMPLES", "150"))


def device_class(name: str, *expressions: str, **spec: Any) -> Wire:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}


def read(name: str, default: str) -> str:
    return f'device.attributes["{OURS}"].?{name}.orValue({default})'


CLASSES = [
    device_class("any"),
    device_class("small", f'{read("type", chr(34) * 2)} == "small"'),
    device_class("big", f'device.driver == "{OURS}"', f'{read("type", chr(34) * 2)} == "big"'),
    device_class("fails", f'device.attributes["{OURS}"].type == "small"'),
    device_class("none", "false"),
    device_class("configured", config=[{"opaque": {"driver": OURS, "parameters": {"a": 1}}}]),
]
NAMES = ["any", "any", "any", "small", "small", "big", "configured", "none", "fails"]
COUNTERS = ("a", "b", "c")
FEW = st.integers(0, 2)


@st.composite
def devices(draw: st.DrawFn, name: str) -> Wire:
    found: Wire = {"name": name, "attributes": {}}
    if kind := draw(st.sampled_from(["small", "small", "big", ""])):
        found["attributes"]["type"] = {"string": kind}
    if group := draw(FEW):
        found["attributes"]["group"] = {"int": group}
    drawn = draw(st.dictionaries(st.sampled_from(COUNTERS), st.integers(0, 3), max_size=2))
    if drawn:
        counters = {key: {"value": str(value)} for key, value in drawn.items()}
        found["consumesCounters"] = [{"counterSet": "s", "counters": counters}]
    if effect := draw(st.sampled_from([*[""] * 8, "NoSchedule", "NoExecute"])):
        taint = {"key": draw(st.sampled_from(["k", "l"])), "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"}
        found["taints"] = [taint]
    return found


@st.composite
def pools(draw: st.DrawFn, driver: str, name: str) -> list[Wire]:
    """A counter slice and device slices; now and then one too few, another generation or another node's."""
    totals = {key: {"value": str(draw(st.integers(2, 6)))} for key in COUNTERS}
    specs: list[Wire] = [{"sharedCounters": [{"name": "s", "counters": totals}]}]
    for at in range(draw(st.integers(1, 2))):
        names = [f"d{at}{number}" for number in range(draw(st.integers(1, 4)))]
        specs.append({"devices": [draw(devices(each)) for each in names]})
    missing = draw(st.sampled_from([*[0] * 9, 1]))
    where: Wire = draw(st.sampled_from([*[{"nodeName": NODE}] * 6, {"allNodes": True}, {"nodeName": "n2"}]))
    state = {"name": name, "generation": 2, "resourceSliceCount": len(specs) + missing}
    slices = [_slice(f"{name}-{at}", driver, state, where, spec) for at, spec in enumerate(specs)]
    if draw(st.booleans()):
        old = {"name": name, "generation": 1, "resourceSliceCount": 1}
        slices.append(_slice(f"{name}-old", driver, old, where, {"devices": [draw(devices("d00"))]}))
    return slices


def _slice(name: str, driver: str, state: Wire, where: Wire, content: Wire) -> Wire:
    spec = {"driver": driver, "pool": state, **where, **content}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


@st.composite
def worlds(draw: st.DrawFn, minor: int) -> list[Wire]:
    """Up to 1.36 two pools of one name count as one (kubernetes#140434), so there they have names of their own."""
    known = [(OURS, "p"), (OURS, "q"), (OTHER, "p" if minor >= 37 else "o")]
    named = draw(st.lists(st.sampled_from(known), min_size=1, unique=True))
    return draw(st.permutations([each for driver, name in named for each in draw(pools(driver, name))]))


def asked() -> st.SearchStrategy[Wire]:
    """One request's wishes."""
    toleration = st.fixed_dictionaries(
        {"key": st.sampled_from(["k", "l"]), "operator": st.just("Exists")},
        optional={"effect": st.sampled_from(["NoSchedule", "NoExecute"])},
    )
    selector = st.sampled_from([f"{read('group', '0')} == 1", f"{read('group', '0')} > 0"])
    return st.fixed_dictionaries(
        {"deviceClassName": st.sampled_from(NAMES)},
        optional={
            "count": st.sampled_from([1, 1, 1, 2, 3]),
            "tolerations": st.lists(toleration, max_size=2),
            "selectors": selector.map(lambda text: [{"cel": {"expression": text}}]),
        },
    )


@st.composite
def claims(draw: st.DrawFn, name: str) -> Wire:
    requests = []
    for at in range(draw(st.sampled_from([1, 1, 2, 3]))):
        wish, kind = draw(asked()), draw(st.integers(0, 7))
        if kind == 0:
            second = {"name": "b", **draw(asked())}
            requests.append(first_available(f"r{at}", {"name": "a", **wish}, second))
        elif kind == 1:
            requests.append(exactly(f"r{at}", allocationMode="All", **_named({**wish, "count": 0})))
        elif kind == 2:
            requests.append(exactly(f"r{at}", adminAccess=True, **_named(wish)))
        else:
            requests.append(exactly(f"r{at}", **_named(wish)))
    constraint: Wire = {"matchAttribute": f"{OURS}/group"}
    if draw(st.booleans()):
        constraint["requests"] = ["r0"]
    constraints = [constraint] if draw(st.integers(0, 3)) == 0 else []
    return claim(name, *requests, constraints=constraints)


def _named(wish: Wire) -> Wire:
    more = {key: value for key, value in wish.items() if key != "deviceClassName" and value}
    return {"device_class": wish["deviceClassName"], **more}


def simulated(slices: Sequence[Wire], pod: Sequence[Wire], held: Sequence[tuple[str, str, str]], node: str) -> Any:
    by_name = {each["metadata"]["name"]: each for each in (*CLASSES, *classes())}
    in_use = {DeviceId(*each): "somebody" for each in held}
    try:
        return allocate(pod, slices=slices, classes=by_name, in_use=in_use, node=node)
    except Unallocatable:
        return None
    except AllocationError:
        return STOPS


def told(found: Any, minor: int) -> Any:
    """Configuration is written otherwise before 1.37, which the simulator follows."""
    if minor >= 37 or not isinstance(found, list):
        return found
    return [{**each, "devices": each["devices"]["results"]} for each in found]


def outcome(verdict: Verdict) -> Any:
    if verdict.error and not verdict.node_only:
        return STOPS
    return verdict.allocations


@pytest.mark.parametrize("minor", [pytest.param(36, marks=pytest.mark.full), 37])
@pytest.mark.timeout(600)
@settings(max_examples=EXAMPLES, derandomize=True)
@given(data=st.data())
def test_made_up_pools(minor: int, real: Callable[..., Allocator], data: st.DataObject) -> None:
    slices = data.draw(worlds(minor), label="slices")
    listed = sorted(
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"])
        for each in slices
        for device in each["spec"].get("devices") or ()
    )
    held = data.draw(st.lists(st.sampled_from(listed), max_size=3, unique=True), label="held")
    pod = [data.draw(claims(name), label=name) for name in ("one", "two")[: data.draw(st.integers(1, 2))]]
    allocator = real(minor)
    allocator.world(slices=slices, classes=CLASSES, node=NODE)
    verdict = allocator.ask(pod, held=held)
    note(f"error of the real one: {verdict.error!r}")
    assert told(simulated(slices, pod, held, NODE), minor) == told(outcome(verdict), minor)


SIZES = [Shape("trn1.2xlarge"), Shape("inf1.6xlarge"), Shape("inf2.48xlarge"), Shape("trn2.48xlarge", 2)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shape", SIZES, ids=str)
@settings(max_examples=10, derandomize=True)
@given(data=st.data())
def test_what_sizes_publish(shape: Shape, real: Callable[..., Allocator], data: st.DataObject) -> None:
    """Every class of ours, beside whatever is held."""
    node, allocator = shape.publish(), real()
    names = data.draw(st.lists(st.sampled_from([*node.devices]), max_size=20, unique=True), label="held")
    held = node.held(node.fitting(names))
    allocator.world(slices=node.slices, classes=classes(), node=node.node)
    for each in classes():
        pod = [claim("c", each["metadata"]["name"])]
        assert simulated(node.slices, pod, held, node.node) == outcome(allocator.ask(pod, held=held))


@pytest.mark.parametrize(("asked_for", "stops"), [(32, False), (33, True)])
def test_the_most_that_a_claim_can_have(real: Callable[..., Allocator], asked_for: int, stops: bool) -> None:  # noqa: FBT001
    node, allocator = Shape("trn2.48xlarge").publish(), real()
    allocator.world(slices=node.slices, classes=classes(), node=node.node)
    pod = [claim("c", exactly("r", "neuron-core", count=asked_for))]
    verdict = outcome(allocator.ask(pod))
    assert (verdict == STOPS) is stops
    assert simulated(node.slices, pod, (), node.node) == verdict


@pytest.mark.full
def test_kubernetes_140434_up_to_1_36_pools_of_one_name_share_their_counters(real: Callable[..., Allocator]) -> None:
    """So our pools have the driver in their name."""

    def pool(driver: str, left: str) -> list[Wire]:
        state = {"name": "p", "generation": 1, "resourceSliceCount": 2}
        draws = [{"counterSet": "s", "counters": {"a": {"value": "2"}}}]
        sets: Wire = {"sharedCounters": [{"name": "s", "counters": {"a": {"value": left}}}]}
        listed: Wire = {"devices": [{"name": "d", "consumesCounters": draws}]}
        return [
            _slice(f"{driver}-{at}", driver, state, {"nodeName": NODE}, part) for at, part in enumerate((sets, listed))
        ]

    slices = [*pool(OTHER, "2"), *pool(OURS, "2")]
    pod = [claim("c", exactly("r", "any", count=2))]
    fits = {}
    for minor in (36, 37):
        real(minor).world(slices=slices, classes=CLASSES, node=NODE)
        fits[minor] = real(minor).ask(pod).devices
    assert fits == {36: None, 37: [["d", "d"]]}
    assert simulated(slices, pod, (), NODE) is not None
