"""`coreslice machine`: the sizes that are known, what this node has, and simulated machines."""

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.neuron.catalogue import GIB, SIZES, Size
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.machines import make_machine

GOOD, FAILED, WRONG_USE = 0, 1, 2


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `machine` with `list`, `show` and `make`."""
    parser = subparsers.add_parser("machine", help="Neuron hardware: known sizes, this node, simulated trees")
    parser.set_defaults(func=run)
    verbs = parser.add_subparsers(dest="verb", required=True)
    known = verbs.add_parser("list", help="the EC2 sizes that are known")
    show = verbs.add_parser("show", help="what this node has, and what can't be used")
    add_roots(show)
    for verb in (known, show):
        verb.add_argument("-o", "--output", choices=("text", "json"), default="text")
    make = verbs.add_parser("make", help="make a sysfs, proc and dev tree of a size")
    make.add_argument("size", metavar="SIZE", help=f"one of: {', '.join(SIZES)}")
    make.add_argument("dir", metavar="DIR", type=Path, help="where sys, proc and dev are made")


def add_roots(parser: argparse.ArgumentParser) -> None:
    """Where the hardware is read from; /sys and /proc of this machine unless told otherwise."""
    parser.add_argument("--sysfs-root", type=Path, metavar="DIR", default=Path("/sys"))
    parser.add_argument("--proc-root", type=Path, metavar="DIR", default=Path("/proc"))


def run(args: argparse.Namespace) -> int:
    """Runs the verb: 0 good, 1 no usable chip or an unreadable tree, 2 wrong use."""
    try:
        match args.verb:
            case "list":
                return _list(args.output)
            case "show":
                return _show(read_machine(sysfs_root=args.sysfs_root, proc_root=args.proc_root), args.output)
            case _:
                return _make(args.size, args.dir)
    except CoresliceError as error:
        print(f"coreslice machine {args.verb}: {error}", file=sys.stderr)
        return FAILED


def _list(output: str) -> int:
    if output == "json":
        print(json.dumps([_size(size) for size in SIZES.values()], indent=2))
        return GOOD
    row = "{:<16} {:>5} {:>10} {:>11}  {}"
    print(row.format("SIZE", "CHIPS", "CORES/CHIP", "MEMORY/CHIP", "FAMILY"))
    for size in SIZES.values():
        memory = f"{size.memory // GIB} GiB"
        print(row.format(size.name, size.chips, size.physical_cores, memory, size.family))
    return GOOD


def _size(size: Size) -> dict[str, Any]:
    return {
        "name": size.name,
        "chips": size.chips,
        "physicalCoresPerChip": size.physical_cores,
        "memoryPerChip": size.memory,
        "family": size.family,
        "coreArchitecture": size.core_architecture,
    }


def _show(machine: Machine, output: str) -> int:
    print(json.dumps(machine_json(machine), indent=2) if output == "json" else _text(machine))
    return GOOD if machine.chips else FAILED


def machine_json(machine: Machine) -> dict[str, Any]:
    """A machine as plain data."""
    return {
        "instanceType": machine.instance_type,
        "driverVersion": machine.driver_version,
        "chips": [_chip(chip) for chip in machine.chips],
        "problems": [dataclasses.asdict(problem) for problem in machine.problems],
    }


def _chip(chip: Chip) -> dict[str, Any]:
    return {
        "index": chip.index,
        "major": chip.major,
        "minor": chip.minor,
        "physicalCores": chip.physical_cores,
        "maxLogicalNeuronCore": chip.max_lnc,
        "neighbours": sorted(chip.neighbours),
        "serialNumber": chip.serial,
        "family": chip.family,
        "coreArchitecture": chip.core_architecture,
    }


def _text(machine: Machine) -> str:
    size, version = machine.instance_type or "unknown size", machine.driver_version or "unknown"
    lines = [f"{size}, kernel driver {version}, {len(machine.chips)} usable Neuron chips"]
    row = "{:<5} {:<12} {:>5}  {:<6} {:<12} {:<17} {}"
    if machine.chips:
        lines.append(row.format("CHIP", "NODE", "CORES", "ARCH", "FAMILY", "SERIAL", "LINKS"))
    for chip in machine.chips:
        node = f"c {chip.major}:{chip.minor}"
        links = ",".join(map(str, sorted(chip.neighbours))) or "-"
        about = (chip.physical_cores, chip.core_architecture, chip.family, chip.serial or "-")
        lines.append(row.format(chip.index, node, *about, links))
    lines += [f"problem: {problem.path} {problem.reason}" for problem in machine.problems]
    return "\n".join(lines)


def _make(size: str, folder: Path) -> int:
    if size not in SIZES:
        print(f"size {size!r} isn't known; known are: {', '.join(SIZES)}", file=sys.stderr)
        return WRONG_USE
    try:
        paths = make_machine(size, folder)
    except OSError as error:
        print(f"coreslice machine make: can't write {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILED
    print(f"{size} made. See it with:")
    print(f"  coreslice machine show --sysfs-root {os.fspath(paths.sysfs)} --proc-root {os.fspath(paths.proc)}")
    return GOOD
