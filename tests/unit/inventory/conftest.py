"""Machines by value, the pool they are published in, and hypothesis strategies over hardware."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from dra_driver.inventory.devices import Device, devices, totals
from dra_driver.inventory.offer import Offer
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron import links
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.simulator.nominal import nominal

Wire = dict[str, Any]
Build = Callable[..., list[Wire]]
MakeMachine = Callable[..., Machine]

DRIVER = "neuron.coreslice.dev"
POOL = Pool(DRIVER, "node-a")


def make_chip(index: int, cores: int = 2, architecture: str = "NCv2", serial: str = "9ff5434815c8bd80") -> Chip:
    family = "Trainium1" if architecture == "NCv2" else "Trainium2"
    return Chip(index, 243, index, cores, frozenset(), serial, family, architecture)


def make_machine(chips: int | Iterable[int] = 1, cores: int = 2, architecture: str = "NCv2", **fields: Any) -> Machine:
    indices = range(chips) if isinstance(chips, int) else chips
    given = {"instance_type": "trn1.2xlarge", "driver_version": "2.30.2.0"} | fields
    return Machine(tuple(make_chip(index, cores, architecture) for index in indices), **given)


def build_slices(  # noqa: PLR0913 -- by keyword
    machine: Machine,
    *,
    lnc: int = 1,
    layout: Layout | None = None,
    held: Mapping[str, Mapping[str, Any]] | None = None,
    generation: int = 1,
    offered: Sequence[Device] | None = None,
    pool: Pool = POOL,
    offer: Offer | None = None,
) -> list[Wire]:
    listed = devices(machine, lnc=lnc) if offered is None else offered
    return build(
        pool,
        listed,
        totals(machine),
        layout=layout or Layout(37),
        generation=generation,
        held=held,
        offer=offer or Offer(),
    )


def machine_strategy() -> st.SearchStrategy[Machine]:
    """Any hardware that the reader lets through, known or not."""
    return st.one_of(_unknown_machine(), _known_machine())


def _unknown_machine() -> st.SearchStrategy[Machine]:
    paired = st.tuples(st.sampled_from([2, 4, 8, 12]), st.sampled_from(["NCv3", "NCv4"]))
    single = st.tuples(st.integers(1, 12), st.sampled_from(["NCv1", "NCv2"]))
    kinds = st.lists(paired | single, min_size=1, max_size=2)  # one, or a machine that contradicts itself
    wiring = st.sampled_from([links.none(64), links.line(64), links.ring(8) + links.none(56), links.torus() * 4])
    chip = st.tuples(st.sampled_from(range(8)) | st.integers(0, 63), st.integers(0, 1), st.text(max_size=80))
    chips = st.lists(chip, max_size=8, unique_by=lambda c: c[0]).map(sorted)
    size = st.sampled_from(["trn1.2xlarge", "trn2u.48xlarge", ""])
    version = st.sampled_from(["2.30.2.0", "2.x.8072.0", ""]) | st.text(max_size=80)
    return st.builds(_assembled, chips, kinds, wiring, size, version)


def _assembled(
    chips: Sequence[tuple[int, int, str]],
    kinds: Sequence[tuple[int, str]],
    wiring: links.Links,
    size: str,
    version: str,
) -> Machine:
    found = []
    for index, kind, family in chips:
        cores, architecture = kinds[kind % len(kinds)]
        neighbours = frozenset(wiring[index])
        found.append(Chip(index, 243, index, cores, neighbours, "9ff5434815c8bd80", family, architecture))
    return Machine(tuple(found), size, version)


def _known_machine() -> st.SearchStrategy[Machine]:
    """A size, perhaps with chips that are missing."""
    gone = st.sets(st.integers(0, 15), max_size=3)
    return st.builds(_without, st.sampled_from(sorted(SIZES)), gone)


def _without(size: str, gone: set[int]) -> Machine:
    whole = nominal(SIZES[size])
    return Machine(tuple(chip for chip in whole.chips if chip.index not in gone), size, whole.driver_version)


@pytest.fixture(scope="session")
def machine() -> MakeMachine:
    return make_machine


@pytest.fixture(scope="session")
def slices() -> Build:
    return build_slices


@pytest.fixture(scope="session")
def machines() -> st.SearchStrategy[Machine]:
    return machine_strategy()
