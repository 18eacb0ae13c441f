"""What is built, read by the official client's typed models: a misspelt field would vanish there."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes.client import ApiClient

from dra_driver.inventory.classes import device_classes
from dra_driver.inventory.devices import DeviceType, devices, totals
from dra_driver.inventory.slices import Layout, NodeOwner, Pool, build
from dra_driver.neuron.machine import Machine

Wire = dict[str, Any]
MakeMachine = Callable[..., Machine]


def through(kind: str, value: Wire) -> Any:
    """As the typed model reads and writes it again."""
    client = ApiClient()
    typed = client.deserialize(json.dumps(value), kind, "application/json")
    return client.sanitize_for_serialization(typed)


def test_the_oracle_sees_a_misspelt_field() -> None:
    wrong = {"metadata": {"name": "a"}, "spec": {"selector": []}}
    assert through("V1DeviceClass", wrong) != wrong


@pytest.mark.parametrize(
    "layout",
    [Layout(37), Layout(37, counters=False), Layout(37, counters=False, granularity=DeviceType.CORE)],
)
@pytest.mark.parametrize("hardware", [{}, {"chips": 16, "cores": 8, "architecture": "NCv3"}])
@pytest.mark.parametrize("lnc", [1, 2])
def test_slices(machine: MakeMachine, layout: Layout, hardware: Wire, lnc: int) -> None:
    found = machine(**hardware)
    listed = devices(found, lnc=lnc)
    owner = NodeOwner("node-a", "5c9f")
    pool = Pool("neuron.coreslice.dev", "node-a")
    for item in build(pool, listed, totals(found), layout=layout, generation=3, owner=owner):
        assert through("V1ResourceSlice", item) == item


def test_classes() -> None:
    for item in device_classes("neuron.coreslice.dev", extended_names={"neuron-core": "aws.amazon.com/neuroncore"}):
        assert through("V1DeviceClass", item) == item
