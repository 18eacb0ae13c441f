"""Faults that were seen in the field, put to the scheduler's allocator and the API's validation.

Each test is named after its case: what the hardware or somebody else does there, and that pods get what they should.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from testbed.allocator import Allocator
from testbed.published import DRIVER, Published, Shape, Wire, claim, classes, exactly, shapes
from testbed.validation import MINORS, verdicts

from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import devices, totals
from dra_driver.inventory.lint import server as gate
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal
from tests.oracle.conftest import EVERY_MINOR, Real

pytestmark = pytest.mark.go

ODD_VERSIONS = ["2.29.0.0", "2.29", "2.x.8072.0", "garbage", "x" * 70, ""]
NEWEST = MINORS[-1]


def publish(machine: Machine, *, node: str = "node-a", minor: int = NEWEST) -> Published:
    """The slices of a machine as a node of that name publishes them."""
    listed, counted = devices(machine), totals(machine)
    return Published(build(Pool(DRIVER, node), listed, counted, layout=Layout(minor), generation=1), node)


def ask(allocator: Allocator, slices: Sequence[Wire], node: str, *requests: Any, **more: Any) -> list[str] | None:
    """The devices of one claim on a node, in order; None where it doesn't fit. An error would stop all pods."""
    allocator.world(slices=slices, classes=[*classes(), {"metadata": {"name": "nic"}, "spec": NIC}], node=node)
    verdict = allocator.ask([claim("c", *requests, **more)])
    assert not verdict.error
    return None if verdict.devices is None else verdict.devices[0]


def selecting(name: str, expression: str) -> Wire:
    """One core whose attributes fulfil it; `a` is our domain."""
    text = f'device.driver == "{DRIVER}" && {expression.replace("a.", f"device.attributes[{DRIVER!r}].")}'
    return exactly(name, "neuron-core", selectors=[{"cel": {"expression": text.replace("'", '"')}}])


@pytest.mark.parametrize("minor", EVERY_MINOR)
@pytest.mark.parametrize("version", ODD_VERSIONS)
def test_bc014_version_is_not_semver(minor: int, version: str) -> None:
    """The server stores the slices as they are sent, with everything that all devices have."""
    made = publish(replace(nominal(SIZES["trn2.48xlarge"]), driver_version=version), minor=minor)
    for verdict in verdicts(minor, made.slices, {gate.PARTITIONABLE: True}):
        assert verdict.accepted, verdict.faults
        assert not verdict.unknown | verdict.dropped
    for device in made.devices.values():
        assert device.wire["attributes"].keys() >= COMMON
        expected = "2.29.0+0" if version == "2.29.0.0" else "0.0.0-unknown"
        assert device.wire["attributes"]["driverVersion"] == {"version": expected}


def test_bc015_empty_driver_version(real: Real) -> None:
    """The node serves who asks for no version, fits no minimum, and stops nobody on the other nodes."""
    whole = nominal(SIZES["trn1.2xlarge"])
    silent = publish(replace(whole, driver_version=""), node="silent")
    telling = publish(replace(whole, driver_version="2.30.2.0"), node="telling")
    fleet = [*silent.slices, *telling.slices]
    minimum = selecting("r", 'a.driverVersion.isGreaterThan(semver("2.26.5"))')
    assert ask(real(), fleet, "silent", "neuron-core") == ["core-0-0"]
    assert ask(real(), fleet, "silent", minimum) is None
    assert ask(real(), fleet, "telling", minimum) == ["core-0-0"]


def test_bc019_selector_and_match_attribute_read_the_same_index(real: Real) -> None:
    """An attribute that were published both bare and with our domain might answer the two differently."""
    node = Shape("trn1.32xlarge").publish()
    together = [{"matchAttribute": f"{DRIVER}/index"}]

    def two(one: int, other: int) -> list[str] | None:
        requests = [selecting("one", f"a.index == {one}"), selecting("other", f"a.index == {other}")]
        return ask(real(), node.slices, node.node, *requests, constraints=together)

    assert two(3, 3) == ["core-3-0", "core-3-1"]
    assert two(3, 4) is None
    assert ask(real(), node.slices, node.node, exactly("r", "neuron-core", count=3), constraints=together) is None


# Groups and packing

SIXTEEN = [shape for shape in shapes() if SIZES[shape.size].chips == 16 and SIZES[shape.size].fabric == "torus"]


@pytest.mark.parametrize("shape", SIXTEEN, ids=str)
def test_bc079_single_chips_leave_connected_ones_free(shape: Shape, real: Real) -> None:
    """Four pods of one chip, then one of eight and one of four: all of sixteen chips are in use, in whole groups."""
    node, allocator = shape.publish(), real()
    allocator.world(slices=node.slices, classes=classes(), node=node.node)
    held: list[str] = []
    for name in [*["neuron-chip"] * 4, "neuron-chips-8", "neuron-chips-4"]:
        verdict = allocator.ask([claim("c", name)], held=node.held(held))
        assert verdict.devices, f"{name} beside {held}"
        held += verdict.devices[0]
    assert sorted(chip for name in held for chip in node.devices[name].chips) == list(range(16))


