"""The product's own classes and slices through the simulated allocator: which device each class gives."""

from pathlib import Path
from typing import Any

import pytest

from dra_driver.inventory.classes import device_classes
from dra_driver.inventory.devices import devices, totals
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.allocator import Unallocatable, allocate, results
from dra_driver.simulator.machines import make_machine
from dra_driver.simulator.selectors import compile_selector

DRIVER = "neuron.coreslice.dev"
Wire = dict[str, Any]


@pytest.fixture
def published(tmp_path: Path) -> list[Wire]:
    paths = make_machine("trn1.2xlarge", tmp_path)
    machine = read_machine(sysfs_root=paths.sysfs, proc_root=paths.proc)
    return build(
        Pool(DRIVER, "n1"), devices(machine), totals(machine), layout=Layout(37), generation=1, held={}, owner=None
    )


def given(published: list[Wire], name: str) -> list[str]:
    classes = {each["metadata"]["name"]: each for each in device_classes(DRIVER)}
    request = {"name": "r", "exactly": {"deviceClassName": name}}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    (allocation,) = allocate([claim], slices=published, classes=classes, in_use={}, node="n1")
    return [result["device"] for result in results({"status": {"allocation": allocation}})]


@pytest.mark.parametrize(
    ("name", "device"), [("neuron-core", "core-0-0"), ("neuron-cores-2", "chip-0"), ("neuron-chip", "chip-0")]
)
def test_each_class_gives_its_size(published: list[Wire], name: str, device: str) -> None:
    assert given(published, name) == [device]


@pytest.mark.parametrize("name", ["neuron-cores-4", "neuron-chips-2"])
def test_a_size_that_is_not_there_is_said_to_be_missing(published: list[Wire], name: str) -> None:
    with pytest.raises(Unallocatable, match=f"no device on this node matches class {name}"):
        given(published, name)


def test_a_foreign_device_is_harmless_to_every_class() -> None:
    """It has none of our attributes: a selector that read them would stop pods everywhere."""
    for each in device_classes(DRIVER):
        for selector in each["spec"]["selectors"]:
            compiled = compile_selector(selector["cel"]["expression"])
            assert not compiled.matches(
                "gpu.example.com", {"name": "gpu-0", "attributes": {"type": {"string": "core"}}}
            )
            assert not compiled.matches(DRIVER, {"name": "older-0", "attributes": {}})
