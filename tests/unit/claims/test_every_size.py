"""On every size at every LNC, whatever the allocator returns and the kubelet leaves out: the right grant or a refusal.

The oracle reads device names and counts physical cores; a grant is read as the runtime in the container reads it.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.published import Shape, shapes

from cdi.models import ContainerEdits
from dra_driver.claims import grant
from dra_driver.claims.guard import serials
from dra_driver.claims.hardware import Snapshot
from dra_driver.claims.planning import Outcome, Planning
from dra_driver.claims.records import HeldDevice, Record
from dra_driver.claims.refusals import PodRef, Reason, Refusal
from dra_driver.claims.sharing import Planned, Planner
from dra_driver.claims.specs import SpecDirectory
from dra_driver.inventory.devices import Device, devices, physical_cores
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.samples import DRIVER, POOL, Objects, claim, pod, ref, result

Core = tuple[int, int]  # host index of the chip, physical core
Cores = frozenset[Core]

VISIBLE, LNC = "NEURON_RT_VISIBLE_CORES", "NEURON_LOGICAL_NC_CONFIG"
NAMES = re.compile(
    r"core-(?P<c_chip>\d+)-(?P<c_first>\d+)|cores-(?P<r_chip>\d+)-(?P<r_first>\d+)-(?P<r_n>\d+)"
    r"|chip-(?P<chip>\d+)|chips-(?P<g_first>\d+)-(?P<g_n>\d+)"
)
EVERY = pytest.mark.parametrize("shape", shapes(), ids=str)
SOME = settings(max_examples=25)


@cache
def snapshot(size: str, lnc: int) -> Snapshot:
    machine = Shape(size, lnc).machine()
    return Snapshot(machine, {device.name: device for device in devices(machine, lnc=lnc)})


def look(shape: Shape) -> Snapshot:
    return snapshot(shape.size, shape.lnc)


# The oracle


@cache
def covered(name: str, shape: Shape) -> Cores:
    """What a device's name promises, by the size's row in the catalogue."""
    bare, _, lnc = name.partition("-lnc")
    assert lnc == (str(shape.lnc) if shape.knows_lnc else ""), name
    per_chip = SIZES[shape.size].physical_cores
    found = NAMES.fullmatch(bare)
    assert found, name
    told = {key: int(value) for key, value in found.groupdict().items() if value is not None}
    if "chip" in told or "g_first" in told:
        first = told.get("chip", told.get("g_first", -1))
        return frozenset((first + at, core) for at in range(told.get("g_n", 1)) for core in range(per_chip))
    chip, at = told.get("c_chip", told.get("r_chip", -1)), told.get("c_first", told.get("r_first", -1))
    return frozenset((chip, at * shape.lnc + core) for core in range(told.get("r_n", 1) * shape.lnc))


def right(names: Iterable[str], shape: Shape, *, always_visible: bool) -> dict[str, str] | None:
    """Nodes and environment of a container that gets these devices; None where they aren't one run."""
    names = set(names)
    per_chip = SIZES[shape.size].physical_cores
    cores = {core for name in names for core in covered(name, shape)}
    chips = sorted({chip for chip, _ in cores})
    flat = sorted((chip - chips[0]) * per_chip + core for chip, core in cores)
    if flat != list(range(flat[0], flat[0] + len(flat))):
        return None
    told = {f"/dev/neuron{at}": f"/dev/neuron{chip} {chip}" for at, chip in enumerate(chips)}
    if always_visible or any(name.startswith("core") for name in names):
        first, last = flat[0] // shape.lnc, flat[-1] // shape.lnc
        told[VISIBLE] = str(first) if first == last else f"{first}-{last}"
    return told | ({LNC: str(shape.lnc)} if shape.knows_lnc else {})


def said(edits: ContainerEdits) -> dict[str, str]:
    told = {node.path: f"{node.host_path} {node.minor}" for node in edits.device_nodes}
    return told | dict(entry.split("=", 1) for entry in edits.env)


