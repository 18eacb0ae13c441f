"""Whatever the hardware: nothing that fits the counters overlaps, and the API's rules hold.

Overlap and counters are worked out here from the published objects alone, as a scheduler and a container see
them, not with the code under test.
"""

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.inventory import limits
from dra_driver.inventory.classes import sized_classes
from dra_driver.inventory.devices import DeviceType, devices, from_wire, physical_cores
from dra_driver.inventory.offer import Offer, Runs
from dra_driver.inventory.slices import Layout, Pool, slice_name
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal

Wire = dict[str, Any]
Build = Callable[..., list[Wire]]

LNC = st.sampled_from([1, 2])
COUNTED = Layout(37)
OFFERS = st.builds(
    Offer,
    types=st.just(frozenset(DeviceType)) | st.frozensets(st.sampled_from(DeviceType)),
    core_counts=st.just(()) | st.sets(st.sampled_from([1, 2, 4])),
    chip_counts=st.just(()) | st.sets(st.sampled_from([1, 2, 4, 8])),
    chips_with_cores=st.none() | st.integers(0, 8),
    runs=st.sampled_from(Runs),
)
COUNTED_LAYOUTS = st.sampled_from([COUNTED, Layout(35), Layout(34)])
LAYOUTS = st.sampled_from(
    [
        COUNTED,
        Layout(35),
        Layout(34),
        Layout(37, counters=False),
        Layout(37, counters=False, granularity=DeviceType.CORE),
    ]
)
QUICK = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def listed(found: Iterable[Wire]) -> list[Wire]:
    return [device for item in found for device in item["spec"].get("devices", [])]


def number(device: Mapping[str, Any], key: str) -> int:
    value = device["attributes"][key]["int"]
    assert isinstance(value, int)
    return value


def covers(device: Mapping[str, Any]) -> set[tuple[int, int]]:
    """(chip, core at LNC 1) pairs, from what the device says of itself."""
    lnc, chip, first, chips = (number(device, key) for key in ("logicalNeuronCore", "index", "firstCore", "chips"))
    each = number(device, "cores") // chips
    assert each * chips == number(device, "cores")
    cores = range(first * lnc, (first + each) * lnc)
    return {(chip + more, core) for more in range(chips) for core in cores}


class Ledger:
    """The counters of a pool, kept as a scheduler keeps them."""

    def __init__(self, found: Iterable[Wire]) -> None:
        self.left: dict[tuple[str, str], int] = {}
        for item in found:
            for entry in item["spec"].get("sharedCounters", []):
                for name, counter in entry["counters"].items():
                    self.left[entry["name"], name] = int(counter["value"])

    def fits(self, device: Mapping[str, Any]) -> bool:
        return all(self.left[counter] >= value for counter, value in self.draws(device).items())

    def take(self, device: Mapping[str, Any]) -> None:
        for counter, value in self.draws(device).items():
            self.left[counter] -= value

    @staticmethod
    def draws(device: Mapping[str, Any]) -> dict[tuple[str, str], int]:
        return {
            (entry["counterSet"], name): int(counter["value"])
            for entry in device.get("consumesCounters", [])
            for name, counter in entry["counters"].items()
        }


def allocate(found: Sequence[Wire], dice: random.Random, taken: Sequence[Mapping[str, Any]] = ()) -> list[Any]:
    """Allocates in any order until nothing fits; `taken` are allocations from before."""
    ledger, given_out = Ledger(found), list(taken)
    for device in taken:
        ledger.take(device)
    free = [device for device in listed(found) if device["name"] not in {one["name"] for one in taken}]
    dice.shuffle(free)
    for device in free:
        if ledger.fits(device):
            ledger.take(device)
            given_out.append(device)
    return given_out


def assert_disjoint(given_out: Iterable[Mapping[str, Any]]) -> None:
    owners: dict[tuple[int, int], str] = {}
    for device in given_out:
        for core in covers(device):
            assert core not in owners, f"{core} of {device['name']} belongs to {owners[core]}"
            owners[core] = device["name"]


@pytest.fixture(scope="session")
def any_machine(machines: st.SearchStrategy[Machine]) -> st.SearchStrategy[Machine]:
    return machines


