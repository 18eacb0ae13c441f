"""Machines by value, the pool they are published in, and hypothesis strategies over hardware."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from dra_driver.inventory.devices import Device, devices, totals
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.machine import Chip, Machine

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


def build_slices(
    machine: Machine,
    *,
    lnc: int = 1,
    layout: Layout | None = None,
    held: Mapping[str, Mapping[str, Any]] | None = None,
    generation: int = 1,
    offered: Sequence[Device] | None = None,
    pool: Pool = POOL,
) -> list[Wire]:
    listed = devices(machine, lnc=lnc) if offered is None else offered
    return build(pool, listed, totals(machine), layout=layout or Layout(37), generation=generation, held=held)


def machine_strategy() -> st.SearchStrategy[Machine]:
    """Any hardware that the reader lets through, known or not."""
    paired = st.tuples(st.sampled_from([2, 4, 8, 12]), st.sampled_from(["NCv3", "NCv4"]))
    single = st.tuples(st.integers(1, 12), st.sampled_from(["NCv1", "NCv2"]))
    chip = st.builds(
        lambda index, kind, serial, family: Chip(index, 243, index, kind[0], frozenset(), serial, family, kind[1]),
        st.integers(0, 63),
        paired | single,
        st.sampled_from(["", "9ff5434815c8bd80"]),
        st.sampled_from(["Trainium1", "Trainium2", ""]) | st.text(max_size=80),
    )
    chips = st.lists(chip, max_size=8, unique_by=lambda c: c.index)
    return st.builds(
        lambda found, size, version: Machine(tuple(sorted(found, key=lambda c: c.index)), size, version),
        chips,
        st.sampled_from(["trn1.2xlarge", "trn2u.48xlarge", ""]),
        st.sampled_from(["2.30.2.0", "2.x.8072.0", ""]) | st.text(max_size=80),
    )


@pytest.fixture(scope="session")
def machine() -> MakeMachine:
    return make_machine


@pytest.fixture(scope="session")
def slices() -> Build:
    return build_slices


@pytest.fixture(scope="session")
def machines() -> st.SearchStrategy[Machine]:
    return machine_strategy()
