"""What the table of classes promises, every size at every LNC, is what the scheduler's allocator gives."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from testbed.allocator import Allocator
from testbed.published import DRIVER, Published, Shape, claim, classes, shapes, uncounted

from dra_driver.inventory.classes import sized_classes
from dra_driver.inventory.devices import DeviceType
from dra_driver.inventory.offer import Offer, Runs

pytestmark = pytest.mark.go

# Elsewhere runs are offered anyway.
WITH_RUNS = [Shape(each.size, each.lnc, Offer(runs=Runs.ON), "-runs") for each in shapes() if each.knows_lnc]
EVERY = [*shapes(), *WITH_RUNS]
CLASS_NAMES = [each.name for each in sized_classes()]


@pytest.fixture(params=EVERY, ids=str)
def node(request: pytest.FixtureRequest) -> Published:
    shape: Shape = request.param
    return shape.publish()


@pytest.fixture
def allocator(real: Callable[..., Allocator], node: Published) -> Allocator:
    found = real()
    found.world(slices=node.slices, classes=classes(), node=node.node)
    return found


def one_by_one(allocator: Allocator, node: Published, name: str) -> list[str]:
    """The devices that pods of one class get, one after the other, until no more fits."""
    taken: list[str] = []
    while True:
        verdict = allocator.ask([claim("c", name)], held=node.held(taken))
        assert not verdict.error
        if verdict.devices is None:
            return taken
        taken += verdict.devices[0]


def test_every_class_of_the_table_gives_its_first_device_on_an_empty_node(
    allocator: Allocator, node: Published
) -> None:
    assert node.promised, "a size with nothing to give is no size"
    for name in CLASS_NAMES:
        verdict = allocator.ask([claim("c", name)])
        assert not verdict.error
        assert verdict.devices == ([[node.promised[name][0]]] if name in node.promised else None), name


def test_each_class_selects_exactly_what_the_table_says(allocator: Allocator, node: Published) -> None:
    """The selectors in CEL and the table's own test of a device are two texts of one meaning."""
    allocator.world(slices=uncounted(node.slices), classes=classes(), node=node.node)
    selected = {name: one_by_one(allocator, node, name) for name in CLASS_NAMES}
    assert {name: found for name, found in selected.items() if found} == node.promised


def test_as_many_fit_as_the_hardware_has_and_none_overlap(allocator: Allocator, node: Published) -> None:
    for name, selected in node.promised.items():
        given = one_by_one(allocator, node, name)
        assert given == node.fitting(selected), name
        assert not any(node.cores(one) & node.cores(other) for one, other in combinations(given, 2))


def test_cores_and_chips_fill_the_whole_machine(allocator: Allocator, node: Published) -> None:
    """Counted from the hardware, not from what is listed."""
    chips = {chip for device in node.devices.values() for chip in device.chips}
    whole = {core for device in node.devices.values() for core in node.cores(device.name)}
    lnc = next(iter(node.devices.values())).lnc
    assert len(one_by_one(allocator, node, "neuron-chip")) == len(chips)
    assert len(one_by_one(allocator, node, "neuron-core")) * lnc == len(whole)


def test_each_class_selects_devices_of_one_type(node: Published) -> None:
    for name, selected in node.promised.items():
        assert len({node.devices[each].type for each in selected}) == 1, name


def foreign(node: str, driver: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """A slice of somebody else's driver, which comes before ours in the allocator's order."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "d", "attributes": attributes}]}
    return {"metadata": {"name": f"{driver}-{node}"}, "spec": spec}


def test_drivers_without_our_attributes_stop_nobody_and_are_never_chosen(allocator: Allocator, node: Published) -> None:
    """A selector that fails on one device stops the pod on every node."""
    alike = {"type": {"string": "core"}, "cores": {"int": 2}, "chips": {"int": 2}}
    others = [foreign(node.node, "a.example.com", {}), foreign(node.node, "b.example.com", alike)]
    allocator.world(slices=[*others, *node.slices], classes=classes(), node=node.node)
    for name in CLASS_NAMES:
        verdict = allocator.ask([claim("c", name)])
        assert not verdict.error
        assert verdict.devices == ([[node.promised[name][0]]] if name in node.promised else None), name


def test_devices_of_an_older_driver_of_ours_stop_nobody(real: Callable[..., Allocator]) -> None:
    """It may lack an attribute that classes read."""
    older = foreign("old", DRIVER, {"type": {"string": "core"}})
    real().world(slices=[older], classes=classes(), node="old")
    given = {name: real().ask([claim("c", name)]) for name in CLASS_NAMES}
    assert not any(verdict.error for verdict in given.values())
    assert [name for name, verdict in given.items() if verdict.devices] == ["neuron-core"]


@pytest.mark.parametrize("shape", shapes(), ids=str)
def test_a_machine_in_use_by_one_core_gives_the_rest(shape: Shape, real: Callable[..., Allocator]) -> None:
    node, allocator = shape.publish(), real()
    allocator.world(slices=node.slices, classes=classes(), node=node.node)
    [first] = (allocator.ask([claim("c", "neuron-core")]).devices or [[]])[0]
    chips = [each.name for each in node.devices.values() if each.type is DeviceType.CHIP]
    free = [name for name in chips if not node.cores(name) & node.cores(first)]
    taken = [first]
    while (verdict := allocator.ask([claim("c", "neuron-chip")], held=node.held(taken))).devices:
        taken += verdict.devices[0]
    assert taken == [first, *free]
