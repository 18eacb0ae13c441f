"""One measurement: so many pods at once on a fleet in a state; what the scheduler took for them."""

import statistics
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from testbed.api import path_of
from testbed.waiting import NotInTimeError, until

from fleetbench import fleet, load
from fleetbench.client import Client
from fleetbench.control_plane import ControlPlane
from fleetbench.fleet import Variant
from fleetbench.load import LABEL, Workload

Wire = dict[str, Any]
BOUND_SECONDS = 120.0  # for the pods of one measurement; what is bound until then counts
QUIET_SECONDS = 60.0
BUSY_SECONDS = 0.002  # of processor time between two looks


@dataclass(frozen=True)
class Result:
    """Of one measurement. `bound` is below `pods` where time was up."""

    variant: str
    state: str
    workload: str
    pods: int
    bound: int
    seconds: float
    cpu_seconds: float
    filter_seconds: float
    attempts: float

    def row(self) -> Mapping[str, float]:
        """What is compared."""
        return {
            "pods_per_second": self.bound / self.seconds,
            "cpu_ms_per_pod": 1000 * self.cpu_seconds / max(1, self.bound),
            "filter_ms_per_attempt": 1000 * self.filter_seconds / max(1.0, self.attempts),
        }


class Fleet:
    """A fleet on a control plane, set to a variant and a state."""

    def __init__(self, plane: ControlPlane, nodes: int) -> None:
        self.plane, self.client, self.nodes = plane, plane.client, fleet.node_names(nodes)
        self.client.create(map(fleet.node, self.nodes))
        self.variant = Variant("none", style="extended")

    def publish(self, variant: Variant) -> None:
        """Replace slices and classes by the variant's."""
        self.clear("")
        for resource in ("resourceslices", "deviceclasses"):
            self.client.empty(resource)
        held = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "held"}, "spec": {}}
        self.client.create([held, *variant.classes()])
        self.client.create(each for name in self.nodes for each in variant.slices(name))
        self.variant = variant

    def fill(self, state: str) -> None:
        """Make the state: what is held where, nothing else."""
        self.clear("")
        chips = load.free_chips(self.nodes, state) if self.variant.style == "extended" else {}
        statuses = [(name, fleet.node_status(chips=chips.get(name, 0))) for name in self.nodes]
        self.client.each(lambda pair: self.client.merge("nodes", pair[0], pair[1], part="status"), statuses)
        pairs = list(load.held(self.variant, self.nodes, state))
        self.client.create(claim for claim, _ in pairs)
        named = ((claim["metadata"]["name"], status) for claim, status in pairs)
        self.client.each(lambda pair: self.client.merge("resourceclaims", pair[0], pair[1], part="status"), named)

    def clear(self, label: str) -> None:
        """Delete pods and claims of that label, or all. Nobody else takes the scheduler's finalizers away."""
        query = f"?labelSelector={quote(f'{LABEL}={label}')}" if label else ""
        for resource in ("pods", "resourceclaims"):
            path = path_of(resource, "default") + query
            if resource == "resourceclaims":
                self.client.each(self._release, self.client.request("GET", path)["items"])
            self.client.request("DELETE", path, {"gracePeriodSeconds": 0})

    def _release(self, claim: Wire) -> None:
        if claim["metadata"].get("finalizers"):
            self.client.merge("resourceclaims", claim["metadata"]["name"], {"metadata": {"finalizers": None}})

    def measure(self, workload: Workload, state: str, wanted: int) -> Result:
        """Schedule pods of a workload; they are gone afterwards."""
        count = workload.fitting(len(self.nodes), state, wanted)
        named = [(workload.kinds[at % len(workload.kinds)], f"load-{at:05d}") for at in range(count)]
        self.client.create(_present(load.claim(self.variant, kind, name) for kind, name in named))
        quiet(self.plane)
        before, cpu = self.plane.metrics(), self.plane.cpu_seconds()
        with self.plane.paused():
            self.client.create(load.pod(self.variant, kind, name) for kind, name in named)
        seconds, left = all_bound(self.client)
        cpu, after = self.plane.cpu_seconds() - cpu, self.plane.metrics()
        self.clear("load")
        return Result(
            self.variant.name,
            state,
            workload.name,
            count,
            count - left,
            seconds,
            cpu,
            after["filter"] - before["filter"],
            after["attempts"] - before["attempts"],
        )


def _present(claims: Iterable[Wire | None]) -> Iterator[Wire]:
    return (each for each in claims if each is not None)


def quiet(plane: ControlPlane) -> None:
    """Wait until the scheduler has dealt with all that happened before."""
    last = [plane.cpu_seconds()]
    calm = [0]

    def still() -> bool:
        now = plane.cpu_seconds()
        calm[0] = calm[0] + 1 if now - last[0] < BUSY_SECONDS else 0
        last[0] = now
        return calm[0] >= 4

    until(still, what="the scheduler to be idle", timeout=QUIET_SECONDS)


def all_bound(client: Client) -> tuple[float, int]:
    """Seconds until no pod is without a node, or until time is up, and how many still are."""
    started = time.monotonic()
    try:
        until(lambda: client.count_unbound() == 0, what="all pods bound", timeout=BOUND_SECONDS)
    except NotInTimeError:
        return time.monotonic() - started, client.count_unbound()
    return time.monotonic() - started, 0


def medians(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row for each variant, state and workload, over the passes; ranges beside the medians."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for each in results:
        groups.setdefault((each.workload, each.state, each.variant), []).append(each)
    rows = []
    for (workload, state, variant), passes in groups.items():
        row: dict[str, Any] = {"workload": workload, "state": state, "variant": variant, "passes": len(passes)}
        row |= {"pods": passes[0].pods, "bound": min(each.bound for each in passes)}
        for key in passes[0].row():
            values = [each.row()[key] for each in passes]
            row[key] = statistics.median(values)
            row[f"{key}_range"] = [min(values), max(values)]
        rows.append(row)
    return rows


def plain(results: Sequence[Result]) -> list[dict[str, Any]]:
    """For the file."""
    return [asdict(each) for each in results]
