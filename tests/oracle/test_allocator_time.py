"""What the worst claim on the worst node costs, and why one request is one device.

Figures in seconds are generous: machines that run tests are slow and busy. Ratios are not.
"""

from collections.abc import Callable, Iterable

import pytest
from testbed.allocator import Allocator
from testbed.published import Published, Shape, claim, classes, exactly, shapes

from dra_driver.inventory.classes import sized_classes
from dra_driver.inventory.offer import Offer, Runs

pytestmark = pytest.mark.go

BUDGET_SECONDS = 0.1  # of the 10 that the scheduler's filter has; 2 to 6 ms were seen on a busy machine
RUNS = Offer(runs=Runs.ON)
LARGEST = [Shape("trn2.48xlarge", 1, RUNS, "-runs"), Shape("trn2.48xlarge"), Shape("inf1.24xlarge")]


@pytest.fixture
def ask(real: Callable[..., Allocator]) -> Callable[..., float]:
    def ask(node: Published, *requests: object, held: Iterable[str] = ()) -> float:
        allocator = real()
        allocator.world(slices=node.slices, classes=classes(), node=node.node)
        verdict = allocator.ask([claim("c", *requests)], held=node.held(held), repeat=5)  # type: ignore[arg-type]
        assert verdict.devices is None, "only a search that finds nothing sees everything"
        return verdict.seconds

    return ask


def blocked(node: Published) -> list[str]:
    """One core of each chip: every chip and group is blocked by counters, none is in use, so all are looked at."""
    return [name for name in node.promised["neuron-core"] if node.devices[name].first_core == 0]


@pytest.mark.parametrize("shape", shapes(), ids=str)
def test_a_class_that_gives_nothing_is_one_look_at_each_device(shape: Shape, ask: Callable[..., float]) -> None:
    node = shape.publish()
    absent = [each.name for each in sized_classes() if each.name not in node.promised]
    assert absent
    assert max(ask(node, name) for name in absent) < BUDGET_SECONDS


@pytest.mark.parametrize("shape", LARGEST, ids=str)
def test_chips_and_groups_that_are_all_blocked(shape: Shape, ask: Callable[..., float]) -> None:
    node = shape.publish()
    whole = [name for name in node.promised if not node.devices[node.promised[name][0]].part]
    assert len(whole) > 3
    assert max(ask(node, name, held=blocked(node)) for name in whole) < BUDGET_SECONDS


@pytest.mark.parametrize("shape", LARGEST, ids=str)
def test_a_full_node(shape: Shape, ask: Callable[..., float]) -> None:
    """Full of cores: all of them are in use, the rest is blocked. Full of chips: every core is blocked."""
    node = shape.publish()
    for name in ("neuron-core", "neuron-chip"):
        held = node.fitting(node.promised[name])
        assert max(ask(node, each, held=held) for each in node.promised) < BUDGET_SECONDS


def test_each_free_device_doubles_a_count_that_cannot_be_met(ask: Callable[..., float]) -> None:
    """So one request asks for one device, and policies hold users to it."""
    node = Shape("trn1.32xlarge").publish()
    cores = node.promised["neuron-core"]
    few, more = (ask(node, exactly("r", "neuron-core", count=20), held=cores[free:]) for free in (8, 13))
    assert more > few * 2**3  # five more: 32 times the search, less what both pay alike
    assert ask(node, "neuron-cores-32", held=cores[13:]) < BUDGET_SECONDS
