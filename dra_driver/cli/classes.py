"""`coreslice classes`: what each DeviceClass gives on each size, from the classes and devices that are published."""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.cli.columns import aligned
from dra_driver.inventory.classes import SizedClass, sized_classes
from dra_driver.inventory.devices import Device, DeviceType, devices
from dra_driver.inventory.offer import Offer
from dra_driver.neuron.catalogue import SIZES, Size, lookup
from dra_driver.settings import OFFER, add_arguments, load_offer
from dra_driver.simulator.nominal import nominal

GOOD, FAILED, WRONG_USE = 0, 1, 2
LETTERS = {DeviceType.CORE: "c", DeviceType.CORE_RUN: "r", DeviceType.CHIP: "C", DeviceType.CHIP_GROUP: "G"}
LEGEND = "How many devices of a class there are: c core, r core run, C chip, G chip group, - none."


@dataclass(frozen=True)
class Given:
    """What a class selects on a machine: devices of one type and size, none where there are none."""

    name: str
    devices: tuple[Device, ...]

    @property
    def cell(self) -> str:
        """The number and the type, in one word."""
        return f"{len(self.devices)}{LETTERS[self.devices[0].type]}" if self.devices else "-"


@dataclass(frozen=True)
class Row:
    """A size at an LNC."""

    size: Size
    lnc: int
    given: tuple[Given, ...]  # by class


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `classes`."""
    parser = subparsers.add_parser("classes", help="what each DeviceClass gives on which size")
    parser.set_defaults(func=run)
    parser.add_argument("--machine", metavar="SIZE", help="one size instead of all that are known")
    parser.add_argument("--lnc", type=int, choices=(1, 2), help="one logical NeuronCore configuration instead of all")
    add_arguments(parser, OFFER)
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")


def run(args: argparse.Namespace) -> int:
    """Prints the table: 0 good, 1 where the size has no such LNC, 2 wrong use."""
    size = lookup(args.machine) if args.machine else None
    if args.machine and size is None:
        print(f"coreslice classes: size {args.machine!r} isn't known; known are: {', '.join(SIZES)}", file=sys.stderr)
        return WRONG_USE
    rows = table([size] if size else SIZES.values(), load_offer(args, os.environ), lnc=args.lnc)
    if not rows:
        print(f"coreslice classes: a {args.machine} has no LNC {args.lnc}", file=sys.stderr)
        return FAILED
    if args.output == "json":
        print(json.dumps([entry for row in rows for entry in _json(row)], indent=2))
    else:
        print("\n\n".join(map(_long, rows)) if size else _matrix(rows))
    return GOOD


def table(sizes: Iterable[Size], offer: Offer, *, lnc: int | None = None) -> list[Row]:
    """One row for each size at each LNC that it has, or at that one."""
    classes = sized_classes()
    return [
        Row(size, each, _given(classes, offer.of(devices(machine, lnc=each))))
        for size in sizes
        for machine in [nominal(size)]
        for each in range(1, machine.chips[0].max_lnc + 1)
        if lnc in (None, each)
    ]


def _given(classes: Sequence[SizedClass], offered: Sequence[Device]) -> tuple[Given, ...]:
    return tuple(Given(each.name, tuple(device for device in offered if each.selects(device.wire))) for each in classes)


def _matrix(rows: Sequence[Row]) -> str:
    names = [given.name.removeprefix("neuron-") for given in rows[0].given]
    lines = [["SIZE", "LNC", *names]]
    lines += [[row.size.name, str(row.lnc), *(given.cell for given in row.given)] for row in rows]
    return "\n".join([*aligned(lines), LEGEND])


def _long(row: Row) -> str:
    lines = [["CLASS", "GIVES", "CORES", "CHIPS", "DEVICES"]]
    for given in row.given:
        if given.devices:
            one = given.devices[0]
            lines.append([given.name, one.type.value, *map(str, (one.cores, len(one.chips), len(given.devices)))])
    empty = ", ".join(given.name for given in row.given if not given.devices)
    heading = f"{row.size.name}, LNC {row.lnc}: {row.size.chips} chips of {row.size.physical_cores} physical cores"
    return "\n".join([heading, *aligned(lines), *([f"Nothing for: {empty}"] if empty else [])])


def _json(row: Row) -> list[dict[str, Any]]:
    return [
        {
            "class": given.name,
            "instanceType": row.size.name,
            "logicalNeuronCore": row.lnc,
            "type": given.devices[0].type.value if given.devices else None,
            "cores": given.devices[0].cores if given.devices else 0,
            "chips": len(given.devices[0].chips) if given.devices else 0,
            "devices": len(given.devices),
        }
        for given in row.given
    ]
