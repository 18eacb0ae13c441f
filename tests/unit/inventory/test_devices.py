"""Names, attributes and shapes of devices.

Long, since each type of device has its table of attributes here.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dra_driver.inventory.devices import (
    Device,
    DeviceType,
    InventoryError,
    devices,
    from_wire,
    physical_cores,
    publishing_order,
    shape,
    totals,
)
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal

MakeMachine = Callable[..., Machine]

CORE_KEYS = {
    "type",
    "index",
    "chips",
    "cores",
    "firstCore",
    "logicalNeuronCore",
    "maxLogicalNeuronCore",
    "family",
    "instanceType",
    "driverVersion",
}
CHIP_KEYS = CORE_KEYS | {
    "physicalCores",
    "serialNumber",
    "coreArchitecture",
    "driverVersionText",
    "row",
    "column",
    "deviceId",
}
TYPES = {"type": "string", "family": "string", "instanceType": "string", "driverVersion": "version"}
TYPES |= {"serialNumber": "string", "coreArchitecture": "string", "driverVersionText": "string"}


def value(device: Device, key: str) -> Any:
    [content] = device.wire["attributes"][key].values()
    return content


def named(found: tuple[Device, ...], name: str) -> Device:
    device = shape(name, found)
    assert device is not None
    return device


def test_one_chip_of_two_cores(machine: MakeMachine) -> None:
    found = devices(machine())
    assert [device.name for device in found] == ["chip-0", "core-0-0", "core-0-1"]
    chip, _, core = found
    assert (core.type, core.chips, core.first_core, core.cores, core.lnc) == (DeviceType.CORE, (0,), 1, 1, 1)
    assert (chip.type, chip.chips, chip.first_core, chip.cores, chip.lnc) == (DeviceType.CHIP, (0,), 0, 2, 1)


def test_chips_descend_and_cores_ascend(machine: MakeMachine) -> None:
    names = [device.name for device in devices(machine(chips=(0, 2, 10)))]
    assert names == [
        *("chip-10", "chip-2", "chip-0"),
        *("core-0-0", "core-0-1", "core-2-0", "core-2-1", "core-10-0", "core-10-1"),
    ]


def test_names_say_the_lnc_on_hardware_that_knows_two(machine: MakeMachine) -> None:
    hardware = machine(cores=8, architecture="NCv3")
    one, two = devices(hardware, lnc=1), devices(hardware, lnc=2)
    assert one[0].name == "chip-0-lnc1"
    assert [device.name for device in two] == [
        "chip-0-lnc2",
        *("cores-0-0-2-lnc2", "cores-0-2-2-lnc2"),
        *("core-0-0-lnc2", "core-0-1-lnc2", "core-0-2-lnc2", "core-0-3-lnc2"),
    ]
    assert {device.name for device in one}.isdisjoint(device.name for device in two)


def test_lnc_2_means_nothing_to_hardware_without_it(machine: MakeMachine) -> None:
    assert devices(machine(), lnc=2) == devices(machine(), lnc=1)


@pytest.mark.parametrize("lnc", [0, 3, -1])
def test_other_lncs_do_not_exist(machine: MakeMachine, lnc: int) -> None:
    with pytest.raises(InventoryError, match=f"{lnc} doesn't exist: it is 1 or 2"):
        devices(machine(), lnc=lnc)


def test_no_chips_no_devices(machine: MakeMachine) -> None:
    assert devices(machine(chips=0)) == ()


@pytest.mark.parametrize(
    "hardware",
    [{}, {"cores": 8, "architecture": "NCv3"}, {"instance_type": "", "driver_version": ""}],
)
def test_every_device_has_all_its_attributes_of_one_type(machine: MakeMachine, hardware: dict[str, Any]) -> None:
    for device in devices(machine(chips=3, **hardware)):
        told = device.wire["attributes"]
        assert set(told) == (CORE_KEYS if device.part else CHIP_KEYS)
        assert {key: list(entry) for key, entry in told.items()} == {key: [TYPES.get(key, "int")] for key in told}


def test_what_a_core_says(machine: MakeMachine) -> None:
    core = named(devices(machine(chips=4, cores=8, architecture="NCv3"), lnc=2), "core-3-1-lnc2")
    told = {key: value(core, key) for key in sorted(core.wire["attributes"])}
    assert told == {
        "chips": 1,
        "cores": 1,
        "driverVersion": "2.30.2+0",
        "family": "Trainium2",
        "firstCore": 1,
        "index": 3,
        "instanceType": "trn1.2xlarge",
        "logicalNeuronCore": 2,
        "maxLogicalNeuronCore": 2,
        "type": "core",
    }


def test_what_a_chip_says(machine: MakeMachine) -> None:
    chip = named(devices(machine(chips=4, cores=8, architecture="NCv3"), lnc=2), "chip-3-lnc2")
    told = {key: value(chip, key) for key in chip.wire["attributes"]}
    assert (told["type"], told["index"], told["cores"], told["firstCore"]) == ("chip", 3, 4, 0)
    assert (told["physicalCores"], told["deviceId"], told["serialNumber"]) == (8, 3, "9ff5434815c8bd80")
    assert (told["coreArchitecture"], told["row"], told["column"]) == ("NCv3", -1, -1)


@pytest.mark.parametrize("version", ["2.29", "2.x.8072.0", "garbage", "x" * 70, ""])
def test_bc014_version_is_not_semver(machine: MakeMachine, version: str) -> None:
    for device in devices(machine(driver_version=version)):
        assert value(device, "driverVersion") == "0.0.0-unknown"
    chip = devices(machine(driver_version=version))[0]
    assert value(chip, "driverVersionText") == version[:64]


@pytest.mark.parametrize(
    ("text", "cut"),
    [("x" * 64, "x" * 64), ("x" * 65, "x" * 64), ("é" * 40, "é" * 32), ("x" + "é" * 40, "x" + "é" * 31)],
)
def test_strings_are_cut_to_64_bytes_between_characters(machine: MakeMachine, text: str, cut: str) -> None:
    for device in devices(machine(instance_type=text)):
        assert value(device, "instanceType") == cut


def test_memory_is_shared_out_to_cores(machine: MakeMachine) -> None:
    chip, core, _ = devices(machine())
    assert core.wire["capacity"] == {"memory": {"value": "16Gi"}}
    assert chip.wire["capacity"] == {"memory": {"value": "32Gi"}}


@pytest.mark.parametrize(("cores", "share"), [(1, "32Gi"), (8, "4Gi"), (3, "11184810Ki")])
def test_shares_are_whole_and_canonical(machine: MakeMachine, cores: int, share: str) -> None:
    assert devices(machine(cores=cores))[-1].wire["capacity"] == {"memory": {"value": share}}


@pytest.mark.parametrize(
    "hardware", [{"instance_type": "trn9.xlarge"}, {"instance_type": ""}, {"architecture": "NCv3"}]
)
def test_memory_is_left_out_where_the_size_is_unknown_or_contradicts(
    machine: MakeMachine, hardware: dict[str, Any]
) -> None:
    assert all("capacity" not in device.wire for device in devices(machine(**hardware)))


def test_what_devices_draw_on_the_counters(machine: MakeMachine) -> None:
    found = devices(machine(chips=2, cores=8, architecture="NCv3"), lnc=2)
    core, chip = named(found, "core-1-2-lnc2"), named(found, "chip-1-lnc2")
    assert core.wire["consumesCounters"] == [{"counterSet": "chips", "counters": {"chip-1": {"value": "2"}}}]
    assert chip.wire["consumesCounters"] == [{"counterSet": "chips", "counters": {"chip-1": {"value": "8"}}}]


def test_totals_are_physical_cores(machine: MakeMachine) -> None:
    assert totals(machine(chips=(1, 4), cores=8, architecture="NCv3")) == {1: 8, 4: 8}


def test_a_device_is_found_by_its_name(machine: MakeMachine) -> None:
    found = devices(machine(chips=2))
    assert shape("core-1-0", found) is found[4]
    assert shape("core-2-0", found) is None
    assert shape("core-1-0-lnc2", found) is None


def test_a_held_device_is_found_though_the_hardware_is_gone(machine: MakeMachine) -> None:
    before = devices(machine(chips=2))
    held = {device.name: device.wire for device in before if device.chips == (1,)}
    assert shape("core-1-0", devices(machine()), held) == before[4]


def test_what_is_held_counts_as_it_was_published(machine: MakeMachine) -> None:
    before = devices(machine(cores=2))[0]
    now = devices(machine(cores=4))
    assert named(now, "chip-0").cores == 4
    again = shape("chip-0", now, {"chip-0": before.wire})
    assert again is not None
    assert again.cores == 2


@pytest.mark.parametrize("lnc", [1, 2])
def test_devices_come_back_from_their_published_form(machine: MakeMachine, lnc: int) -> None:
    for device in devices(machine(chips=3, cores=8, architecture="NCv3"), lnc=lnc):
        assert from_wire(device.wire) == device


@pytest.mark.parametrize("key", ["type", "index", "chips", "cores", "firstCore", "logicalNeuronCore"])
@pytest.mark.parametrize("broken", [None, {}, {"bool": True}, {"int": "1"}, {"string": "rack"}])
def test_a_published_form_that_says_too_little(machine: MakeMachine, key: str, broken: Any) -> None:
    wire = dict(devices(machine())[-1].wire)
    told = {name: entry for name, entry in wire["attributes"].items() if name != key}
    wire["attributes"] = told if broken is None else told | {key: broken}
    with pytest.raises(InventoryError, match="device 'core-0-1' doesn't say what it covers"):
        from_wire(wire)


@pytest.mark.parametrize("change", [{"cores": 0}, {"chips": 0}, {"index": -1}, {"chips": 4}, {"logicalNeuronCore": 0}])
def test_a_published_form_that_covers_nothing(machine: MakeMachine, change: dict[str, int]) -> None:
    wire = dict(devices(machine())[-1].wire)
    wire["attributes"] = wire["attributes"] | {key: {"int": number} for key, number in change.items()}
    with pytest.raises(InventoryError, match="covers nothing"):
        from_wire(wire)


@pytest.mark.parametrize("wire", [{}, {"name": "x"}, {"name": "x", "attributes": None}])
def test_what_is_no_device_of_ours(wire: dict[str, Any]) -> None:
    with pytest.raises(InventoryError, match="doesn't say what it covers"):
        from_wire(wire)


def test_overlap_is_seen_at_whatever_lnc(machine: MakeMachine) -> None:
    hardware = machine(chips=2, cores=8, architecture="NCv3")
    one, two = devices(hardware, lnc=1), devices(hardware, lnc=2)
    pair = physical_cores(named(two, "core-1-1-lnc2"))
    assert pair == {(1, 2), (1, 3)}
    assert pair & physical_cores(named(one, "core-1-3-lnc1"))
    assert not pair & physical_cores(named(one, "core-1-1-lnc1"))
    assert pair < physical_cores(named(one, "chip-1-lnc1"))
    assert not pair & physical_cores(named(one, "chip-0-lnc1"))


# Core runs


@pytest.mark.parametrize(
    ("cores", "runs"),
    [
        (1, []),
        (2, []),
        (3, ["cores-0-0-2"]),
        (4, ["cores-0-0-2", "cores-0-2-2"]),
        (8, ["cores-0-0-4", "cores-0-4-4", *(f"cores-0-{first}-2" for first in (0, 2, 4, 6))]),
    ],
)
def test_runs_are_aligned_powers_of_two_below_the_chip(machine: MakeMachine, cores: int, runs: list[str]) -> None:
    found = [device for device in devices(machine(cores=cores)) if device.type is DeviceType.CORE_RUN]
    assert [device.name for device in found] == runs
    for device in found:
        assert device.name == f"cores-0-{device.first_core}-{device.cores}"
        assert device.first_core % device.cores == 0


def test_what_a_run_says(machine: MakeMachine) -> None:
    hardware = machine(chips=4, cores=8, architecture="NCv3", instance_type="trn2.48xlarge")
    run = named(devices(hardware, lnc=2), "cores-3-2-2-lnc2")
    assert set(run.wire["attributes"]) == CORE_KEYS
    assert (value(run, "type"), value(run, "firstCore"), value(run, "cores"), value(run, "chips")) == (
        *("core-run", 2, 2, 1),
    )
    assert run.wire["capacity"] == {"memory": {"value": "48Gi"}}  # four of eight physical cores, of 96 GiB
    assert physical_cores(run) == {(3, core) for core in (4, 5, 6, 7)}


# Chip groups


def sized(size: str, lnc: int = 1) -> tuple[Device, ...]:
    return devices(nominal(SIZES[size]), lnc=lnc)


def groups(found: Sequence[Device]) -> list[str]:
    return [device.name for device in found if device.type is DeviceType.CHIP_GROUP]


def test_groups_of_a_torus_large_before_small_and_descending() -> None:
    assert groups(sized("trn1.32xlarge")) == [
        *("chips-0-16", "chips-8-8", "chips-0-8"),
        *(f"chips-{first}-4" for first in (12, 8, 4, 0)),
        *(f"chips-{first}-2" for first in range(14, -1, -2)),
    ]


def test_groups_of_a_line_are_windows() -> None:
    assert groups(sized("inf2.24xlarge")) == [
        *("chips-0-6", "chips-2-4", "chips-1-4", "chips-0-4"),
        *(f"chips-{first}-2" for first in (4, 3, 2, 1, 0)),
    ]


def test_what_a_group_says() -> None:
    group = named(sized("trn2.48xlarge", lnc=2), "chips-4-4-lnc2")
    told = {key: value(group, key) for key in sorted(group.wire["attributes"])}
    assert told == {
        "chips": 4,
        "column": 0,
        "coreArchitecture": "NCv3",
        "cores": 16,
        "deviceId": 4,
        "driverVersion": "2.30.2+0",
        "driverVersionText": "2.30.2.0",
        "family": "Trainium2",
        "firstCore": 0,
        "index": 4,
        "instanceType": "trn2.48xlarge",
        "logicalNeuronCore": 2,
        "maxLogicalNeuronCore": 2,
        "physicalCores": 32,
        "resource.aws.com/devicegroup16_id": "821d14afaf11327d",
        "resource.aws.com/devicegroup4_id": "671622785349fddf",
        "resource.aws.com/devicegroup8_id": "3593812b8066a078",
        "resource.kubernetes.io/numaNode": 0,
        "row": 1,
        "serialNumber": "9ff5434815c8bd84",
        "type": "chip-group",
    }
    assert group.wire["capacity"] == {"memory": {"value": "384Gi"}}
    assert physical_cores(group) == {(chip, core) for chip in (4, 5, 6, 7) for core in range(8)}


def test_a_group_over_two_numa_nodes_or_device_groups_names_none() -> None:
    found = sized("trn2.48xlarge")
    chip, pair, half = (named(found, f"{name}-lnc1") for name in ("chip-6", "chips-6-2", "chips-0-8"))
    assert {value(chip, f"resource.aws.com/devicegroup{size}_id") for size in (1, 4, 8, 16)}.issuperset(
        {"671622785349fddf", "3593812b8066a078", "821d14afaf11327d"}
    )
    assert "resource.aws.com/devicegroup1_id" not in pair.wire["attributes"]
    assert "resource.kubernetes.io/numaNode" in pair.wire["attributes"]
    assert "resource.kubernetes.io/numaNode" not in half.wire["attributes"]
    assert "resource.aws.com/devicegroup4_id" not in half.wire["attributes"]


@pytest.mark.parametrize("size", SIZES)
def test_on_every_size_a_type_has_one_set_of_attributes(size: str) -> None:
    """But for what a group has to have in common: a selector on it must read it as optional."""
    for lnc in (1, 2):
        for device in sized(size, lnc):
            told = set(device.wire["attributes"])
            extra = {key for key in told if "/" in key}
            assert told - extra == (CORE_KEYS if device.part else CHIP_KEYS)
            assert not (device.part and extra)
            assert "capacity" in device.wire


@pytest.mark.parametrize("size", SIZES)
def test_on_every_size_names_and_physical_cores_add_up(size: str) -> None:
    machine = nominal(SIZES[size])
    for lnc in range(1, machine.chips[0].max_lnc + 1):
        found = devices(machine, lnc=lnc)
        assert len({device.name for device in found}) == len(found)
        assert all(device.name.endswith(f"-lnc{lnc}") is (machine.chips[0].max_lnc > 1) for device in found)
        for device in found:
            assert device.chips == tuple(range(device.chips[0], device.chips[0] + len(device.chips)))
            assert len(physical_cores(device)) == device.cores * lnc
            assert from_wire(device.wire) == device
            if not device.part:
                assert value(device, "physicalCores") == device.cores * lnc


def linked(machine: Machine, chips: Sequence[int]) -> bool:
    """Whether links that both ends report lead from the first of these chips to every other, through them alone."""
    of = {index: chip.neighbours for index in chips if (chip := machine.chip(index))}
    reached, queue = {chips[0]}, [chips[0]]
    while queue:
        here = queue.pop()
        for other in of[here] & of.keys() - reached:
            if here in of[other]:
                reached.add(other)
                queue.append(other)
    return reached == set(chips)


@pytest.mark.parametrize("size", SIZES)
def test_bc072_what_is_offered_on_every_size_can_hold_a_collective(size: str) -> None:
    """A device is a collective's whole world: neighbours in number, linked; on Trainium aligned blocks only."""
    machine, fabric = nominal(SIZES[size]), SIZES[size].fabric
    for device in sized(size, 2):
        assert device.chips == tuple(range(device.chips[0], device.chips[-1] + 1))
        assert fabric == "switched" or linked(machine, device.chips)
        if fabric in ("torus", "switched"):
            assert len(device.chips) in (1, 2, 4, 8, 16)
            assert device.chips[0] % len(device.chips) == 0


def test_bc077_no_device_has_a_number_of_cores_that_trainium_can_not_use() -> None:
    """24 cores of a trn1.32xlarge are 12 chips, of which no aligned block consists; on a ring they are a window."""
    counts = {size: {device.cores for device in sized(size, 1)} for size in ("trn1.32xlarge", "inf2.48xlarge")}
    assert counts["trn1.32xlarge"] == {1, 2, 4, 8, 16, 32}
    assert 24 in counts["inf2.48xlarge"]


def test_the_order_is_one_key(machine: MakeMachine) -> None:
    """Of what there are fewest first; chips and groups descending, cores and runs ascending."""
    found = devices(machine(chips=2, cores=4, architecture="NCv1"))
    mixed = random.Random(1).sample(found, len(found))
    assert mixed != list(found)
    assert sorted(mixed, key=publishing_order) == list(found)
    kinds = [device.type for device in found]
    assert kinds == sorted(kinds, key=[DeviceType.CHIP, DeviceType.CORE_RUN, DeviceType.CORE].index)