def overlapping_pairs_that_fit(found: Sequence[Wire]) -> list[tuple[str, str]]:
    """A set that fits and overlaps contains such a pair, and the pair alone fits too."""
    left = Ledger(found).left
    rows = [(device["name"], covers(device), Ledger.draws(device)) for device in listed(found)]
    for name, _, draws in rows:
        assert all(left[counter] >= value for counter, value in draws.items()), f"{name} alone doesn't fit"
    return [
        (name, other)
        for position, (name, cores, draws) in enumerate(rows)
        for other, others, more in rows[position + 1 :]
        if not cores.isdisjoint(others)
        and all(left[counter] >= draws.get(counter, 0) + more.get(counter, 0) for counter in draws.keys() | more.keys())
    ]


@pytest.mark.parametrize("minor", [34, 37])
@pytest.mark.parametrize("size", SIZES)
def test_on_no_size_two_devices_that_overlap_fit_the_counters(slices: Build, size: str, minor: int) -> None:
    """All pairs, at each LNC, with core runs everywhere."""
    machine = nominal(SIZES[size])
    for lnc in range(1, machine.chips[0].max_lnc + 1):
        found = slices(machine, lnc=lnc, layout=Layout(minor), offer=Offer(runs=Runs.ON))
        assert len(listed(found)) > 1
        assert overlapping_pairs_that_fit(found) == []


@QUICK
@given(data=st.data(), lnc=LNC, offer=OFFERS, layout=COUNTED_LAYOUTS)
def test_no_two_devices_that_overlap_fit_the_counters(
    data: st.DataObject,
    lnc: int,
    offer: Offer,
    layout: Layout,
    slices: Build,
    any_machine: st.SearchStrategy[Machine],
) -> None:
    assert overlapping_pairs_that_fit(slices(data.draw(any_machine), lnc=lnc, offer=offer, layout=layout)) == []


@QUICK
@given(data=st.data(), lnc=LNC, dice=st.randoms(use_true_random=False))
def test_whatever_is_allocated_every_core_is_given_once(
    data: st.DataObject, lnc: int, dice: random.Random, slices: Build, any_machine: st.SearchStrategy[Machine]
) -> None:
    machine = data.draw(any_machine)
    given_out = allocate(slices(machine, lnc=lnc), dice)
    assert_disjoint(given_out)
    cores = sum(chip.physical_cores for chip in machine.chips)
    assert sum(len(covers(device)) for device in given_out) == cores  # and none is lost


@QUICK
@given(data=st.data(), before=LNC, after=LNC, dice=st.randoms(use_true_random=False))
def test_what_is_held_excludes_what_overlaps_after_any_change(
    data: st.DataObject,
    before: int,
    after: int,
    dice: random.Random,
    slices: Build,
    any_machine: st.SearchStrategy[Machine],
) -> None:
    """Of hardware, LNC, offer and server."""
    machine = data.draw(any_machine)
    published = slices(machine, lnc=before, layout=data.draw(LAYOUTS), offer=data.draw(OFFERS))
    taken = [device for device in allocate(published, dice) if dice.random() < 0.4]
    held = {device["name"]: device for device in taken}
    left = Machine(tuple(chip for chip in machine.chips if dice.random() < 0.7), machine.instance_type, "2.31.7.0")
    now = slices(left, lnc=after, layout=data.draw(COUNTED_LAYOUTS), held=held, offer=data.draw(OFFERS))
    shown = {device["name"]: device for device in listed(now)}
    assert held.keys() <= shown.keys()
    for name, device in held.items():
        assert {**shown[name], "consumesCounters": 0} == {**device, "consumesCounters": 0}
    assert_no_counter_is_short(now, [shown[name] for name in held])
    assert_disjoint(allocate(now, dice, taken=[shown[name] for name in held]))


def assert_no_counter_is_short(found: Sequence[Wire], taken: Iterable[Mapping[str, Any]]) -> None:
    """One counter below zero blocks the whole pool."""
    ledger = Ledger(found)
    for device in taken:
        ledger.take(device)
    assert min(ledger.left.values(), default=0) >= 0