def used(edits: ContainerEdits, machine: Machine) -> Cores:
    """The physical cores that a runtime takes: it opens neuron0, 1, …, and counts cores from the first of them on."""
    told = dict(entry.split("=", 1) for entry in edits.env)
    nodes = {node.path: node.minor for node in edits.device_nodes}
    opened = [machine.chip(nodes[f"/dev/neuron{at}"] or 0) for at in range(len(nodes))]
    flat = [(chip.index, core) for chip in opened if chip for core in range(chip.physical_cores)]
    if VISIBLE not in told:
        return frozenset(flat)
    lnc = int(told.get(LNC, "1"))
    first, _, last = told[VISIBLE].partition("-")
    return frozenset(flat[int(first) * lnc : (int(last or first) + 1) * lnc])


# What may be asked


@dataclass(frozen=True)
class Asked:
    """A pod of one call: claim → request → devices, container → (claim, request or None for all).

    Claims `left_out` of the call are prepared already.
    """

    claims: Mapping[str, Mapping[str, Sequence[str]]]
    containers: Mapping[str, Sequence[tuple[str, str | None]]]
    left_out: frozenset[str] = field(default_factory=frozenset)
    user_made: frozenset[str] = field(default_factory=frozenset)

    def gets(self, container: str) -> frozenset[tuple[str, str]]:
        """(claim, device) pairs."""
        return frozenset(
            (name, device)
            for name, request in self.containers[container]
            for each, found in self.claims[name].items()
            if request in (None, each)
            for device in found
        )

    def raw(self, name: str) -> dict[str, object]:
        results = [result(device, request) for request, found in self.claims[name].items() for device in found]
        return claim(name, *results, owner="" if name in self.user_made else "p", users=["p"])

    def raw_pod(self) -> dict[str, object]:
        uses = {
            container: [name if request is None else f"{name}/{request}" for name, request in named]
            for container, named in self.containers.items()
        }
        return pod("p", uses, own=[name for name in self.claims if name not in self.user_made])


def ends_before(device: Device, machine: Machine) -> Core:
    """Where the next core is, in the host's order."""
    chip, core = max(physical_cores(device))
    found = machine.chip(chip)
    return (chip, core + 1) if found and core + 1 < found.physical_cores else (chip + 1, 0)


@cache
def beginning(size: str, lnc: int) -> Mapping[Core, Sequence[str]]:
    found: dict[Core, list[str]] = {}
    for device in snapshot(size, lnc).devices.values():
        found.setdefault(min(physical_cores(device)), []).append(device.name)
    return found


@st.composite
def allocations(draw: st.DrawFn, shape: Shape) -> list[str]:
    """Devices that don't overlap, in any order; often one begins where another ends."""
    now, starts = look(shape), beginning(shape.size, shape.lnc)
    found = [draw(st.sampled_from(list(now.devices)))]
    for _ in range(draw(st.integers(0, 4))):
        beside = starts.get(ends_before(now.devices[found[-1]], now.machine), ())
        anywhere = not beside or draw(st.integers(0, 3)) == 0
        one = draw(st.sampled_from(list(now.devices) if anywhere else beside))
        if not any(covered(one, shape) & covered(other, shape) for other in found):
            found.append(one)
    return draw(st.permutations(found))


