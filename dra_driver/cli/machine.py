"""`coreslice machine`: the sizes that are known, what this node has, simulated machines, and recording a real one."""

import argparse
import dataclasses
import json
import os
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.neuron import lnc
from dra_driver.neuron.catalogue import GIB, SIZES, Size, lookup
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.neuron.topology import NOWHERE, device_groups, groups, position, topology
from dra_driver.simulator import faults
from dra_driver.simulator.faults import FAULTS
from dra_driver.simulator.machines import MachinePaths, make_machine
from dra_driver.simulator.record import record

GOOD, FAILED, WRONG_USE = 0, 1, 2


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `machine` with `list`, `show`, `make` and `record`."""
    parser = subparsers.add_parser("machine", help="Neuron hardware: known sizes, this node, simulated trees")
    parser.set_defaults(func=run)
    verbs = parser.add_subparsers(dest="verb", required=True)
    known = verbs.add_parser("list", help="the EC2 sizes that are known")
    show = verbs.add_parser("show", help="what this node has, and what can't be used")
    add_roots(show)
    for verb in (known, show):
        verb.add_argument("-o", "--output", choices=("text", "json"), default="text")
    make = verbs.add_parser(
        "make",
        help="make a sysfs, proc and dev tree of a size",
        epilog=_faults(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    make.add_argument("size", metavar="SIZE", help=f"one of: {', '.join(SIZES)}")
    make.add_argument("dir", metavar="DIR", type=Path, help="where sys, proc and dev are made")
    make.add_argument("--without-stats", action="store_true", help="leave the counters out: a tenth of the files")
    make.add_argument("--fault", action="append", default=[], metavar="F", help="break it; may be given more than once")
    keep = verbs.add_parser("record", help="copy this machine's tree to a folder, serial numbers replaced")
    keep.add_argument("dir", metavar="DIR", type=Path, help="where sys, proc and dev are made")
    add_roots(keep)


def add_roots(parser: argparse.ArgumentParser) -> None:
    """Where the hardware is read from; /sys and /proc of this machine unless told otherwise."""
    parser.add_argument("--sysfs-root", type=Path, metavar="DIR", default=Path("/sys"))
    parser.add_argument("--proc-root", type=Path, metavar="DIR", default=Path("/proc"))


def _faults() -> str:
    names = [(f"{name}={fault.value}" if fault.value else name, fault.text) for name, fault in FAULTS.items()]
    return "\n".join(["faults:", *(f"  {name:<22} {text}" for name, text in names)])


def run(args: argparse.Namespace) -> int:
    """Runs the verb: 0 good, 1 no usable chip or an unreadable tree, 2 wrong use."""
    try:
        match args.verb:
            case "list":
                return _list(args.output)
            case "show":
                return _show(read_machine(sysfs_root=args.sysfs_root, proc_root=args.proc_root), args.output)
            case "make":
                return _make(args)
            case _:
                return _record(args)
    except OSError as error:
        print(f"coreslice machine {args.verb}: can't read or write {error.filename}: {error.strerror}", file=sys.stderr)
        return FAILED
    except CoresliceError as error:
        print(f"coreslice machine {args.verb}: {error}", file=sys.stderr)
        return FAILED


def _list(output: str) -> int:
    if output == "json":
        print(json.dumps([_size(size) for size in SIZES.values()], indent=2))
        return GOOD
    row = "{:<18} {:>5} {:>10} {:>11}  {:<12} {:<9} {}"
    print(row.format("SIZE", "CHIPS", "CORES/CHIP", "MEMORY/CHIP", "FAMILY", "LINKS", "UNCONFIRMED"))
    for size in SIZES.values():
        memory = f"{size.memory // GIB} GiB"
        about = (size.name, size.chips, size.physical_cores, memory, size.family, size.fabric)
        print(row.format(*about, size.unconfirmed or "-"))
    return GOOD


def _size(size: Size) -> dict[str, Any]:
    return {
        "name": size.name,
        "chips": size.chips,
        "physicalCoresPerChip": size.physical_cores,
        "memoryPerChip": size.memory,
        "family": size.family,
        "coreArchitecture": size.core_architecture,
        "fabric": size.fabric,
        "links": size.links,
        "unconfirmed": size.unconfirmed,
    }


def _show(machine: Machine, output: str) -> int:
    print(json.dumps(machine_json(machine), indent=2) if output == "json" else _text(machine))
    return GOOD if machine.chips else FAILED


def machine_json(machine: Machine) -> dict[str, Any]:
    """A machine as plain data."""
    return {
        "instanceType": machine.instance_type,
        "driverVersion": machine.driver_version,
        "knownSize": lookup(machine.instance_type) is not None,
        "fabric": topology(machine).fabric,
        "defaultLogicalNeuronCore": lnc.default(machine),
        "chips": [_chip(machine, chip) for chip in machine.chips],
        "groups": groups(machine),
        "problems": [dataclasses.asdict(problem) for problem in machine.problems],
    }


def _chip(machine: Machine, chip: Chip) -> dict[str, Any]:
    row, column = position(machine, chip.index)
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
        "row": row,
        "column": column,
        "deviceGroups": device_groups(machine, chip.index),
    }


def _text(machine: Machine) -> str:
    size, version = machine.instance_type or "unknown size", machine.driver_version or "unknown"
    lines = [f"{size}, kernel driver {version}, {len(machine.chips)} usable Neuron chips"]
    if machine.instance_type and lookup(machine.instance_type) is None:
        lines.append(f"size {size} isn't known here: it is served as sysfs tells it, without the memory of a chip")
    row = "{:<5} {:<12} {:>5} {:>4}  {:<6} {:<12} {:<17} {:<7} {}"
    if machine.chips:
        lines.append(row.format("CHIP", "NODE", "CORES", "LNC", "ARCH", "FAMILY", "SERIAL", "ROW,COL", "LINKS"))
    for chip in machine.chips:
        about = (chip.physical_cores, chip.max_lnc, chip.core_architecture, chip.family or "-", chip.serial or "-")
        lines.append(row.format(chip.index, f"c {chip.major}:{chip.minor}", *about, *_place(machine, chip)))
    lines += _groups(machine)
    lines += [f"problem: {problem.path} {problem.reason}" for problem in machine.problems]
    return "\n".join(lines)


def _place(machine: Machine, chip: Chip) -> tuple[str, str]:
    place = position(machine, chip.index)
    links = ",".join(map(str, sorted(chip.neighbours))) or "-"
    return "-" if place == NOWHERE else "{},{}".format(*place), links


def _groups(machine: Machine) -> list[str]:
    """A line a size: `groups of 4: 0-3, 4-7`."""
    lines = [f"links: {topology(machine).fabric}"] if len(machine.chips) > 1 else []
    for count, of_count in groupby(groups(machine), key=len):
        spans = ", ".join(f"{group[0]}-{group[-1]}" for group in of_count)
        lines.append(f"groups of {count}: {spans}")
    return lines


def _make(args: argparse.Namespace) -> int:
    if lookup(args.size) is None:
        print(f"size {args.size!r} isn't known; known are: {', '.join(SIZES)}", file=sys.stderr)
        return WRONG_USE
    paths = make_machine(args.size, args.dir, stats=not args.without_stats)
    faults.apply(paths, args.fault)
    print(f"{args.size} made. See it with:")
    _hint(paths)
    return GOOD


def _record(args: argparse.Namespace) -> int:
    recording = record(args.dir, sysfs_root=args.sysfs_root, proc_root=args.proc_root)
    for text in recording.unreadable:
        print(f"coreslice machine record: not recorded: {text}", file=sys.stderr)
    print(f"{recording.files} files recorded, serial numbers replaced. See them with:")
    _hint(recording.paths)
    return FAILED if recording.unreadable else GOOD


def _hint(paths: MachinePaths) -> None:
    print(f"  coreslice machine show --sysfs-root {os.fspath(paths.sysfs)} --proc-root {os.fspath(paths.proc)}")
