"""What the daemon counts, and the HTTP port that scrapers read: `coreslice_…` in the Prometheus text format.

Every series is there from the first scrape, so that a rate over a restart and an absent series mean something; what
can't be measured has none. Values are pushed in, save readiness, which is asked at each scrape. A registry of its own:
nothing that a library registers globally is served.
"""

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from dra_driver import __version__
from dra_driver.errors import CoresliceError

# A grant takes milliseconds; what waits inside a call has up to 35 s.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40)
DONE: Final = "done"
FAILED: Final = "failed"
IN_FORCE: Final = "in_force"
WISHED: Final = "wished"
_RESULTS: Final = (DONE, FAILED)


class MetricsError(CoresliceError):
    """The port can't be had; the text names it."""


@dataclass(frozen=True)
class Labels:
    """The values that labels may have: all of them, so that each series exists from the start."""

    device_types: Sequence[str]
    refusals: Sequence[str]
    conflicts: Sequence[str]


class Metrics:
    """All series of one daemon. Thread-safe."""

    def __init__(self, labels: Labels, *, ready: Callable[[], bool]) -> None:
        self._labels = labels
        self.registry = CollectorRegistry()
        self._gauge("build_info", "The running version; always 1.", ("version", "python")).labels(
            __version__, platform.python_version()
        ).set(1)
        self._gauge("ready", "Whether readiness answers yes now.").set_function(lambda: float(ready()))
        self._registered = self._gauge("registered", "Whether the kubelet has confirmed the registration.")
        self._devices = self._gauge("devices", "Devices in the published slices.", ("type",))
        self._dropped = self._gauge("counters_dropped", "Whether the API server was seen to drop shared counters.")
        self._conflict = self._gauge("conflict", "Whether this speaks against publishing, by reason.", ("reason",))
        self._problems = self._gauge("hardware_problems", "What is wrong with the hardware or contradicts itself.")
        self._faults = self._gauge("slice_faults", "What the API server would refuse of this node's slices.")
        self._lnc = self._gauge(
            "logical_neuron_core", "Physical cores per logical core: in force, and as wished for.", ("state",)
        )
        self._withheld = self._gauge("withheld", "Whether nothing is published, on purpose.")
        self._rights_missing = self._gauge("rights_missing", "Rights in the API that the account was found to lack.")
        self._publishes = self._counter("publishes", "Writes of a generation of slices.", ("result",))
        self._refusals = self._counter("refusals", "Claims that weren't prepared, by reason.", ("reason",))
        self._prepares = self._histogram("prepare_duration_seconds", "Preparing a claim, waits included.")
        self._unprepares = self._histogram("unprepare_duration_seconds", "Undoing a claim.")
        self._make_all()

    def _make_all(self) -> None:
        for family, values in (
            (self._devices, self._labels.device_types),
            (self._lnc, (IN_FORCE, WISHED)),
            (self._conflict, self._labels.conflicts),
            (self._refusals, self._labels.refusals),
            (self._publishes, _RESULTS),
            (self._prepares, _RESULTS),
            (self._unprepares, _RESULTS),
        ):
            for value in values:
                family.labels(value)

    def registered(self, *, confirmed: bool) -> None:
        """The kubelet's verdict."""
        self._registered.set(confirmed)

    def published(self, devices: Mapping[str, int], *, withheld: bool, counters_dropped: bool) -> None:
        """What stands in the API now: devices by type, a type that is missing has none."""
        for kind in self._labels.device_types:
            self._devices.labels(kind).set(devices.get(kind, 0))
        self._withheld.set(withheld)
        self._dropped.set(counters_dropped)

    def slice_faults(self, count: int) -> None:
        """How many faults the newest slices had; log and Events say which."""
        self._faults.set(count)

    def publish(self, *, done: bool) -> None:
        """A generation was written, or an attempt failed."""
        self._publishes.labels(DONE if done else FAILED).inc()

    def conflicts(self, reasons: Iterable[str]) -> None:
        """All reasons that hold now."""
        found = frozenset(reasons)
        for reason in self._labels.conflicts:
            self._conflict.labels(reason).set(reason in found)

    def hardware_problems(self, count: int) -> None:
        """How many things the last scan found; the log and the Events say which."""
        self._problems.set(count)

    def logical_neuron_core(self, in_force: int, *, wished: int) -> None:
        """1 or 2; the two differ while claims that are prepared keep it from changing."""
        self._lnc.labels(IN_FORCE).set(in_force)
        self._lnc.labels(WISHED).set(wished)

    def rights_missing(self, number: int) -> None:
        """As found when it was last asked."""
        self._rights_missing.set(number)

    def refused(self, reason: str) -> None:
        """A claim wasn't prepared."""
        self._refusals.labels(reason).inc()

    def prepare(self, seconds: float, *, done: bool) -> None:
        """One claim of a Prepare call, with the time of the call."""
        self._prepares.labels(DONE if done else FAILED).observe(seconds)

    def unprepare(self, seconds: float, *, done: bool) -> None:
        """One claim of an Unprepare call, with the time of the call."""
        self._unprepares.labels(DONE if done else FAILED).observe(seconds)

    def _gauge(self, name: str, text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(f"coreslice_{name}", text, labels, registry=self.registry)

    def _counter(self, name: str, text: str, labels: Sequence[str]) -> Counter:
        return Counter(f"coreslice_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"coreslice_{name}", text, ("result",), registry=self.registry, buckets=BUCKETS)


class MetricsServer:
    """Serves `metrics` on `host:port`; port 0 takes a free one, which `port` then tells."""

    def __init__(self, metrics: Metrics, *, host: str, port: int) -> None:
        self._metrics = metrics
        self._host = host.strip("[]")  # as gRPC writes an IPv6 address
        self.port = port
        self._stop: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Bind and serve; raises MetricsError where the address can't be had."""
        try:
            server, thread = start_http_server(self.port, self._host, registry=self._metrics.registry)
        except OSError as error:
            raise MetricsError(
                f"can't serve metrics on {self._host}:{self.port}: {error.strerror or error}; is the port taken? "
                "Choose another one (0 takes any, -1 serves none)"
            ) from error
        self.port = server.server_port

        def stop() -> None:
            server.shutdown()
            server.server_close()
            thread.join()

        self._stop = stop

    def stop(self) -> None:
        """Stop and wait."""
        self._stop()
        self._stop = lambda: None
