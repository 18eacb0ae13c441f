"""``python -m fleetbench [--short] [--smoke]``: what the real scheduler pays for each way to publish.

The full form runs every layout, workload and state in interleaved passes and takes as long as it takes; it wants
a machine that does nothing else. The short form runs one pass of the ways that are compared most.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from testbed import binaries

from fleetbench import fleet, report
from fleetbench.control_plane import control_plane
from fleetbench.fleet import LAYOUTS, MAIN, Variant
from fleetbench.load import STATES, WORKLOADS, Workload
from fleetbench.measure import Fleet, Result, medians, plain
from fleetbench.packing import Packing, churn

RESULTS = Path(__file__).parents[1] / "results"
WARM_UP = 20  # pods
KNOWN = {each.name: each for each in (*MAIN, *LAYOUTS)}
PACKED = ("everything", "all up", "cores first, all down")


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    nodes: int
    pods: int
    passes: int
    variants: Sequence[Variant]
    packing_nodes: int
    scorings: Sequence[str]

    def cells(self) -> Iterator[tuple[Variant, str, Workload]]:
        """One pass. Variants are outermost, since their slices are dear to write: passes interleave them."""
        for variant in self.variants:
            for state in STATES:
                for workload in WORKLOADS:
                    if workload.suits(variant):
                        yield variant, state, workload


FULL = Plan(100, 150, 3, (*MAIN, *LAYOUTS), 25, ("LeastAllocated", "MostAllocated"))
SHORT = Plan(100, 40, 1, MAIN, 5, ("LeastAllocated",))


def main() -> int:
    """Exit status 0; results in files."""
    parser = argparse.ArgumentParser(prog="fleetbench", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="one pass of what matters most, some minutes")
    parser.add_argument("--smoke", action="store_true", help="say in the results that the machine was busy")
    parser.add_argument("--nodes", type=int, help="so many instead of 100")
    parser.add_argument("--only", metavar="VARIANT", action="append", help="these variants only; may be repeated")
    args = parser.parse_args()
    plan = SHORT if args.short else FULL
    if args.nodes:
        plan = replace(plan, nodes=args.nodes)
    if args.only:
        plan = replace(plan, variants=tuple(KNOWN[name] for name in args.only))
    started = time.monotonic()
    results = list(measurements(plan))
    packing = list(packings(plan))
    setup = {
        "kubernetes": binaries.kubernetes().version,
        "nodes": plan.nodes,
        "size": fleet.SIZE,
        "lnc": fleet.LNC,
        "passes": plan.passes,
        "smoke": args.smoke,
    }
    name = "short" if args.short else "full"
    rows = medians(results)
    report.write(RESULTS, name, rows=rows, raw=plain(results), packing=[asdict(each) for each in packing], setup=setup)
    print(f"{len(results)} measurements in {time.monotonic() - started:.0f} s: {RESULTS / name}.md")
    return 0


def measurements(plan: Plan) -> Iterator[Result]:
    """Every cell of every pass. A cell that is not suited to a variant is left out."""
    with control_plane() as plane:
        found, last = Fleet(plane, plan.nodes), ("", "")
        for _ in range(plan.passes):
            for variant, state, workload in plan.cells():
                if last[0] != variant.name:
                    found.publish(variant)
                if last != (variant.name, state):
                    found.fill(state)
                    found.measure(workload, state, WARM_UP)
                last = (variant.name, state)
                yield told(found.measure(workload, state, plan.pods))


def packings(plan: Plan) -> Iterator[Packing]:
    """Every order under every way to choose nodes."""
    for scoring in plan.scorings:
        with control_plane(scoring) as plane:
            found = Fleet(plane, plan.packing_nodes)
            for name in PACKED:
                packed = churn(found, KNOWN[name], scoring=scoring, seed=1)
                print(f"packing, {packed.variant}, {scoring}: {packed.free} of {packed.possible}", flush=True)
                yield packed


def told(result: Result) -> Result:
    """Progress for whoever waits."""
    figures = ", ".join(f"{key} {value:.3g}" for key, value in result.row().items())
    print(f"{result.variant}, {result.state}, {result.workload}: {result.bound}/{result.pods}, {figures}", flush=True)
    return result


if __name__ == "__main__":
    sys.exit(main())
