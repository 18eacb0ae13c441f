"""Which classes there are and what they select."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.inventory.classes import chip_class, core_class, device_classes, sized_classes
from dra_driver.inventory.devices import DeviceType, devices
from dra_driver.inventory.offer import Offer
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal

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
    wires = [dict(device.wire) for device in Offer().of(devices(machine(**hardware), lnc=lnc))]
    counts = {name: sum(selected(text, wire) for wire in wires) for name, text in expressions().items()}
    assert {name: count for name, count in counts.items() if count} == names


@pytest.mark.parametrize("size", SIZES)
def test_per_size_each_class_selects_devices_of_one_type(size: str) -> None:
    """With core runs too, at each LNC."""
    machine = nominal(SIZES[size])
    for lnc in range(1, machine.chips[0].max_lnc + 1):
        wires = [dict(device.wire) for device in devices(machine, lnc=lnc)]
        for each in sized_classes():
            assert len({wire["attributes"]["type"]["string"] for wire in wires if each.selects(wire)}) <= 1


def test_a_machine_that_contradicts_itself_has_one_type_a_class_too(machine: MakeMachine) -> None:
    """A chip of four cores among chips of eight: runs of four would be of the same class."""
    alike = machine(chips=2, cores=8)
    odd = Machine((*alike.chips, *machine(chips=[2], cores=4).chips), alike.instance_type, alike.driver_version)
    kinds = {device.cores: device.type for device in devices(odd) if device.type is not DeviceType.CORE}
    assert kinds == {2: DeviceType.CORE_RUN, 4: DeviceType.CHIP, 8: DeviceType.CHIP}
    assert DeviceType.CORE_RUN in {device.type for device in devices(alike) if device.cores == 4}


def test_what_selects_in_python_selects_in_cel() -> None:
    """The table of `coreslice classes` and the cluster read the same values."""
    for size in ("inf1.6xlarge", "trn2.48xlarge"):
        wires = [dict(device.wire) for device in devices(nominal(SIZES[size]))]
        for each in sized_classes():
            text = each.expression(DRIVER)
            assert [each.selects(wire) for wire in wires] == [selected(text, wire) for wire in wires]


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
