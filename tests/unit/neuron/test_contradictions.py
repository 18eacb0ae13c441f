"""What is said of a machine that doesn't agree with itself; served it is all the same."""

import pytest

from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.contradictions import contradictions
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.topology import groups


def machine(name: str, *, say: str | None = None, links: dict[int, set[int]] | None = None, **over: object) -> Machine:
    """A machine of that size; `links` replaces neighbours by chip, `chip_<N>=None` leaves one out."""
    size, changed = SIZES[name], links or {}
    chips = tuple(
        Chip(
            index=index,
            major=243,
            minor=index,
            physical_cores=size.physical_cores,
            neighbours=frozenset(changed.get(index, neighbours)),
            serial=f"9ff5434815c8{index:04x}",
            family=size.family,
            core_architecture=size.core_architecture,
        )
        for index, neighbours in enumerate(size.links)
        if f"chip_{index}" not in over
    )
    return Machine(chips, name if say is None else say)


def with_chip(of: Machine, index: int, **changes: object) -> Machine:
    chips = {chip.index: chip for chip in of.chips}
    values = {field: getattr(chips[index], field) for field in Chip.__dataclass_fields__} | changes
    chips[index] = Chip(**values)
    return Machine(tuple(chips.values()), of.instance_type)


@pytest.mark.parametrize("name", SIZES)
def test_a_whole_machine_has_none(name: str) -> None:
    assert contradictions(machine(name)) == ()
    assert contradictions(machine(name, say=f"ml.{name}")) == ()


@pytest.mark.parametrize("name", SIZES)
def test_a_size_that_is_not_known_is_none(name: str) -> None:
    assert contradictions(machine(name, say="trn9.metal")) == ()
    assert contradictions(machine(name, say="")) == ()


def test_no_chips_of_an_unknown_size() -> None:
    assert contradictions(Machine()) == ()


def test_a_missing_chip_is_named() -> None:
    [text] = contradictions(machine("trn2.48xlarge", chip_3=None))
    assert text == "15 of the 16 chips of a trn2.48xlarge are usable, missing: 3"


def test_several_missing_chips() -> None:
    [text] = contradictions(machine("inf2.24xlarge", chip_0=None, chip_5=None))
    assert text == "4 of the 6 chips of a inf2.24xlarge are usable, missing: 0, 5"


def test_more_chips_than_the_size_has() -> None:
    texts = contradictions(machine("trn1.32xlarge", say="trn1.2xlarge"))
    assert "a trn1.2xlarge has 1 chips, but there is also 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15" in texts


def test_two_chips_with_one_serial() -> None:
    of = with_chip(machine("trn2.48xlarge"), 7, serial="9ff5434815c80003")
    assert contradictions(of) == ("chips 3, 7 share serial 9ff5434815c80003",)
    assert len(of.chips) == 16


def test_a_blank_serial_among_others() -> None:
    one = with_chip(machine("trn2.48xlarge"), 7, serial="")
    [text] = contradictions(one)
    assert text.startswith("chip 7 has no serial number while others do")
    [text] = contradictions(with_chip(one, 9, serial=""))
    assert text.startswith("chips 7, 9 have no serial number")


def test_no_serial_at_all_is_an_older_driver_not_a_contradiction() -> None:
    of = machine("inf2.24xlarge")
    for chip in range(6):
        of = with_chip(of, chip, serial="")
    assert contradictions(of) == ()


def test_fewer_cores_than_the_size_has() -> None:
    texts = contradictions(with_chip(machine("inf2.24xlarge"), 2, physical_cores=1))
    assert texts == (
        "the chips aren't alike (1 with 1 NCv2 cores, 5 with 2 NCv2 cores); no group mixes them",
        "chip 2 hasn't the 2 cores that a inf2.24xlarge has per chip",
    )


def test_chips_of_another_family() -> None:
    texts = contradictions(machine("trn1.2xlarge", say="inf2.xlarge"))
    assert texts == ("there is Trainium1 where a inf2.xlarge has Inferentia2; its memory isn't published",)


def test_a_link_that_one_end_reports() -> None:
    of = machine("inf2.24xlarge", links={2: {1}})
    assert contradictions(of) == ("links that one chip reports and the other doesn't (3-2) don't count",)
    assert (2, 3) not in groups(of)


def test_a_dead_link() -> None:
    of = machine("inf2.24xlarge", links={2: {1}, 3: {4}})
    assert contradictions(of) == ("links that a inf2.24xlarge has aren't reported: 2-3",)


def test_a_link_that_the_size_does_not_have() -> None:
    of = machine("inf2.24xlarge", links={0: {1, 3}, 3: {2, 4, 0}})
    assert contradictions(of) == ("links are reported that a inf2.24xlarge doesn't have: 0-3",)
    assert all(group == tuple(range(group[0], group[-1] + 1)) for group in groups(of))


def test_a_machine_that_is_wired_otherwise_is_told_in_few_words() -> None:
    of = machine("inf1.24xlarge", say="trn1.32xlarge")
    texts = contradictions(of)
    assert sum(text.startswith("links") for text in texts) == 2
    assert all(len(text) < 1024 for text in texts)
    [strange] = [text for text in texts if "doesn't have" in text]
    assert strange == "links are reported that a trn1.32xlarge doesn't have: 0-15, 3-4, 7-8, 11-12"
    [silent] = [text for text in texts if "aren't reported" in text]
    assert silent.endswith(" and 12 more")


def test_a_link_to_itself() -> None:
    of = machine("inf2.24xlarge", links={2: {1, 2, 3}})
    assert contradictions(of) == ("chip 2 reports a link to itself, which doesn't count",)
    assert groups(of) == groups(machine("inf2.24xlarge"))


def test_links_to_a_chip_that_is_not_here() -> None:
    of = machine("inf2.24xlarge", say="", chip_5=None)
    assert contradictions(of) == ("links to chip 5, which isn't usable here, are reported by 4",)


@pytest.mark.parametrize(("name", "grouped"), [("trn1.32xlarge", False), ("trn3.48xlarge", True)])
def test_no_links_at_all(name: str, grouped: bool) -> None:  # noqa: FBT001
    of = machine(name, links={chip: set() for chip in range(16)}, chip_3=None)
    missing, links = contradictions(of)
    assert missing.endswith("missing: 3")
    assert links.startswith(f"no chip reports a link, though a {name} has them")
    assert links.endswith("no group of chips is published") is not grouped
    assert bool(groups(of)) is grouped
