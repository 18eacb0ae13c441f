"""The accounts of the old way: what each id is, which ids go together, what a container gets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.legacy.ledger import Ledger, LedgerError
from dra_driver.neuron.machine import Chip, Machine


def machine(*chips: int, cores: int = 2) -> Machine:
    return Machine(
        tuple(Chip(index=at, major=243, minor=at, physical_cores=cores, neighbours=frozenset()) for at in chips)
    )


def test_ids() -> None:
    assert Ledger.of_chips(machine(0, 1)).ids == ("neuron0", "neuron1")
    assert Ledger.of_cores(machine(0, 1)).ids == (
        *("neuroncore0-0", "neuroncore0-1"),
        *("neuroncore1-0", "neuroncore1-1"),
    )


def test_cores_are_logical() -> None:
    assert len(Ledger.of_cores(machine(0, cores=8), lnc=2).ids) == 4
    assert Ledger.of_chips(machine(0, cores=8), lnc=2).grant(["neuron0"]).cores == ((0, 0), (0, 1), (0, 2), (0, 3))


def test_no_chips_no_ids() -> None:
    assert Ledger.of_cores(Machine()).ids == ()


def test_chips_bring_no_core_numbers() -> None:
    grant = Ledger.of_chips(machine(0, 1, 2, 3)).grant(["neuron3", "neuron2"])
    assert grant.nodes == ("/dev/neuron2", "/dev/neuron3")
    assert grant.env == ()
    assert grant.cores == ((2, 0), (2, 1), (3, 0), (3, 1))


@pytest.mark.parametrize(
    ("ids", "visible"),
    [
        (["neuroncore0-0"], "0"),
        (["neuroncore0-1"], "1"),
        (["neuroncore3-1"], "1"),
        (["neuroncore1-1", "neuroncore1-0"], "0-1"),
        (["neuroncore1-1", "neuroncore2-0"], "1-2"),
        (["neuroncore0-0", "neuroncore3-0"], "0,2"),
    ],
)
def test_core_numbers_are_those_of_the_container(ids: list[str], visible: str) -> None:
    assert dict(Ledger.of_cores(machine(0, 1, 2, 3)).grant(ids).env) == {"NEURON_RT_VISIBLE_CORES": visible}


def test_foreign_ids_are_named() -> None:
    with pytest.raises(LedgerError, match="'neuron9' is no device of this resource; there are neuron0"):
        Ledger.of_chips(machine(0)).grant(["neuron9"])


def test_preference_is_contiguous_over_chips() -> None:
    ledger = Ledger.of_cores(machine(0, 1, 2))
    free = ["neuroncore2-0", "neuroncore0-0", "neuroncore1-1", "neuroncore2-1"]
    assert ledger.prefer(free, [], 2) == ("neuroncore1-1", "neuroncore2-0")
    assert ledger.prefer(free, ["neuroncore2-1"], 2) == ("neuroncore2-0", "neuroncore2-1")


def test_a_missing_chip_is_a_gap() -> None:
    assert Ledger.of_chips(machine(0, 2, 3)).prefer(["neuron0", "neuron2", "neuron3"], [], 2) == ("neuron2", "neuron3")


def test_without_a_run_the_required_ones_come_first() -> None:
    ledger = Ledger.of_chips(machine(0, 1, 2, 3))
    assert ledger.prefer(["neuron0", "neuron2"], ["neuron2"], 2) == ("neuron0", "neuron2")
    assert ledger.prefer(["neuron0", "neuron2", "neuron3"], ["neuron0"], 2) == ("neuron0", "neuron2")


@given(
    chips=st.integers(1, 6),
    taken=st.sets(st.integers(0, 11)),
    size=st.integers(1, 6),
)
def test_a_preference_is_available_of_the_size_and_contiguous_where_possible(
    chips: int, taken: set[int], size: int
) -> None:
    ledger = Ledger.of_cores(machine(*range(chips)))
    free = [one for at, one in enumerate(ledger.ids) if at not in taken]
    chosen = ledger.prefer(free, [], size)
    assert set(chosen) <= set(free)
    assert len(chosen) == min(size, len(free))
    places = [ledger.ids.index(one) for one in free]
    possible = any(set(range(at, at + size)) <= set(places) for at in range(len(ledger.ids) - size + 1))
    numbers = [ledger.ids.index(one) for one in chosen]
    assert not possible or numbers == list(range(numbers[0], numbers[0] + size))