@pytest.mark.parametrize("shape", SIXTEEN, ids=str)
def test_bc079_single_cores_leave_connected_chips_free(shape: Shape, real: Real) -> None:
    """As many pods of one core as four chips have: they don't touch a fifth."""
    node, allocator = shape.publish(), real()
    allocator.world(slices=node.slices, classes=classes(), node=node.node)
    per_chip = len(node.promised["neuron-core"]) // 16
    held: list[str] = []
    for name in [*["neuron-core"] * per_chip * 4, "neuron-chips-8", "neuron-chips-4"]:
        verdict = allocator.ask([claim("c", name)], held=node.held(held))
        assert verdict.devices, f"{name} beside {len(held)} devices"
        held += verdict.devices[0]
    assert {len(node.devices[name].chips) for name in held} == {1, 4, 8}


def test_bc079_scattered_chips_do_not_pass_for_a_group(real: Real) -> None:
    """Four free chips, none connected as a group: a claim for four waits, one for a chip doesn't."""
    node, allocator = Shape("trn1.32xlarge").publish(), real()
    allocator.world(slices=node.slices, classes=classes(), node=node.node)
    held = [f"chip-{index}" for index in range(16) if index % 4 != index // 4]
    assert allocator.ask([claim("c", "neuron-chips-4")], held=node.held(held)).devices is None
    assert allocator.ask([claim("c", "neuron-chip")], held=node.held(held)).devices == [["chip-15"]]


# A network adapter beside its chips

GROUP = "resource.aws.com/devicegroup4_id"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NIC: Wire = {"selectors": [{"cel": {"expression": 'device.driver == "nic.example.com"'}}]}


def adapter(node: str, **attributes: Wire) -> Wire:
    """A slice of somebody else's driver with one adapter."""
    pool = {"name": f"nic-{node}", "generation": 1, "resourceSliceCount": 1}
    device = {"name": "nic", "attributes": {GROUP if key == "group" else PCIE_ROOT: v for key, v in attributes.items()}}
    spec = {"driver": "nic.example.com", "nodeName": node, "pool": pool, "devices": [device]}
    return {"metadata": {"name": f"nic-{node}"}, "spec": spec}


@pytest.mark.parametrize(
    ("told", "chips"),
    [
        ({"group": {"string": "671622785349fddf"}}, "chips-4-4"),
        ({"group": {"string": "b3d6ce1919d29f8f"}}, "chips-12-4"),
        ({"group": {"string": "0000000000000000"}}, None),
        ({"group": {"int": 1}}, None),
        ({}, None),
    ],
    ids=["second row", "last row", "another fabric", "another type", "not told"],
)
def test_bc080_four_chips_and_the_adapter_beside_them(real: Real, told: dict[str, Wire], chips: str | None) -> None:
    """By AWS's own name and type; what doesn't match is a pod that waits, not a pod beside the wrong chips."""
    node = Shape("trn2.48xlarge", 2).publish()
    slices = [adapter(node.node, **told), *node.slices]
    asked = [exactly("chips", "neuron-chips-4"), exactly("nic", "nic")]
    found = ask(real(), slices, node.node, *asked, constraints=[{"matchAttribute": GROUP}])
    assert found == (None if chips is None else [f"{chips}-lnc2", "nic"])
    assert ask(real(), slices, node.node, *asked) == ["chips-12-4-lnc2", "nic"], "without the constraint all fit"


def test_bc080_a_larger_group_is_in_no_smaller_ones_group(real: Real) -> None:
    """Eight chips span two groups of four: they have neither's id."""
    node = Shape("trn2.48xlarge", 2).publish()
    slices = [adapter(node.node, group={"string": "671622785349fddf"}), *node.slices]
    asked = [exactly("chips", "neuron-chips-8"), exactly("nic", "nic")]
    assert ask(real(), slices, node.node, *asked, constraints=[{"matchAttribute": GROUP}]) is None


@pytest.mark.parametrize("size", ["trn2.48xlarge", "inf2.48xlarge"])
def test_bc080_pcie_root_is_not_guessed(real: Real, size: str) -> None:
    """sysfs has no PCI address of a chip, so there is none to match by."""
    node = Shape(size).publish()
    assert not any(PCIE_ROOT in device.wire["attributes"] for device in node.devices.values())
    slices = [adapter(node.node, root={"string": "pci0000:00"}), *node.slices]
    asked = [exactly("chips", "neuron-chips-4"), exactly("nic", "nic")]
    assert ask(real(), slices, node.node, *asked, constraints=[{"matchAttribute": PCIE_ROOT}]) is None
    assert ask(real(), slices, node.node, *asked) is not None
