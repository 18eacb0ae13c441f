"""`coreslice slices`: the ResourceSlices that a node would publish, by the code that publishes them."""

import argparse
import json
import os
import re
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dra_driver.cli import lint, sizes
from dra_driver.errors import CoresliceError
from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import DeviceType, devices, totals
from dra_driver.inventory.lint.repair import repair
from dra_driver.inventory.lint.server import PARTITIONABLE
from dra_driver.inventory.offer import Offer
from dra_driver.inventory.slices import Layout, NodeOwner, Pool, build, notes
from dra_driver.inventory.summary import SCAN_COST, Summary, summarise
from dra_driver.neuron import lnc
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.settings import DRIVER_NAME, OFFER, Granularity, add_arguments, load_offer
from dra_driver.simulator.nominal import nominal

GOOD, FAILED, WRONG_USE = 0, 1, 2
OLDEST_MINOR = 34

Wire = dict[str, Any]

_NUMBERLIKE = re.compile(r"[0-9+.-]")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `slices`."""
    parser = subparsers.add_parser("slices", help="print the ResourceSlices that a node would publish")
    parser.set_defaults(func=run)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--machine", metavar="SIZE", help=f"of a machine of that size: {', '.join(SIZES)}")
    where.add_argument("--all-sizes", action="store_true", help="in numbers, of every size at each LNC (table or json)")
    where.add_argument("--sysfs-root", type=Path, metavar="DIR", help="of the hardware there (default /sys)")
    parser.add_argument("--proc-root", type=Path, metavar="DIR", help="its /proc (default /proc)")
    parser.add_argument("--node-name", metavar="N", default=os.environ.get("NODE_NAME") or socket.gethostname().lower())
    parser.add_argument("--node-uid", metavar="U", help="the Node's UID, for the owner reference")
    parser.add_argument("--driver-name", metavar="D", default=DRIVER_NAME)
    parser.add_argument(
        "--lnc", type=int, choices=(1, 2), help="logical NeuronCore configuration (default: the runtime's)"
    )
    parser.add_argument("--server-version", type=_minor, metavar="1.M", default="1.37", help="1.34 or later")
    parser.add_argument(
        "--without-counters", action="store_true", help="as for an API server that drops shared counters"
    )
    parser.add_argument("--granularity-without-counters", type=Granularity, default="chip", help="chip or core")
    add_arguments(parser, OFFER)
    lint.add_arguments(parser)
    parser.add_argument("-o", "--output", choices=("yaml", "json", "table"), help="default json; of all sizes table")


def run(args: argparse.Namespace) -> int:
    """Prints a v1 List or a summary: 0 good, 1 nothing to publish or an unreadable tree, 2 wrong use."""
    if args.lint is not None:
        return lint.run(args)
    if fault := _misused(args):
        print(f"coreslice slices: {fault}", file=sys.stderr)
        return WRONG_USE
    offer = load_offer(args, os.environ)
    if args.all_sizes:
        return _all_sizes(args, offer)
    try:
        machine = _machine(args)
        at = args.lnc or lnc.default(machine)
        found, told = _slices(args, machine, at, offer)
        text = (
            _table(args, machine, at, summarise(found))
            if args.output == "table"
            else _render(_list(found), args.output)
        )
    except CoresliceError as error:
        print(f"coreslice slices: {error}", file=sys.stderr)
        return FAILED
    print(text, end="")
    for line in (*(f"problem: {each.path} {each.reason}" for each in machine.problems), *told):
        print(line, file=sys.stderr)
    return _verdict(machine, found)


def _misused(args: argparse.Namespace) -> str:
    if args.proc_root is not None and (args.machine is not None or args.all_sizes):
        return "--proc-root belongs to --sysfs-root; a size needs none"
    if args.machine is not None and args.machine not in SIZES:
        return f"size {args.machine!r} isn't known; known are: {', '.join(SIZES)}"
    return "all sizes are a table or json" if args.all_sizes and args.output == "yaml" else ""


def _all_sizes(args: argparse.Namespace, offer: Offer) -> int:
    def published(machine: Machine, at: int) -> Summary:
        return summarise(_slices(args, machine, at, offer)[0])

    found = list(sizes.rows(published, lnc=args.lnc))
    print(_render([row.json for row in found], "json") if args.output == "json" else sizes.table(found), end="")
    return GOOD


def _machine(args: argparse.Namespace) -> Machine:
    if args.machine is None:
        sysfs, proc = args.sysfs_root or Path("/sys"), args.proc_root or Path("/proc")
        return read_machine(sysfs_root=sysfs, proc_root=proc)
    return nominal(SIZES[args.machine])


def _minor(text: str) -> int:
    match = re.fullmatch(r"1\.([0-9]+)", text)
    if match is None or int(match[1]) < OLDEST_MINOR:
        raise argparse.ArgumentTypeError(f"{text!r} is no version from 1.{OLDEST_MINOR} on")
    return int(match[1])


def _slices(args: argparse.Namespace, machine: Machine, at: int, offer: Offer) -> tuple[list[Wire], Sequence[str]]:
    """As they are sent at that LNC, and what was left out of them or should be known."""
    granularity = DeviceType(args.granularity_without_counters.value)
    layout = Layout(args.server_version, not args.without_counters, granularity)
    found = devices(machine, lnc=at)
    built = build(
        Pool(args.driver_name, args.node_name),
        found,
        totals(machine),
        layout=layout,
        generation=1,
        offer=offer,
        owner=NodeOwner(args.node_name, args.node_uid) if args.node_uid else None,
    )
    repaired, faults = repair(built, layout.minor, features={PARTITIONABLE: layout.counters}, common=COMMON)
    texts = [note.text for note in notes(found, layout=layout, offer=offer)]
    return repaired, [*texts, *map(str, faults)]


def _list(found: Sequence[Wire]) -> Wire:
    return {"apiVersion": "v1", "kind": "List", "items": found}


def _table(args: argparse.Namespace, machine: Machine, at: int, summary: Summary) -> str:
    """The layout in numbers, and what it costs the scheduler."""
    named = f" at LNC {at}" if machine.max_lnc > 1 else ""
    cost = f"about {summary.scan * 1e3:.1f} ms ({SCAN_COST * 1e6:.0f} µs a device)"
    lines = [
        f"{machine.instance_type or 'unknown size'}{named}, Kubernetes 1.{args.server_version}: {_layout(args)}",
        *(f"{count:>6}  {kind}" for kind, count in summary.by_type.items()),
        f"{summary.devices:>6}  devices in all",
        f"{summary.slices:>6}  slices",
        f"{summary.counters:>6}  counters in {summary.counter_sets} sets",
        f"A request that finds nothing here costs the scheduler {cost}.",
    ]
    return "\n".join(lines) + "\n"


def _layout(args: argparse.Namespace) -> str:
    if args.without_counters:
        return "without counters, one granularity"
    combined = Layout(args.server_version).combined
    return "counters and devices in one slice" if combined else "counters in slices of their own"


def _render(value: Wire | list[Wire], output: str | None) -> str:
    if output != "yaml":
        return json.dumps(value, indent=2) + "\n"
    try:
        import yaml  # noqa: PLC0415 - an extra that the daemon's image doesn't have
    except ImportError as error:
        text = "-o yaml needs PyYAML: install coreslice[demo], or take -o json"
        raise CoresliceError(text) from error

    class Dumper(yaml.SafeDumper):
        """Quotes what starts like a number: to kubectl a bare serial `1234567e12345678` is one."""

        def ignore_aliases(self, data: Any) -> bool:
            """Objects stand alone: what they share is written in each."""
            del data
            return True

    def quote(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, "'" if _NUMBERLIKE.match(text) else None)

    Dumper.add_representer(str, quote)
    rendered: str = yaml.dump(value, Dumper=Dumper, sort_keys=False)
    return rendered


def _verdict(machine: Machine, found: Sequence[Wire]) -> int:
    if found:
        return GOOD
    why = "the offer leaves nothing" if machine.chips else "no usable Neuron chip"
    print(f"nothing to publish: {why}", file=sys.stderr)
    return FAILED
