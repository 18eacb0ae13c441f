"""Which of sysfs's cores a logical core is. Golden: what the kernel driver answers for each chip."""

import pytest

from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.lnc import order, sysfs_cores
from dra_driver.neuron.machine import Chip, Machine

EVEN_ROWS = {0: (4, 5, 6, 7, 2, 3, 0, 1), 1: (2, 3, 0, 1, 4, 5, 6, 7)}
ODD_ROWS = {0: (0, 1, 2, 3, 6, 7, 4, 5), 1: (6, 7, 4, 5, 0, 1, 2, 3)}
TRN3_SWITCHED = {0: (4, 5, 6, 7, 2, 3, 0, 1), 1: (6, 7, 4, 5, 0, 1, 2, 3)}


def chip(name: str, index: int = 0) -> tuple[Machine, Chip]:
    size = SIZES[name.removeprefix("ml.")]
    one = Chip(index, 243, index, size.physical_cores, frozenset(), core_architecture=size.core_architecture)
    return Machine((one,), name), one


@pytest.mark.parametrize("name", ["trn2.48xlarge", "ml.trn2.48xlarge"])
@pytest.mark.parametrize("index", range(16))
def test_trn2(name: str, index: int) -> None:
    rows = EVEN_ROWS if index // 4 in (0, 2) else ODD_ROWS
    assert order(*chip(name, index)) == rows[index % 2]


@pytest.mark.parametrize("index", range(16))
@pytest.mark.parametrize("name", ["trn3.48xlarge", "trn3s-es.48xlarge", "trn3sn.48xlarge", "trn3sn-es.48xlarge"])
def test_trn3_on_a_switch(name: str, index: int) -> None:
    assert order(*chip(name, index)) == TRN3_SWITCHED[index % 2]


def test_a_single_trn2_is_the_first_chip_of_the_first_row() -> None:
    assert order(*chip("trn2.3xlarge")) == EVEN_ROWS[0]


@pytest.mark.parametrize("node", [-1, 0, 2])
def test_an_ultraserver_node_that_stands_upright(node: int) -> None:
    for index in range(16):
        expected = order(*chip("trn2.48xlarge", index))
        assert order(*chip("trn2u.48xlarge", index), ultraserver_node=node) == expected


@pytest.mark.parametrize("node", [1, 3])
def test_an_ultraserver_node_that_is_flipped(node: int) -> None:
    """The logical index is turned, not the core that it leads to."""
    assert order(*chip("trn2u.48xlarge", 0), ultraserver_node=node) == (0, 1, 2, 3, 6, 7, 4, 5)
    assert order(*chip("trn2u.48xlarge", 1), ultraserver_node=node) == (6, 7, 4, 5, 0, 1, 2, 3)
    for index in range(16):
        straight = order(*chip("trn2.48xlarge", index))
        assert straight is not None
        expected = tuple(straight[core ^ 0x6] for core in range(8))
        assert order(*chip("trn2u.48xlarge", index), ultraserver_node=node) == expected


def test_what_is_not_known_is_not_guessed() -> None:
    assert order(*chip("trn2u.48xlarge")) is None  # which place in the UltraServer?
    assert order(*chip("trn2u.48xlarge"), ultraserver_node=4) is None
    assert order(*chip("trn3p.48xlarge"), ultraserver_node=0) is None
    assert order(*chip("trn2en.24xlarge")) is None
    assert order(*chip("trn3e.24xlarge")) is None
    _, known = chip("trn2.48xlarge")
    assert order(Machine((known,)), known) is None
    odd = Chip(0, 243, 0, 4, frozenset(), core_architecture="NCv3")
    assert order(Machine((odd,), "trn2.48xlarge"), odd) is None
    beyond = Chip(16, 243, 16, 8, frozenset(), core_architecture="NCv3")
    assert order(Machine((beyond,), "trn2.48xlarge"), beyond) is None
    assert sysfs_cores(*chip("trn3e.24xlarge"), 0) is None


@pytest.mark.parametrize("name", ["inf1.xlarge", "inf2.xlarge", "trn1.2xlarge", "trn1.32xlarge"])
def test_before_trn2_the_orders_are_one(name: str) -> None:
    machine, one = chip(name)
    assert [sysfs_cores(machine, one, core) for core in range(one.physical_cores)] == [
        (core,) for core in range(one.physical_cores)
    ]


def test_pairs_of_lnc_2() -> None:
    machine, one = chip("trn2.48xlarge", 0)
    assert [sysfs_cores(machine, one, core, lnc=2) for core in range(4)] == [(4, 5), (6, 7), (2, 3), (0, 1)]


@pytest.mark.parametrize("name", ["trn2.48xlarge", "trn2u.48xlarge", "trn3.48xlarge", "trn2.3xlarge"])
@pytest.mark.parametrize("node", [-1, 0, 1, 2, 3])
def test_every_order_is_complete_and_keeps_pairs(name: str, node: int) -> None:
    for index in range(SIZES[name].chips):
        machine, one = chip(name, index)
        cores = order(machine, one, ultraserver_node=node)
        assert cores is not None
        assert sorted(cores) == list(range(8))
        pairs = [sysfs_cores(machine, one, core, lnc=2, ultraserver_node=node) for core in range(4)]
        assert sorted(pair for pair in pairs if pair) == [(0, 1), (2, 3), (4, 5), (6, 7)]


@pytest.mark.parametrize(
    ("name", "core", "lnc"),
    [
        ("trn1.2xlarge", 0, 2),
        ("trn1.2xlarge", 2, 1),
        ("trn2.3xlarge", 4, 2),
        ("trn2.3xlarge", -1, 1),
        ("trn2.3xlarge", 0, 4),
    ],
)
def test_bc052_a_core_or_an_lnc_that_the_chip_does_not_have(name: str, core: int, lnc: int) -> None:
    with pytest.raises(ValueError, match=f"LNC {lnc}"):
        sysfs_cores(*chip(name), core, lnc=lnc)


def test_the_largest_lnc_of_a_chip_follows_its_cores_not_its_device() -> None:
    """An inf2 chip says NDv3, but its cores are NCv2."""
    assert {name.partition(".")[0]: chip(name)[1].max_lnc for name in SIZES} == {
        **dict.fromkeys(("inf1", "inf2", "trn1", "trn1n"), 1),
        **dict.fromkeys(("trn2", "trn2u", "trn2en"), 2),
        **dict.fromkeys(("trn3", "trn3e", "trn3p", "trn3pd98", "trn3s-es", "trn3sn", "trn3sn-es"), 2),
    }