@QUICK
@given(data=st.data(), before=LNC, dice=st.randoms(use_true_random=False))
def test_held_runs_keep_their_counters_where_there_is_room_for_them(
    data: st.DataObject, before: int, dice: random.Random, slices: Build, any_machine: st.SearchStrategy[Machine]
) -> None:
    """As published: so that what is compared with the API doesn't change while it is held."""
    machine = data.draw(any_machine)
    published = listed(slices(machine, lnc=before, offer=Offer(runs=Runs.ON)))
    runs = [d for d in published if d["attributes"]["type"]["string"] == "core-run" and dice.random() < 0.4]
    held = {device["name"]: device for device in runs}
    now = listed(slices(machine, lnc=before, held=held, offer=Offer(runs=Runs.OFF)))
    assert [device for device in now if device["name"] in held] == runs


@QUICK
@given(data=st.data(), lnc=LNC, dice=st.randoms(use_true_random=False))
def test_held_runs_exclude_their_cores_on_an_old_server_too(
    data: st.DataObject, lnc: int, dice: random.Random, slices: Build, any_machine: st.SearchStrategy[Machine]
) -> None:
    """There they have the count of the chip only, which can't tell which cores are taken."""
    machine = data.draw(any_machine)
    published = allocate(
        slices(machine, lnc=lnc, offer=Offer(types=frozenset({DeviceType.CORE_RUN}), runs=Runs.ON)), dice
    )
    held = {device["name"]: device for device in published if dice.random() < 0.5}
    now = slices(machine, lnc=lnc, held=held, layout=Layout(34))
    shown = {device["name"]: device for device in listed(now)}
    assert_no_counter_is_short(now, [shown[name] for name in held])
    assert_disjoint(allocate(now, dice, taken=[shown[name] for name in held]))


@QUICK
@given(data=st.data(), lnc=LNC, offer=OFFERS, layout=LAYOUTS)
def test_an_offer_is_less_and_never_another_meaning(
    data: st.DataObject,
    lnc: int,
    offer: Offer,
    layout: Layout,
    slices: Build,
    any_machine: st.SearchStrategy[Machine],
) -> None:
    machine = data.draw(any_machine)
    everything = {device.name: device.wire for device in devices(machine, lnc=lnc)}
    found = listed(slices(machine, lnc=lnc, offer=offer, layout=layout))
    for device in found:
        assert device["attributes"] == everything[device["name"]]["attributes"]
    for each in sized_classes():
        assert len({device["attributes"]["type"]["string"] for device in found if each.selects(device)}) <= 1


@QUICK
@given(data=st.data(), before=LNC, after=LNC, dice=st.randoms(use_true_random=False))
def test_without_counters_nothing_listed_overlaps_anything_listed_or_held(
    data: st.DataObject,
    before: int,
    after: int,
    dice: random.Random,
    slices: Build,
    any_machine: st.SearchStrategy[Machine],
) -> None:
    machine = data.draw(any_machine)
    taken = [device for device in allocate(slices(machine, lnc=before), dice) if dice.random() < 0.4]
    held = {device["name"]: device for device in taken}
    kind = data.draw(st.sampled_from([DeviceType.CHIP, DeviceType.CORE]))
    now = slices(machine, lnc=after, layout=Layout(37, counters=False, granularity=kind), held=held)
    assert {device["attributes"]["type"]["string"] for device in listed(now)} <= {kind.value}
    assert all("sharedCounters" not in item["spec"] for item in now)
    free = [device for device in listed(now) if device["name"] not in held]
    assert_disjoint([*free, *taken])


@QUICK
@given(data=st.data(), lnc=LNC, layout=LAYOUTS, offer=OFFERS)
def test_bc018_the_rules_of_the_api(
    data: st.DataObject,
    lnc: int,
    layout: Layout,
    offer: Offer,
    slices: Build,
    any_machine: st.SearchStrategy[Machine],
) -> None:
    """BC-017, BC-018, BC-019: sizes, names and keys."""
    found = slices(data.draw(any_machine), lnc=lnc, layout=layout, offer=offer)
    for item in found:
        check_layout(item["spec"], layout)
        assert item["spec"]["pool"]["resourceSliceCount"] == len(found)
    assert [item["metadata"]["name"] for item in found] == sorted(item["metadata"]["name"] for item in found)
    names = [device["name"] for device in listed(found)]
    assert len(set(names)) == len(names)
    for device in listed(found):
        assert limits.DNS_LABEL.fullmatch(device["name"])
        check_entries(device)


