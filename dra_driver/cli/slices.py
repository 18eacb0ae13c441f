"""`coreslice slices`: the ResourceSlices that a node would publish, by the code that publishes them."""

import argparse
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.inventory.devices import devices, totals
from dra_driver.inventory.slices import Layout, NodeOwner, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.settings import DRIVER_NAME
from dra_driver.simulator.machines import make_machine

GOOD, FAILED, WRONG_USE = 0, 1, 2

_NUMBERLIKE = re.compile(r"[0-9+.-]")


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds `slices`."""
    parser = subparsers.add_parser("slices", help="print the ResourceSlices that a node would publish")
    parser.set_defaults(func=run)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--machine", metavar="SIZE", help=f"of a simulated machine: {', '.join(SIZES)}")
    where.add_argument("--sysfs-root", type=Path, metavar="DIR", help="of the hardware there (default /sys)")
    parser.add_argument("--proc-root", type=Path, metavar="DIR", help="its /proc (default /proc)")
    parser.add_argument("--node-name", metavar="N", default=os.environ.get("NODE_NAME") or socket.gethostname().lower())
    parser.add_argument("--node-uid", metavar="U", help="the Node's UID, for the owner reference")
    parser.add_argument("--driver-name", metavar="D", default=DRIVER_NAME)
    parser.add_argument(
        "--without-counters", action="store_true", help="as for an API server that drops shared counters"
    )
    parser.add_argument("--kubernetes-minor", type=int, metavar="M", default=37, help="37 stands for 1.37")
    parser.add_argument("-o", "--output", choices=("yaml", "json"), default="json")


def run(args: argparse.Namespace) -> int:
    """Prints a v1 List: 0 good, 1 nothing to publish or an unreadable tree, 2 wrong use."""
    if args.machine is not None and (fault := _misused(args)):
        print(f"coreslice slices: {fault}", file=sys.stderr)
        return WRONG_USE
    try:
        machine = _machine(args)
        text = _render({"apiVersion": "v1", "kind": "List", "items": _slices(args, machine)}, args.output)
    except CoresliceError as error:
        print(f"coreslice slices: {error}", file=sys.stderr)
        return FAILED
    print(text, end="")
    for problem in machine.problems:
        print(f"problem: {problem.path} {problem.reason}", file=sys.stderr)
    return _verdict(machine)


def _misused(args: argparse.Namespace) -> str:
    if args.proc_root is not None:
        return "--proc-root belongs to --sysfs-root; a simulated machine brings its own"
    if args.machine not in SIZES:
        return f"size {args.machine!r} isn't known; known are: {', '.join(SIZES)}"
    return ""


def _machine(args: argparse.Namespace) -> Machine:
    if args.machine is None:
        sysfs, proc = args.sysfs_root or Path("/sys"), args.proc_root or Path("/proc")
        return read_machine(sysfs_root=sysfs, proc_root=proc)
    with tempfile.TemporaryDirectory(prefix="coreslice-") as folder:
        paths = make_machine(args.machine, Path(folder))
        return read_machine(sysfs_root=paths.sysfs, proc_root=paths.proc)


def _slices(args: argparse.Namespace, machine: Machine) -> Sequence[dict[str, Any]]:
    return build(
        Pool(args.driver_name, args.node_name),
        devices(machine),
        totals(machine),
        layout=Layout(args.kubernetes_minor, counters=not args.without_counters),
        generation=1,
        owner=NodeOwner(args.node_name, args.node_uid) if args.node_uid else None,
    )


def _render(value: dict[str, Any], output: str) -> str:
    if output == "json":
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


def _verdict(machine: Machine) -> int:
    if machine.chips:
        return GOOD
    print("nothing to publish: no usable Neuron chip", file=sys.stderr)
    return FAILED
