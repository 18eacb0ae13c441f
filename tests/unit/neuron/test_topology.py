"""Groups, rows and columns, device-group ids: golden for whole machines, properties for broken ones."""

import dataclasses
from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.links import Fabric
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.topology import NOWHERE, device_groups, groups, position, topology

MULTI = [name for name, size in SIZES.items() if size.chips > 1]
LINES = [name for name in MULTI if SIZES[name].fabric in (Fabric.LINE, Fabric.RING)]
ALIGNED = [name for name in MULTI if name not in LINES]


def machine(name: str, *, missing: Collection[int] = (), say: str | None = None) -> Machine:
    """A machine of that size without some chips, whose neighbours still name them; DMI may say otherwise."""
    size = SIZES[name]
    chips = (
        Chip(
            index=index,
            major=243,
            minor=index,
            physical_cores=size.physical_cores,
            neighbours=frozenset(neighbours),
            family=size.family,
            core_architecture=size.core_architecture,
        )
        for index, neighbours in enumerate(size.links)
        if index not in missing
    )
    return Machine(tuple(chips), name if say is None else say)


def without_links(of: Machine, *dead: tuple[int, int]) -> Machine:
    """The machine where `a` doesn't report its link to `b` any more."""
    chips = (
        dataclasses.replace(chip, neighbours=chip.neighbours - {b for a, b in dead if a == chip.index})
        for chip in of.chips
    )
    return dataclasses.replace(of, chips=tuple(chips))


def sizes(of: Machine) -> dict[int, int]:
    return dict(Counter(map(len, groups(of))))


@pytest.mark.parametrize("name", SIZES)
def test_the_fabric_of_a_whole_machine_is_that_of_its_size(name: str) -> None:
    assert topology(machine(name)).fabric is SIZES[name].fabric


@pytest.mark.parametrize(
    ("name", "fabric"),
    [
        ("trn1.2xlarge", Fabric.SINGLE),
        ("inf1.6xlarge", Fabric.LINE),
        ("inf2.24xlarge", Fabric.LINE),
        ("inf2.48xlarge", Fabric.RING),
        ("inf1.24xlarge", Fabric.RING),
        ("trn1.32xlarge", Fabric.TORUS),
        ("trn2.48xlarge", Fabric.TORUS),
        ("trn3e.24xlarge", Fabric.UNKNOWN),  # nothing but its name says that it is switched
    ],
)
def test_the_fabric_of_an_unknown_size_is_that_of_its_links(name: str, fabric: Fabric) -> None:
    assert topology(machine(name, say="trn9.99xlarge")).fabric is fabric
    assert topology(machine(name, say="")).fabric is fabric


def test_a_size_that_the_links_contradict_is_not_believed() -> None:
    ring = machine("inf2.48xlarge", say="trn1.32xlarge")
    assert topology(ring).fabric is Fabric.RING
    assert groups(ring) == groups(machine("inf2.48xlarge"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("inf1.xlarge", {}),
        ("inf1.6xlarge", {2: 3, 3: 2, 4: 1}),  # 3 chips are 12 cores
        ("inf1.24xlarge", {2: 15, 3: 14, 4: 13, 6: 11, 8: 9, 12: 5, 16: 1}),
        ("inf2.24xlarge", {2: 5, 4: 3, 6: 1}),
        ("inf2.48xlarge", {2: 11, 4: 9, 6: 7, 8: 5, 12: 1}),
        ("trn1.2xlarge", {}),
        ("trn1.32xlarge", {2: 8, 4: 4, 8: 2, 16: 1}),
        ("trn2.48xlarge", {2: 8, 4: 4, 8: 2, 16: 1}),
        ("trn3.48xlarge", {2: 8, 4: 4, 8: 2, 16: 1}),
        ("trn3e.24xlarge", {2: 2, 4: 1}),
        ("trn2en.24xlarge", {}),  # four chips, no links, nothing known of their fabric
    ],
)
def test_groups_of_whole_machines(name: str, expected: dict[int, int]) -> None:
    assert sizes(machine(name)) == expected
    assert sizes(machine(name, say=f"ml.{name}")) == expected


