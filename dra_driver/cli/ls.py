"""`coreslice ls`: chips and cores of this machine, and who holds them by the driver's records.

Reads sysfs and the records, never the API, a device or another process; nothing is locked or changed. Cores are counted
as workloads count them, at the LNC in force. The JSON has the fields of `neuron-ls -j`, with host numbers, plus
`holders`: `neuron_processes` is always empty, since processes are not looked for, and `bdf` and `cpu_affinity` are,
since sysfs doesn't tell them.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver.claims.records import Damaged, HeldDevice, Record
from dra_driver.claims.store import load
from dra_driver.errors import CoresliceError
from dra_driver.inventory.devices import physical_cores
from dra_driver.lnc import seen
from dra_driver.neuron.catalogue import lookup
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.settings import DRIVER_NAME, LNC, add_arguments, load_some

STATE_DIR = Path("/var/lib/kubelet/plugins") / DRIVER_NAME / "claims"
GOOD, FAILED = 0, 1


class LsError(CoresliceError):
    """The records can't be looked at; the text names the folder."""


@dataclass(frozen=True)
class Holding:
    """One device of one prepared claim."""

    record: Record
    held: HeldDevice

    def cores(self, chip: int, lnc: int) -> set[int]:
        """Which cores of the chip it covers at that LNC; also of monitoring access, which keeps none from others."""
        return {core // lnc for owner, core in physical_cores(self.held.device) if owner == chip}

    @property
    def pods(self) -> list[dict[str, str]]:
        """The claim's pod, or for a user-made claim those it was reserved for when it was prepared."""
        pods = (self.record.owner,) if self.record.owner else self.record.users
        return [{"name": pod.name, "uid": pod.uid} for pod in pods]


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `ls`."""
    parser = subparsers.add_parser("ls", help="chips and cores of this machine, and who holds them")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    parser.add_argument("--sysfs-root", type=Path, metavar="DIR", default=Path("/sys"))
    parser.add_argument("--proc-root", type=Path, metavar="DIR", default=Path("/proc"))
    parser.add_argument("--state-dir", type=Path, metavar="DIR", default=STATE_DIR, help="where the records lie")
    add_arguments(parser, LNC)
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """0 good, 1 without a usable chip, with a record that can't be read, or with folders that can't."""
    machine = read_machine(sysfs_root=args.sysfs_root, proc_root=args.proc_root)
    records, damaged = _records(args.state_dir)
    holdings = [Holding(record, held) for record in records for held in record.devices]
    lnc = _lnc(args, machine, records)
    if args.output == "json":
        print(json.dumps([chip_json(machine, chip, lnc, holdings) for chip in machine.chips], indent=2))
    else:
        print("\n".join(text(machine, lnc, holdings)))
    _complain(machine, args.state_dir, damaged)
    return GOOD if machine.chips and not damaged else FAILED


def _lnc(args: argparse.Namespace, machine: Machine, records: Iterable[Record]) -> int:
    settings = load_some(args, os.environ, LNC)
    return seen(machine, args.state_dir, records, setting=settings.lnc, file=settings.lnc_file)


def _records(folder: Path) -> tuple[list[Record], list[Damaged]]:
    """All records. A folder that can't be read is an error: it must not look like one where nobody holds anything."""
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        return [], []
    except OSError as error:
        raise LsError(f"can't read the records in {folder}: {error.strerror}; run it as root") from error
    return load(folder)


def _complain(machine: Machine, folder: Path, damaged: Sequence[Damaged]) -> None:
    if not folder.exists():
        print(f"coreslice ls: no records at {folder}: no driver has run here yet", file=sys.stderr)
    for problem in machine.problems:
        print(f"coreslice ls: {problem.path} {problem.reason}", file=sys.stderr)
    for each in damaged:
        print(f"coreslice ls: record {each.path} can't be read: {each.reason}", file=sys.stderr)
    if not machine.chips:
        print("coreslice ls: no usable Neuron chip on this machine", file=sys.stderr)


def chip_json(machine: Machine, chip: Chip, lnc: int, holdings: Sequence[Holding]) -> dict[str, Any]:
    """One chip as neuron-ls prints it, and its holders."""
    size = lookup(machine.instance_type)
    known = size is not None and size.physical_cores == chip.physical_cores
    lnc = min(lnc, chip.max_lnc)
    config = {"logical_neuroncore_config": lnc} if chip.max_lnc > 1 else {}
    cores = chip.physical_cores // lnc
    return {
        "neuron_device": chip.index,
        "bdf": "",
        "cpu_affinity": "",
        "numa_node": "-1",
        "connected_to": sorted(chip.neighbours) or None,
        "nc_count": cores,
        **config,
        "memory_size": size.memory if size and known else None,
        "neuroncore_ids": [chip.index * cores + core for core in range(cores)],
        "neuron_processes": [],
        "instance_type": machine.instance_type,
        "serial_number": chip.serial,
        "holders": [_holder(each, chip, lnc) for each in holdings if each.cores(chip.index, lnc)],
    }


def _holder(holding: Holding, chip: Chip, lnc: int) -> dict[str, Any]:
    claim = holding.record.claim
    return {
        "claim": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
        "pods": holding.pods,
        "device": holding.held.device.name,
        "request": holding.held.request,
        "cores": sorted(holding.cores(chip.index, lnc)),
        "admin_access": holding.held.admin,
    }


def text(machine: Machine, lnc: int, holdings: Sequence[Holding]) -> list[str]:
    """A line for every core, and one for every device of a claim whose chip is gone."""
    size, version = machine.instance_type or "unknown size", machine.driver_version or "unknown"
    at = f", LNC {lnc}" if machine.max_lnc > 1 else ""
    lines = [f"{size}, kernel driver {version}, {len(machine.chips)} usable Neuron chips{at}"]
    row = "{:<5} {:<5} {:<17} {}"
    lines += [row.format("CHIP", "CORE", "SERIAL", "HELD BY")] if machine.chips else []
    for chip in machine.chips:
        own = min(lnc, chip.max_lnc)
        for core in range(chip.physical_cores // own):
            users = [_user(each) for each in holdings if core in each.cores(chip.index, own)]
            lines.append(row.format(chip.index, core, chip.serial or "-", "; ".join(users) or "-"))
    there = {chip.index for chip in machine.chips}
    gone = [each for each in holdings if not there.issuperset(each.held.device.chips)]
    return lines + [f"{each.held.device.name}, whose chip is gone: {_user(each)}" for each in gone]


def _user(holding: Holding) -> str:
    claim, names = holding.record.claim, [pod["name"] for pod in holding.pods]
    who = f"{claim.namespace}/{','.join(names)}" if names else "no pod"
    watching = ", monitoring only" if holding.held.admin else ""
    return f"{who} (claim {claim.namespace}/{claim.name}, device {holding.held.device.name}{watching})"
