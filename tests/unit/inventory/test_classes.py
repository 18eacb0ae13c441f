"""Which classes there are and what they select."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.inventory.classes import chip_class, core_class, device_classes
from dra_driver.inventory.devices import devices
from dra_driver.neuron.machine import Machine

MakeMachine = Callable[..., Machine]
Wire = dict[str, Any]

DRIVER = "neuron.coreslice.dev"


def expressions(**options: Any) -> dict[str, str]:
    return {
        item["metadata"]["name"]: item["spec"]["selectors"][0]["cel"]["expression"]
        for item in device_classes(DRIVER, **options)
    }


def selected(expression: str, device: Wire, driver: str = DRIVER) -> bool:
    """A reading of the few forms that the selectors take; anything else fails the test."""
    guard, _, test = expression.partition(" && ")
    assert guard == f'device.driver == "{DRIVER}"'
    prefix = f'device.attributes["{DRIVER}"].?'
    assert test.startswith(prefix)
    key, _, rest = test.removeprefix(prefix).partition(".orValue(")
    default, _, wanted = rest.partition(") == ")
    entry = device["attributes"].get(key, {})
    [value] = [f'"{text}"' if kind == "string" else str(text) for kind, text in entry.items()] or [default]
    return driver == DRIVER and value == wanted


def test_names_by_size() -> None:
    assert list(expressions(cores=(1, 2, 8), chips=(1, 4))) == [
        *("neuron-core", "neuron-cores-2", "neuron-cores-8"),
        *("neuron-chip", "neuron-chips-4"),
    ]
    assert (core_class(1), core_class(2)) == ("neuron-core", "neuron-cores-2")
    assert (chip_class(1), chip_class(2)) == ("neuron-chip", "neuron-chips-2")


def test_all_sizes_by_default() -> None:
    found = list(expressions())
    assert len(found) == len(set(found)) == 17
    assert {"neuron-cores-128", "neuron-chips-6", "neuron-chips-16"} <= set(found)


def test_expressions_are_guarded_by_the_driver_and_read_optionally() -> None:
    found = expressions()
    assert found["neuron-core"] == (
        'device.driver == "neuron.coreslice.dev" && '
        'device.attributes["neuron.coreslice.dev"].?type.orValue("") == "core"'
    )
    for expression in found.values():
        assert expression.startswith(f'device.driver == "{DRIVER}" && ')
        assert expression.count("device.attributes") == expression.count(".?") == expression.count("orValue(") == 1


@pytest.mark.parametrize(
    ("hardware", "lnc", "names"),
    [
        ({}, 1, {"neuron-core": 2, "neuron-cores-2": 1, "neuron-chip": 1}),
        (
            {"chips": 2, "cores": 8, "architecture": "NCv3"},
            2,
            {"neuron-core": 8, "neuron-cores-4": 2, "neuron-chip": 2},
        ),
        (
            {"chips": 2, "cores": 8, "architecture": "NCv3"},
            1,
            {"neuron-core": 16, "neuron-cores-8": 2, "neuron-chip": 2},
        ),
    ],
)
def test_what_a_class_selects(machine: MakeMachine, hardware: Wire, lnc: int, names: dict[str, int]) -> None:
    wires = [dict(device.wire) for device in devices(machine(**hardware), lnc=lnc)]
    counts = {name: sum(selected(text, wire) for wire in wires) for name, text in expressions().items()}
    assert {name: count for name, count in counts.items() if count} == names


def test_a_class_selects_devices_of_one_type(machine: MakeMachine) -> None:
    for hardware in ({}, {"cores": 8, "architecture": "NCv3"}):
        wires = [dict(device.wire) for device in devices(machine(chips=16, **hardware))]
        for text in expressions().values():
            assert len({wire["attributes"]["type"]["string"] for wire in wires if selected(text, wire)}) <= 1


def test_another_driver_or_a_device_without_the_attribute_is_no_match(machine: MakeMachine) -> None:
    wire = dict(devices(machine())[0].wire)
    for text in expressions().values():
        assert not selected(text, wire, driver="gpu.example.com")
        assert not selected(text, {"attributes": {}})


def test_extended_names_are_off_unless_asked_for() -> None:
    assert all("extendedResourceName" not in item["spec"] for item in device_classes(DRIVER))
    asked = {"neuron-core": "aws.amazon.com/neuroncore", "neuron-chip": "aws.amazon.com/neuron"}
    found = {
        item["metadata"]["name"]: item["spec"].get("extendedResourceName")
        for item in device_classes(DRIVER, extended_names=asked)
    }
    assert {name: text for name, text in found.items() if text} == asked