def test_bc077_groups_by_name() -> None:
    assert groups(machine("inf1.6xlarge")) == ((0, 1), (1, 2), (2, 3), (0, 1, 2), (1, 2, 3), (0, 1, 2, 3))
    fours = [group for group in groups(machine("trn2.48xlarge")) if len(group) == 4]
    assert fours == [(0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15)]
    assert groups(machine("trn3e.24xlarge")) == ((0, 1), (2, 3), (0, 1, 2, 3))


def test_windows_follow_the_counts_that_are_asked_for() -> None:
    whole = machine("inf2.24xlarge")
    assert {len(group) for group in groups(whole, chip_counts=(5,), core_counts=())} == {5}
    assert {len(group) for group in groups(whole, chip_counts=(), core_counts=(6, 7))} == {3}
    assert groups(whole, chip_counts=(1, 99), core_counts=(1, 2)) == ()


def test_cores_are_counted_at_the_lnc_in_force() -> None:
    chips = tuple(
        Chip(i, 243, i, 8, frozenset({i - 1, i + 1} & set(range(6))), core_architecture="NCv3") for i in range(6)
    )
    line = Machine(chips)
    assert {len(group) for group in groups(line, chip_counts=(), core_counts=(24,))} == {3}
    assert {len(group) for group in groups(line, lnc=2, chip_counts=(), core_counts=(24,))} == {6}


@pytest.mark.parametrize("name", MULTI)
def test_a_missing_chip_leaves_its_own_groups_out_and_no_others(name: str) -> None:
    whole = machine(name)
    for chip in range(SIZES[name].chips):
        kept = tuple(group for group in groups(whole) if chip not in group)
        assert groups(machine(name, missing={chip})) == kept


@pytest.mark.parametrize("name", MULTI)
def test_the_order_of_neighbours_means_nothing(name: str) -> None:
    whole = machine(name)
    turned = (dataclasses.replace(chip, neighbours=frozenset(sorted(chip.neighbours)[::-1])) for chip in whole.chips)
    assert groups(dataclasses.replace(whole, chips=tuple(turned))) == groups(whole)


def test_without_any_link_there_are_no_groups_but_on_a_switch() -> None:
    """Kernel drivers print links for a complete machine only: fifteen of sixteen chips show none."""
    for name in ("trn1.32xlarge", "trn2.48xlarge", "inf2.48xlarge"):
        whole = machine(name, missing={3})
        bare = (dataclasses.replace(chip, neighbours=frozenset()) for chip in whole.chips)
        assert groups(dataclasses.replace(whole, chips=tuple(bare))) == ()
    whole = machine("trn3.48xlarge", missing={3})
    bare = (dataclasses.replace(chip, neighbours=frozenset()) for chip in whole.chips)
    assert sizes(dataclasses.replace(whole, chips=tuple(bare))) == {2: 7, 4: 3, 8: 1}


def test_a_dead_link_takes_the_groups_that_it_held_together() -> None:
    line = without_links(machine("inf2.24xlarge"), (2, 3), (3, 2))
    assert groups(line) == ((0, 1), (1, 2), (3, 4), (4, 5))
    torus = without_links(machine("trn2.48xlarge"), (4, 5), (5, 4))
    assert set(groups(machine("trn2.48xlarge"))) - set(groups(torus)) == {(4, 5)}  # the row still closes the other way


def test_a_link_that_one_end_reports_is_none() -> None:
    one_way, dead = (
        without_links(machine("inf2.24xlarge"), (2, 3)),
        without_links(machine("inf2.24xlarge"), (2, 3), (3, 2)),
    )
    assert groups(one_way) == groups(dead)
    assert topology(one_way).one_way == ((3, 2),)
    assert topology(dead).one_way == ()


