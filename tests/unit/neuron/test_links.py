"""Golden neighbour lists, in the order that the kernel driver prints them."""

import pytest

from dra_driver.neuron import links
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.links import Fabric, Links

TRN1 = (
    "0:12,3,4,1 | 1:13,0,5,2 | 2:14,1,6,3 | 3:15,2,7,0 | 4:0,7,8,5 | 5:1,4,9,6 | 6:2,5,10,7 | 7:3,6,11,4 | "
    "8:4,11,12,9 | 9:5,8,13,10 | 10:6,9,14,11 | 11:7,10,15,8 | "
    "12:8,15,0,13 | 13:9,12,1,14 | 14:10,13,2,15 | 15:11,14,3,12"
)
TRN2 = (
    "0:12,1,3,4 | 1:0,13,5,2 | 2:14,3,1,6 | 3:2,15,7,0 | 4:8,5,7,0 | 5:4,9,1,6 | 6:10,7,5,2 | 7:6,11,3,4 | "
    "8:4,9,11,12 | 9:8,5,13,10 | 10:6,11,9,14 | 11:10,7,15,8 | "
    "12:0,13,15,8 | 13:12,1,9,14 | 14:2,15,13,10 | 15:14,3,11,12"
)
GOLDEN = {
    "inf1.6xlarge": "0:1 | 1:2,0 | 2:3,1 | 3:2",
    "inf2.24xlarge": "0:1 | 1:0,2 | 2:1,3 | 3:2,4 | 4:3,5 | 5:4",
    "inf2.48xlarge": (
        "0:11,1 | 1:0,2 | 2:1,3 | 3:2,4 | 4:3,5 | 5:4,6 | 6:5,7 | 7:6,8 | 8:7,9 | 9:8,10 | 10:9,11 | 11:10,0"
    ),
    "trn1.32xlarge": TRN1,
    "trn1n.32xlarge": TRN1,
    "trn2.48xlarge": TRN2,
    "trn2u.48xlarge": TRN2,
    "trn3.48xlarge": TRN2,
    "trn3s-es.48xlarge": TRN2,
    "trn3e.24xlarge": "0: | 1: | 2: | 3:",
    "trn2.3xlarge": "0:",
}


def parse(text: str) -> Links:
    lists = (entry.split(":")[1] for entry in text.split("|"))
    return tuple(tuple(int(number) for number in each.split(",") if number.strip()) for each in lists)


@pytest.mark.parametrize("name", GOLDEN)
def test_neighbours(name: str) -> None:
    assert SIZES[name].links == parse(GOLDEN[name])


def test_trn2_prints_the_sets_of_trn1() -> None:
    assert [set(neighbours) for neighbours in links.trn2_torus()] == [set(each) for each in links.torus()]
    assert links.trn2_torus() != links.torus()


def test_a_ring_of_inferentia1_is_a_ring() -> None:
    assert [set(each) for each in SIZES["inf1.24xlarge"].links] == [set(each) for each in links.ring(16)]


def test_a_second_torus_stands_beside_the_first() -> None:
    """Neighbour ids of chips 16 to 31 have the bit 0x10."""
    for chip in range(links.BLOCK):
        assert links.torus_neighbours(chip | 0x10) == tuple(other | 0x10 for other in links.torus_neighbours(chip))


@pytest.mark.parametrize("name", SIZES)
def test_links_are_mutual_and_lead_to_other_chips_of_the_machine(name: str) -> None:
    size = SIZES[name]
    for chip, neighbours in enumerate(size.links):
        assert len(set(neighbours)) == len(neighbours)
        assert chip not in neighbours
        assert all(chip in size.links[other] for other in neighbours)


@pytest.mark.parametrize("name", SIZES)
def test_the_fabric_fits_the_links(name: str) -> None:
    size = SIZES[name]
    assert (size.fabric is Fabric.SINGLE) == (size.chips == 1)
    degrees = sorted({len(neighbours) for neighbours in size.links})
    expected = {Fabric.SINGLE: [0], Fabric.LINE: [1, 2], Fabric.RING: [2], Fabric.TORUS: [4], Fabric.UNKNOWN: [0]}
    assert degrees == expected.get(size.fabric, degrees)


@pytest.mark.parametrize("name", SIZES)
def test_a_list_fits_the_kernel_drivers_buffer(name: str) -> None:
    """It has twenty bytes and prints nothing where they don't do."""
    assert all(len(", ".join(map(str, neighbours))) < 20 for neighbours in SIZES[name].links)
