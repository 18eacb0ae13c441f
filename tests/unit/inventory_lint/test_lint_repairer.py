"""The repair with a memory: the same answers, without judging again."""

import copy
import time
from collections.abc import Collection
from typing import Any

import pytest

from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import devices, totals
from dra_driver.inventory.lint import repairer
from dra_driver.inventory.lint.repair import repair
from dra_driver.inventory.lint.repairer import Repairer
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.simulator.nominal import nominal

Wire = dict[str, Any]
ON = {"DRAPartitionableDevices": True}


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Collection[str]]:
    """What was held at each real judgement."""
    calls: list[Collection[str]] = []

    def counted(*args: Any, **more: Any) -> Any:
        calls.append(more["held"])
        return repair(*args, **more)

    monkeypatch.setattr(repairer, "repair", counted)
    return calls


def pool_of(size: str, *, generation: int = 1) -> list[Wire]:
    machine = nominal(SIZES[size])
    pool = Pool("neuron.example.com", "node-1")
    return build(pool, devices(machine), totals(machine), layout=Layout(37), generation=generation)


def spoilt(key: str) -> list[Wire]:
    found = copy.deepcopy(pool_of("trn1.2xlarge"))
    found[-1]["spec"]["devices"][0]["attributes"][key] = {"string": "x" * 65}
    return found


def test_equal_slices_are_judged_once(judged: list[Collection[str]]) -> None:
    mender = Repairer(COMMON)
    first = mender.repair(pool_of("trn1.2xlarge"), 37, features=ON)
    assert mender.repair(copy.deepcopy(pool_of("trn1.2xlarge")), 37, features=ON, held=["chip-0"]) == first
    assert len(judged) == 1
    assert first == (pool_of("trn1.2xlarge"), [])


def test_whatever_differs_is_judged(judged: list[Collection[str]]) -> None:
    mender, plain = Repairer(COMMON), pool_of("trn1.2xlarge")
    mender.repair(plain, 37, features=ON)
    mender.repair(plain, 36, features=ON)
    mender.repair(plain, 37, features={"DRAPartitionableDevices": False})
    mender.repair(pool_of("trn1.2xlarge", generation=2), 37, features=ON)
    assert len(judged) == 4
    mender.repair(plain, 37, features=ON)
    assert len(judged) == 4


@pytest.mark.parametrize("key", ["family", "extra"])
def test_what_is_held_counts_where_there_is_a_fault(key: str, judged: list[Collection[str]]) -> None:
    mender, bad = Repairer(COMMON), spoilt(key)
    for held in ([], ["core-0-0"], ["core-0-1"], ["core-0-0"]):
        assert mender.repair(bad, 37, features=ON, held=held) == repair(bad, 37, features=ON, common=COMMON, held=held)
    assert judged == [frozenset(), frozenset({"core-0-0"}), frozenset({"core-0-1"})]


def test_a_second_look_at_the_largest_node_costs_little() -> None:
    """5 ms on an idle machine would be much; the first judgement took 42, the second look 0.1."""
    mender, seconds = Repairer(COMMON), []
    for _ in range(20):
        built = pool_of("trn2.48xlarge")
        start = time.thread_time()
        _, notes = mender.repair(built, 37, features=ON)
        seconds.append(time.thread_time() - start)
        assert notes == []
    assert min(seconds[1:]) < 0.005 < seconds[0]
