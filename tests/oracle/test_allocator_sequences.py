"""Whatever pods come and go, the scheduler's allocator gives the first devices that overlap with nothing held.

The model knows no counters: it looks at physical cores only. So these tests prove that what devices draw on
counters says the same as what they cover, no more (a device that is free is given) and no less.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.allocator import FEATURES, IMPLEMENTATIONS, MINORS, Allocator
from testbed.published import Core, Published, Shape, claim, classes, shapes

from dra_driver.inventory.offer import Offer, Runs
from tests.oracle.conftest import EVERY_MINOR

pytestmark = pytest.mark.go

Steps = list[tuple[int, list[int]]]  # a pod to end (by position among those that run), then the classes of the next

RUNS = Offer(runs=Runs.ON)
TYPICAL = [
    Shape("trn1.2xlarge"),
    Shape("inf1.6xlarge"),
    Shape("inf2.48xlarge"),
    Shape("trn1.32xlarge"),
    Shape("trn2.48xlarge", 1, RUNS, "-runs"),
    Shape("trn2.48xlarge", 2),
]
# What matters is how often a pod asks for more than is left, so that pods end and gaps open.
STEPS: st.SearchStrategy[Steps] = st.lists(
    st.tuples(st.integers(0, 12), st.lists(st.integers(0, 16), min_size=1, max_size=3)), min_size=1, max_size=12
)


@dataclass
class Model:
    """Pods and their devices, by physical cores alone."""

    node: Published
    pods: list[list[str]] = field(default_factory=list)

    @property
    def held(self) -> list[str]:
        return list(chain.from_iterable(self.pods))

    def taken(self) -> set[Core]:
        return set(chain.from_iterable(self.node.cores(name) for name in self.held))

    def first_fit(self, wanted: Sequence[str], taken: set[Core]) -> list[str] | None:
        if not wanted:
            return []
        for name in self.node.promised.get(wanted[0], ()):
            cores = self.node.cores(name)
            if taken.isdisjoint(cores) and (rest := self.first_fit(wanted[1:], taken | cores)) is not None:
                return [name, *rest]
        return None


def play(node: Published, allocator: Allocator, steps: Steps) -> Iterator[tuple[list[str] | None, list[str] | None]]:
    """What the allocator gave and what the model says, pod by pod."""
    allocator.world(slices=node.slices, classes=classes(), node=node.node)
    model, names = Model(node), [*node.promised]
    for end, numbers in steps:
        if end < len(model.pods):
            del model.pods[end]
        wanted = [names[number % len(names)] for number in numbers]
        verdict = allocator.ask([claim(f"c{at}", name) for at, name in enumerate(wanted)], held=node.held(model.held))
        assert not verdict.error
        got = None if verdict.devices is None else list(chain.from_iterable(verdict.devices))
        yield got, model.first_fit(wanted, model.taken())
        if got is not None:
            model.pods.append(got)


def check(node: Published, allocator: Allocator, steps: Steps) -> None:
    for got, expected in play(node, allocator, steps):
        assert got == expected


@pytest.mark.parametrize("shape", shapes(), ids=str)
@settings(max_examples=15, derandomize=True)
@given(steps=STEPS)
def test_every_size(shape: Shape, real: Callable[..., Allocator], steps: Steps) -> None:
    check(shape.publish(), real(), steps)


@pytest.mark.parametrize("shape", TYPICAL, ids=str)
@pytest.mark.parametrize("features", IMPLEMENTATIONS.values(), ids=IMPLEMENTATIONS)
@settings(max_examples=10, derandomize=True)
@given(steps=STEPS)
def test_every_implementation_of_1_37(
    shape: Shape, features: Sequence[str], real: Callable[..., Allocator], steps: Steps
) -> None:
    check(shape.publish(), real(37, tuple(features)), steps)


@pytest.mark.full
@pytest.mark.parametrize("shape", TYPICAL, ids=str)
@pytest.mark.parametrize("minor", MINORS[:-1])
@settings(max_examples=10, derandomize=True)
@given(steps=STEPS)
def test_every_minor_in_its_own_layout(minor: int, shape: Shape, real: Callable[..., Allocator], steps: Steps) -> None:
    check(shape.publish(minor=minor), real(minor), steps)


@pytest.mark.parametrize("minor", EVERY_MINOR)
@settings(max_examples=10, derandomize=True)
@given(steps=STEPS)
def test_without_counters_one_granularity_overlaps_with_nothing(
    minor: int, real: Callable[..., Allocator], steps: Steps
) -> None:
    features = tuple(name for name in FEATURES[minor] if name != "PartitionableDevices")
    check(Shape("trn2.48xlarge").publish(minor=minor, counters=False), real(minor, features), steps)


def test_without_counters_the_full_list_would_overlap(real: Callable[..., Allocator]) -> None:
    """What the tests above are worth: they fail on slices whose counters have vanished (1.34 with default gates)."""
    node = Shape("trn1.2xlarge").publish()
    bare = [each for each in node.slices if "devices" in each["spec"]]
    for each in bare:
        each["spec"]["pool"]["resourceSliceCount"] = len(bare)
        each["spec"]["devices"] = [
            {k: v for k, v in d.items() if k != "consumesCounters"} for d in each["spec"]["devices"]
        ]
    chip_then_core = [(99, [list(node.promised).index(name)]) for name in ("neuron-chip", "neuron-core")]
    outcomes = list(play(Published(bare), real(), chip_then_core))
    assert outcomes == [(["chip-0"], ["chip-0"]), (["core-0-0"], None)]