@st.composite
def pods(draw: st.DrawFn, shape: Shape) -> Asked:
    """One to three claims of one or more requests, in one to three containers."""
    claims: dict[str, dict[str, list[str]]] = {}
    wanted = draw(st.integers(1, 3))
    for at, device in enumerate(draw(allocations(shape))):
        requests = claims.setdefault("abc"[min(at, draw(st.integers(0, wanted - 1)))], {})
        requests.setdefault(f"r{draw(st.integers(0, 1)) * at}", []).append(device)
    whole: list[tuple[str, str | None]] = [(name, None) for name in claims]
    parts: list[tuple[str, str | None]] = [(name, each) for name, requests in claims.items() for each in requests]
    several = st.lists(st.sampled_from(whole + parts), min_size=1, max_size=3, unique=True)
    containers = {
        f"c{at}": draw(st.one_of(st.just(whole), several, st.just(whole[at : at + 1] or whole[:1])))
        for at in range(draw(st.integers(1, 3)))
    }
    named = {name for uses in containers.values() for name, _ in uses}
    if unnamed := [use for use in whole if use[0] not in named]:
        containers["last"] = unnamed
    left_out = draw(st.one_of(st.just(frozenset[str]()), st.frozensets(st.sampled_from(list(claims)))))
    return Asked(claims, containers, left_out if len(left_out) < len(claims) else frozenset())


def plan(asked: Asked, now: Snapshot, *, visible: bool = False) -> dict[str, Outcome]:
    """One call for the claims that aren't left out: those have a record. By claim name."""
    raws = {name: asked.raw(name) for name in asked.claims}
    records = [recorded(asked, name, now) for name in asked.left_out]
    refs = [ref(raw) for name, raw in raws.items() if name not in asked.left_out]
    api = Objects(*raws.values(), asked.raw_pod())
    outcomes = Planning(api, DRIVER, POOL).plan(refs, Planner(now, visible), records)
    return {one.name: outcomes[one.uid] for one in refs}


def recorded(asked: Asked, name: str, now: Snapshot) -> Record:
    found = [(request, now.devices[each]) for request, names in asked.claims[name].items() for each in names]
    held = tuple(
        HeldDevice(request, POOL, admin=False, serials=serials(one, now), device=one) for request, one in found
    )
    spec = SpecDirectory(Path("/nowhere"), driver=DRIVER).spec(f"uid-{name}", {})
    user = PodRef("p", "uid-p")
    owner = None if name in asked.user_made else user
    return Record(ref(asked.raw(name)), owner, (user,), held, (f"uid-{name}",), "boot", spec)


def refused(asked: Asked, wrong: Callable[[Iterable[str]], bool]) -> set[str]:
    """Claims of the call that can't be granted, with all that they meet in containers."""
    call = asked.claims.keys() - asked.left_out
    company: dict[tuple[str, str], set[frozenset[tuple[str, str]]]] = {}
    bad: set[str] = set()
    meets: list[set[str]] = [{name} for name in call]
    for container in asked.containers:
        gets = asked.gets(container)
        here = {name for name, _ in gets} & call
        if here and (here != {name for name, _ in gets} or wrong(device for _, device in gets)):
            bad |= here
        for key in gets:
            company.setdefault(key, set()).add(gets)
        met = [group for group in meets if group & here]
        meets = [group for group in meets if group not in met] + ([set().union(*met)] if met else [])
    bad |= {name for (name, _), kinds in company.items() if len(kinds) > 1}
    return {name for group in meets if group & bad for name in group}


# The properties


@EVERY
def test_names_mean_the_physical_cores_that_counters_and_records_count(shape: Shape) -> None:
    now = look(shape)
    assert {name: covered(name, shape) for name in now.devices} == {
        name: physical_cores(device) for name, device in now.devices.items()
    }


@EVERY
@SOME
@given(data=st.data())
def test_every_container_gets_the_right_grant_or_its_claims_are_refused(shape: Shape, data: st.DataObject) -> None:
    asked, visible = data.draw(pods(shape)), data.draw(st.booleans())
    now = look(shape)
    outcomes = plan(asked, now, visible=visible)

    def wrong(names: Iterable[str]) -> bool:
        return right(names, shape, always_visible=visible) is None

    no = refused(asked, wrong)
    assert {name for name, outcome in outcomes.items() if isinstance(outcome, Refusal)} == no
    for outcome in outcomes.values():
        if isinstance(outcome, Refusal):
            reasons = {Reason.NOT_CONTIGUOUS, Reason.DIFFERENT_GRANTS, Reason.MIXED_WITH_SHARED}
            assert outcome.reason in reasons
    for container in asked.containers:
        gets = asked.gets(container)
        if {name for name, _ in gets} & (no | asked.left_out):
            continue
        expected = right((device for _, device in gets), shape, always_visible=visible)
        cores = frozenset(core for _, device in gets for core in covered(device, shape))
        for name, device in gets:
            planned = outcomes[name]
            assert isinstance(planned, Planned)
            assert said(planned.edits[device]) == expected
            assert used(planned.edits[device], now.machine) == cores


