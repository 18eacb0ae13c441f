"""The README's table of attributes is what devices of every size have, and its selector is one that can't fail."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import Device, DeviceType, devices
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.simulator.nominal import nominal

README = Path(__file__).parents[3] / "README.md"
TYPES = [kind.value for kind in DeviceType]
_ROW = re.compile(r"^\| `([\w./]+)` \| (string|int|version|capacity) \| (.+)$", re.MULTILINE)


def machines() -> Iterator[Machine]:
    """Of every size, and of one that isn't known."""
    yield from map(nominal, SIZES.values())
    yield replace(nominal(SIZES["trn1.32xlarge"]), instance_type="")
    yield replace(nominal(SIZES["inf1.xlarge"]), instance_type="")


def every_device() -> Iterator[Device]:
    for machine in machines():
        for lnc in range(1, machine.chips[0].max_lnc + 1):
            yield from devices(machine, lnc=lnc)


def told(device: Device) -> set[tuple[str, str]]:
    """Names with their types."""
    attributes = {(name, kind) for name, value in device.wire["attributes"].items() for kind in value}
    return attributes | {(name, "capacity") for name in device.wire.get("capacity", {})}


@pytest.fixture(scope="module")
def found() -> dict[tuple[str, str], list[str]]:
    """For each name and type, how many devices of each type have it, in the README's words."""
    of_type: dict[str, list[set[tuple[str, str]]]] = {kind: [] for kind in TYPES}
    for device in every_device():
        of_type[device.type.value].append(told(device))
    names = set().union(*(each for sets in of_type.values() for each in sets))
    return {name: [_share([name in each for each in of_type[kind]]) for kind in TYPES] for name in names}


def _share(has: list[bool]) -> str:
    return "all" if all(has) else "some" if any(has) else "-"


@pytest.fixture(scope="module")
def listed() -> dict[tuple[str, str], list[str]]:
    """The same, as the table has it."""
    rows = {(name, kind): rest.split(" | ") for name, kind, rest in _ROW.findall(README.read_text())}
    assert all(len(cells) == len(TYPES) + 1 for cells in rows.values()), "each row has a meaning, and no bar in it"
    return {name: cells[: len(TYPES)] for name, cells in rows.items()}


Table = dict[tuple[str, str], list[str]]


def test_the_table_is_what_devices_have(found: Table, listed: Table) -> None:
    assert listed == found


def test_the_heading_names_the_types_in_their_order() -> None:
    assert f"| name | type | {' | '.join(TYPES)} | meaning |" in README.read_text()


def test_what_is_common_is_on_all_and_nothing_else_is(found: Table) -> None:
    assert {name for (name, _), cells in found.items() if set(cells) == {"all"}} == COMMON


def test_the_example_reads_something_that_some_types_lack(listed: Table) -> None:
    (key, default) = re.findall(
        r"^device\.driver == .*\.\?(\w+)\.orValue\((-?\d+)\)", README.read_text(), re.MULTILINE
    )[0]
    assert "-" in listed[key, "int"]
    values = {device.wire["attributes"].get(key, {"int": int(default)})["int"] for device in every_device()}
    assert {0, -1} < values, "the default is no row"
