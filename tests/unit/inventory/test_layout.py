"""What is listed on which server: the one slice of Kubernetes 1.34, and what an offer leaves where counters go."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dra_driver.inventory import combined
from dra_driver.inventory.devices import Device, DeviceType, devices, from_wire
from dra_driver.inventory.layout import Layout, granularity, select
from dra_driver.inventory.offer import Offer, Runs
from dra_driver.inventory.slices import notes
from dra_driver.neuron import links
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.simulator.nominal import nominal

Wire = dict[str, Any]
Build = Callable[..., list[Wire]]
MakeMachine = Callable[..., Machine]

OLD = Layout(34)
NO_COUNTERS = Layout(37, counters=False)


def listed(found: Sequence[Wire]) -> list[Wire]:
    return [device for item in found for device in item["spec"].get("devices", [])]


def names(found: Sequence[Wire]) -> list[str]:
    return [device["name"] for device in listed(found)]


def held_of(found: Sequence[Device], *wanted: str) -> dict[str, Any]:
    return {device.name: device.wire for device in found if device.name in wanted}


def ring(chips: int) -> Machine:
    """A machine of no known size."""
    wiring = links.line(chips)
    return Machine(tuple(Chip(i, 243, i, 2, frozenset(wiring[i]), "", "Inferentia9", "NCv2") for i in range(chips)))


def test_bc032_up_to_1_34_counters_stand_beside_the_devices(machine: MakeMachine, slices: Build) -> None:
    assert [Layout(minor).combined for minor in (34, 35, 37)] == [True, False, False]
    assert not Layout(34, counters=False).combined
    [only] = slices(machine(), layout=OLD)
    assert only["spec"]["sharedCounters"] == [{"name": "chips", "counters": {"chip-0": {"value": "2"}}}]
    assert names([only]) == ["chip-0", "core-0-0", "core-0-1"]
    assert only["spec"]["pool"]["resourceSliceCount"] == 1
    assert notes(devices(machine()), layout=OLD) == ()


def test_devices_are_the_same_in_both_layouts(machine: MakeMachine, slices: Build) -> None:
    hardware = nominal(SIZES["trn1.32xlarge"])
    assert listed(slices(hardware, layout=OLD)) == listed(slices(hardware))


@pytest.mark.parametrize(
    ("size", "lnc", "chips", "devices_in_all"),
    [
        ("trn2.48xlarge", 1, 12, 127),  # 16 chips and 15 groups leave 97, of which 12 times 8 are used
        ("inf1.24xlarge", 1, 11, 128),  # 16 chips and 68 groups leave 44, all for 11 times 4
        ("trn2.48xlarge", 2, 16, 95),
    ],
)
def test_cores_of_as_many_chips_as_fit_are_listed(
    slices: Build, size: str, lnc: int, chips: int, devices_in_all: int
) -> None:
    hardware = nominal(SIZES[size])
    [only] = slices(hardware, lnc=lnc, layout=OLD)
    cores = [name for name in names([only]) if name.startswith("core-")]
    assert {int(name.split("-")[1]) for name in cores} == set(range(chips))
    assert len(names([only])) == devices_in_all


def test_what_does_not_fit_is_said() -> None:
    [note] = notes(devices(nominal(SIZES["inf1.24xlarge"])), layout=OLD)
    assert note.reason == "LayoutLimited"
    assert "Kubernetes 1.34" in note.text
    assert "single cores are offered on 11 of 16 chips only; core runs aren't offered" in note.text
    assert notes(devices(nominal(SIZES["inf1.24xlarge"])), layout=Layout(35)) == ()


def test_what_the_owner_does_not_offer_is_not_missed() -> None:
    offer = Offer(runs=Runs.OFF, chips_with_cores=11)
    assert notes(devices(nominal(SIZES["inf1.24xlarge"])), layout=OLD, offer=offer) == ()


def test_a_held_core_of_a_chip_that_has_no_room_stays(slices: Build) -> None:
    hardware = nominal(SIZES["trn2.48xlarge"])
    found = slices(hardware, layout=OLD, held=held_of(devices(hardware), "core-15-7-lnc1"))
    assert len(found) == 1
    cores = [name for name in names(found) if name.startswith("core-15-")]
    assert cores == ["core-15-7-lnc1"]
    assert len(names(found)) == 128


def test_a_held_run_stays_without_the_cores_it_is_made_of(slices: Build) -> None:
    """There is no room for a counter of each core: what a count can't exclude isn't listed."""
    hardware = nominal(SIZES["inf1.xlarge"])
    [only] = slices(hardware, layout=OLD, held=held_of(devices(hardware), "cores-0-2-2"))
    assert names([only]) == ["chip-0", "cores-0-2-2", "core-0-0", "core-0-1"]
    assert only["spec"]["sharedCounters"] == [{"name": "chips", "counters": {"chip-0": {"value": "4"}}}]
    assert all(len(device["consumesCounters"]) == 1 for device in listed([only]))


def test_more_chips_than_the_slice_has_counters_for() -> None:
    for chips, there in ((32, 32), (33, 32)):
        found = select(devices(ring(chips)), layout=OLD, offer=Offer())
        assert {chip for device in found.devices for chip in device.chips} == set(range(there))
    assert "32 of 33 chips are offered" in found.notes[0].text


def test_groups_give_way_by_size_and_small_ones_first() -> None:
    """A line of 32: 32 chips, and windows of 32 (1), 16 (17), 12 (21), 8 (25), 6 (27) chips are 123 devices.

    Those of 4 (29) have no room, but the cores of two chips have.
    """
    found = select(devices(ring(32)), layout=OLD, offer=Offer())
    sizes = {len(device.chips) for device in found.devices if device.type is DeviceType.CHIP_GROUP}
    assert sizes == {6, 8, 12, 16, 32}
    assert len(found.devices) == 127
    assert "single cores are offered on 2 of 32 chips only" in found.notes[0].text
    assert "groups of 2, 4 chips aren't offered" in found.notes[0].text


def test_the_limit_of_draws_at_it_and_one_above() -> None:
    """1,024 counters are named by 32 devices of 32 chips each; one core more is one too many."""
    *_, core = devices(ring(32))
    groups = [_group(number) for number in range(32)]
    assert combined.fit([*groups[:31], core], []) == [*groups[:31], core]
    assert combined.fit([*groups, core], []) == groups


def _group(number: int) -> Device:
    return Device(f"chips-0-32-{number}", DeviceType.CHIP_GROUP, tuple(range(32)), 0, 64, 1, {})


def test_the_limit_of_devices_at_it_and_one_above() -> None:
    many = [_chip(index % 32, index) for index in range(129)]
    assert combined.fit(many[:128], []) == sorted(many[:128], key=lambda device: device.chips)
    assert len(combined.fit([*many[:128], devices(ring(1))[-1]], [])) == 128


def _chip(chip: int, number: int) -> Device:
    return Device(f"chip-{chip}-{number}", DeviceType.CHIP, (chip,), 0, 2, 1, {})


def test_held_devices_that_leave_no_room_are_listed_alone() -> None:
    held = [_chip(index % 32, index) for index in range(128)]
    listing = select(devices(ring(4)), layout=OLD, offer=Offer(), kept=held)
    assert {device.name for device in listing.devices} == {device.name for device in held}


# An order of one's own


def test_another_order_is_another_key(machine: MakeMachine) -> None:
    found = select(
        devices(machine(chips=2)),
        layout=Layout(37),
        offer=Offer(),
        order=lambda d: (-d.cores, d.chips[0], d.first_core),
    )
    assert [device.name for device in found.devices][:3] == ["chip-0", "chip-1", "core-0-0"]


# Without counters


def test_without_counters_the_one_that_is_offered_is_listed(machine: MakeMachine, slices: Build) -> None:
    cores = Offer(types=frozenset({DeviceType.CORE, DeviceType.CORE_RUN}))
    assert granularity(NO_COUNTERS, cores) is DeviceType.CORE
    assert names(slices(machine(), layout=NO_COUNTERS, offer=cores)) == ["core-0-0", "core-0-1"]
    assert granularity(NO_COUNTERS, Offer()) is DeviceType.CHIP


def test_without_counters_an_offer_of_groups_only_is_nothing_and_said(slices: Build) -> None:
    hardware = nominal(SIZES["trn1.32xlarge"])
    groups = Offer(types=frozenset({DeviceType.CHIP_GROUP}))
    assert slices(hardware, layout=NO_COUNTERS, offer=groups) == []
    [note] = notes(devices(hardware), layout=NO_COUNTERS, offer=groups)
    assert "the offer of this node has neither" in note.text
    assert notes(devices(hardware), layout=NO_COUNTERS) == ()


def test_from_wire_reads_what_old_records_hold(machine: MakeMachine) -> None:
    for device in devices(nominal(SIZES["inf1.6xlarge"])):
        assert from_wire(device.wire) == device