@EVERY
@SOME
@given(data=st.data())
def test_no_container_gets_the_wrong_grant_where_others_may_use_a_claim_too(shape: Shape, data: st.DataObject) -> None:
    """Some claims are user-made, and some of those are prepared already: they say what they alone give."""
    asked, now = data.draw(pods(shape)), look(shape)
    user_made = data.draw(st.frozensets(st.sampled_from(list(asked.claims)), min_size=1))
    asked = replace(asked, user_made=user_made, left_out=asked.left_out & user_made)
    outcomes = plan(asked, now)
    planned = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Planned)}
    for container in asked.containers:
        gets = asked.gets(container)
        names = {name for name, _ in gets}
        if not names & outcomes.keys() or not names - asked.left_out <= planned.keys():
            continue  # nothing of it is in the call, or the pod doesn't run
        assert len(names) == 1 or not names & user_made
        expected = right((device for _, device in gets), shape, always_visible=False)
        assert {str(said(planned[name].edits[device])) for name, device in gets} == {str(expected)}


@EVERY
@SOME
@given(data=st.data())
def test_what_is_only_watched_never_widens_what_the_runtime_takes(shape: Shape, data: st.DataObject) -> None:
    """Watched devices may be anybody's, and lie anywhere."""
    now = look(shape)
    own = data.draw(allocations(shape))
    around = neighbourhood(own, shape)
    near = [name for name, device in now.devices.items() if around.intersection(device.chips)]
    watched = data.draw(st.lists(st.sampled_from(near), min_size=1, max_size=3))
    chips = {chip for name in [*own, *watched] for chip, _ in covered(name, shape)}
    seen = [now.devices[name] for name in watched]
    if right(own, shape, always_visible=True) is None or max(chips) - min(chips) >= len(chips):
        with pytest.raises(Refusal) as caught:
            grant.edits([now.devices[name] for name in own], now.machine, watched=seen)
        assert caught.value.reason is Reason.NOT_CONTIGUOUS
        return
    edits = grant.edits([now.devices[name] for name in own], now.machine, watched=seen)
    assert used(edits, now.machine) == {core for name in own for core in covered(name, shape)}
    assert {node.minor for node in edits.device_nodes} == chips


def neighbourhood(names: Iterable[str], shape: Shape) -> set[int]:
    return {chip + by for name in names for chip, _ in covered(name, shape) for by in (-1, 0, 1)}


@EVERY
def test_each_device_alone_is_always_granted(shape: Shape) -> None:
    """So a claim of one device, as every class gives it, never ends at prepare."""
    now = look(shape)
    for name, device in now.devices.items():
        for visible in (False, True):
            edits = grant.edits([device], now.machine, visible_cores_on_chips=visible)
            assert said(edits) == right([name], shape, always_visible=visible)
            assert (VISIBLE in said(edits)) is (visible or name.startswith("core"))


@pytest.mark.parametrize("shape", [shape for shape in shapes() if shape.knows_lnc], ids=str)
def test_every_name_of_the_other_lnc_is_refused(shape: Shape) -> None:
    now, other = look(shape), snapshot(shape.size, 3 - shape.lnc)
    for name in other.devices:
        (outcome,) = plan(Asked({"a": {"r": [name]}}, {"c": [("a", None)]}), now).values()
        assert isinstance(outcome, Refusal), name
        assert outcome.reason is Reason.OTHER_LNC