def check_layout(spec: Wire, layout: Layout) -> None:
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    counted = [len(entry["counters"]) for entry in sets or []]
    if layout.combined:
        assert len(devices or []) <= 128
        assert sum(counted) <= 32
        assert sum(len(Ledger.draws(device)) for device in devices or []) <= 1024
        return
    assert (devices is None) != (sets is None)
    assert 1 <= len(devices or [0]) <= 64
    assert len(counted) <= 8
    assert max(counted, default=1) <= 32


def check_entries(device: Wire) -> None:
    keys = [*device["attributes"], *device.get("capacity", {})]
    assert len(keys) <= 32
    names = [key.rpartition("/") for key in keys]
    assert all(limits.IDENTIFIER.fullmatch(name) for _, _, name in names)
    assert {domain for domain, _, _ in names} <= {"", "resource.kubernetes.io", "resource.aws.com"}
    assert len({name for _, _, name in names}) == len(keys)  # none of them twice (BC-019)
    for entry in device["attributes"].values():
        [value] = entry.values()
        assert isinstance(value, int) or len(value.encode()) <= 64
    assert len(device.get("consumesCounters", [])) <= 2


@QUICK
@given(data=st.data(), lnc=LNC, layout=COUNTED_LAYOUTS, offer=OFFERS)
def test_every_counter_that_is_there_is_drawn_on_and_the_other_way_round(
    data: st.DataObject,
    lnc: int,
    layout: Layout,
    offer: Offer,
    slices: Build,
    any_machine: st.SearchStrategy[Machine],
) -> None:
    """One that is missing makes the pool invalid; one too many is looked at for each device."""
    found = slices(data.draw(any_machine), lnc=lnc, layout=layout, offer=offer)
    left = Ledger(found).left
    assert left.keys() == {counter for device in listed(found) for counter in Ledger.draws(device)}
    assert min(left.values(), default=1) > 0


@QUICK
@given(data=st.data(), lnc=LNC, layout=LAYOUTS, dice=st.randoms(use_true_random=False))
def test_same_input_same_bytes(
    data: st.DataObject,
    lnc: int,
    layout: Layout,
    dice: random.Random,
    slices: Build,
    any_machine: st.SearchStrategy[Machine],
) -> None:
    machine = data.draw(any_machine)
    held = {device.name: device.wire for device in devices(machine, lnc=lnc) if dice.random() < 0.3}
    once = json.dumps(slices(machine, lnc=lnc, layout=layout, held=held))
    shuffled = list(held.items())
    dice.shuffle(shuffled)
    assert json.dumps(slices(machine, lnc=lnc, layout=layout, held=dict(shuffled))) == once


@QUICK
@given(data=st.data(), lnc=LNC)
def test_devices_come_back_from_what_was_published(
    data: st.DataObject, lnc: int, any_machine: st.SearchStrategy[Machine]
) -> None:
    for device in devices(data.draw(any_machine), lnc=lnc):
        again = from_wire(json.loads(json.dumps(device.wire)))
        assert again == device
        assert physical_cores(again) == covers(device.wire)


LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", fullmatch=True)
SUBDOMAIN = st.lists(LABEL, min_size=1, max_size=6).map(".".join)


@QUICK
@given(driver=SUBDOMAIN.filter(lambda name: len(name) <= 63), node=SUBDOMAIN, index=st.integers(0, 99999))
def test_names_of_slices_are_names(driver: str, node: str, index: int) -> None:
    node = node[: 252 - len(driver)].rstrip(".-")
    name = slice_name(Pool(driver, node), index)
    assert len(name) <= 253
    assert limits.DNS_SUBDOMAIN.fullmatch(name)
    assert name.startswith(f"{index:05d}-")