def test_a_whole_ring_survives_one_dead_link() -> None:
    ring = without_links(machine("inf2.48xlarge"), (5, 6), (6, 5))
    assert tuple(range(12)) in groups(ring)
    assert (5, 6) not in groups(ring)
    assert topology(ring).fabric is Fabric.RING


def test_a_ring_never_wraps() -> None:
    assert all(group[-1] > group[0] for group in groups(machine("inf2.48xlarge")))
    assert (0, 11) not in groups(machine("inf2.48xlarge"))


def test_unequal_chips_are_never_one_group() -> None:
    whole = machine("trn1.32xlarge")
    odd = dataclasses.replace(whole.chips[5], physical_cores=1)
    mixed = dataclasses.replace(whole, chips=(*whole.chips[:5], odd, *whole.chips[6:]))
    assert groups(mixed) == tuple(group for group in groups(whole) if 5 not in group)


@pytest.mark.parametrize("name", SIZES)
def test_rows_and_columns(name: str) -> None:
    whole = machine(name)
    places = [position(whole, chip.index) for chip in whole.chips]
    if SIZES[name].fabric is Fabric.TORUS:
        assert places == [(index // 4, index % 4) for index in range(16)]
    else:
        assert set(places) == {NOWHERE}


GROUP_IDS = {
    "trn1.32xlarge": (
        "88a3c6ad1661fe1d 69b2225fd72a59dd e3c29faa0cd11323 178a9e264a26793e",
        "86c451036f622685 aa86c05423d6e8cd",
        "fb838249c99a6341",
    ),
    "trn1n.32xlarge": (
        "f9415ac86580cd2a 81d377c56bbb18dd e367b751fc858d72 6b9b077320083e11",
        "25ab6fa8d56db17d feac12f490fb3cba",
        "9ea13cbe1ff23763",
    ),
    "trn2.48xlarge": (
        "13713e551cd37c19 671622785349fddf 237e3ef7b968b4d3 b3d6ce1919d29f8f",
        "3593812b8066a078 614e16dab9ba2f1f",
        "821d14afaf11327d",
    ),
    "trn3.48xlarge": (
        "68ac040ea32655a7 1c060eef5f3a4fe1 68e7529909eadc38 11626cfcde6dcac3",
        "bafc439bf9664feb 629b2570d9887aaf",
        "31980acd145f7025",
    ),
}
GROUP_IDS["trn2u.48xlarge"] = GROUP_IDS["ml.trn2.48xlarge"] = GROUP_IDS["trn2.48xlarge"]
GROUP_IDS["trn3p.48xlarge"] = GROUP_IDS["trn3.48xlarge"]


@pytest.mark.parametrize("name", GROUP_IDS)
def test_bc080_device_group_ids(name: str) -> None:
    whole = machine(name.removeprefix("ml."), say=name)
    for size, text in zip((4, 8, 16), GROUP_IDS[name], strict=True):
        expected = [group for group in text.split() for _ in range(size)]
        assert [device_groups(whole, chip)[size] for chip in range(16)] == expected
    assert set(device_groups(whole, 0)) == {1, 4, 8, 16}


def test_bc080_ids_of_development_machines_with_another_wiring() -> None:
    ids = [device_groups(Machine(instance_type="trn3-dev0.48xlarge"), chip) for chip in range(16)]
    assert [ids[chip][4] for chip in (0, 4, 8, 12)] == [
        "68ac040ea32655a7",
        "11626cfcde6dcac3",
        "1c060eef5f3a4fe1",
        "68e7529909eadc38",
    ]
    assert [ids[0][8], ids[8][8]] == ["e24e6d445a226240", "a6e1fae95cf7af58"]


def test_chips_that_share_an_adapter_share_the_id_of_one() -> None:
    trn1 = machine("trn1.32xlarge")
    ones = [device_groups(trn1, chip)[1] for chip in range(16)]
    assert all(ones[chip] == ones[chip + 1] for chip in range(0, 16, 2))
    assert len(set(ones)) == 8
    assert len({device_groups(machine("trn2.48xlarge"), chip)[1] for chip in range(16)}) == 16


def test_bc080_a_missing_chip_changes_nobodys_ids() -> None:
    assert device_groups(machine("trn2.48xlarge", missing={1}), 0) == device_groups(machine("trn2.48xlarge"), 0)


@pytest.mark.parametrize(
    "name", ["inf2.48xlarge", "trn1.2xlarge", "trn2.3xlarge", "trn3e.24xlarge", "trn9.48xlarge", ""]
)
def test_sizes_without_ids(name: str) -> None:
    assert device_groups(Machine(instance_type=name), 0) == {}


def test_a_chip_beyond_the_size_has_no_ids() -> None:
    assert device_groups(machine("trn2.48xlarge"), 16) == {}


@st.composite
def broken(draw: st.DrawFn, names: list[str] = MULTI) -> Machine:
    """A machine with chips missing, links dead or reported by one end, and DMI silent or wrong."""
    name = draw(st.sampled_from(names))
    ids = st.integers(0, SIZES[name].chips - 1)
    missing = draw(st.sets(ids, max_size=5))
    say = draw(st.sampled_from([name, "", "trn9.99xlarge", "inf2.48xlarge"]))
    dead = draw(st.lists(st.tuples(ids, ids), max_size=12))
    return without_links(machine(name, missing=missing, say=say), *dead)


@given(broken())
def test_bc077_whatever_is_broken_a_group_is_contiguous_connected_and_there(of: Machine) -> None:
    there = {chip.index: chip for chip in of.chips}
    switched = topology(of).fabric is Fabric.SWITCHED
    found = groups(of)
    assert len(set(found)) == len(found)
    for group in found:
        assert len(group) > 1
        assert group == tuple(range(group[0], group[0] + len(group)))
        assert there.keys() >= set(group)
        assert switched or reaches_all(there, group)


def reaches_all(chips: dict[int, Chip], group: tuple[int, ...]) -> bool:
    reached, queue = {group[0]}, [group[0]]
    while queue:
        here = queue.pop()
        for other in chips[here].neighbours & set(group):
            if here in chips[other].neighbours and other not in reached:
                reached.add(other)
                queue.append(other)
    return reached == set(group)


@given(broken())
def test_whatever_is_broken_nothing_is_added_to_the_whole_machine(of: Machine) -> None:
    """A fault takes groups away: what is left are windows of the whole machine, or aligned blocks."""
    name = next(name for name in MULTI if is_part_of(of, name))
    every = groups(machine(name), chip_counts=range(17), core_counts=())
    aligned = {tuple(range(a, a + n)) for n in (2, 4, 8, 16) for a in range(0, 16, n)}
    assert set(groups(of)) <= set(every) | aligned


def is_part_of(of: Machine, name: str) -> bool:
    size = SIZES[name]
    return all(
        chip.index < size.chips
        and chip.neighbours <= set(size.links[chip.index])
        and (chip.physical_cores, chip.family) == (size.physical_cores, size.family)
        for chip in of.chips
    )


@given(broken(ALIGNED))
def test_outside_lines_and_rings_groups_are_aligned(of: Machine) -> None:
    for group in groups(of):
        if topology(of).fabric not in (Fabric.LINE, Fabric.RING):
            assert len(group) & (len(group) - 1) == 0
            assert group[0] % len(group) == 0


@given(broken())
def test_positions_never_fail_and_never_meet(of: Machine) -> None:
    places = [position(of, chip.index) for chip in of.chips]
    known = [place for place in places if place != NOWHERE]
    assert len(known) in (0, len(places))
    assert len(set(known)) == len(known)


def test_no_chips() -> None:
    assert groups(Machine()) == ()
    assert topology(Machine()).fabric is Fabric.UNKNOWN
