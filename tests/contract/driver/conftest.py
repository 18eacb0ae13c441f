"""The daemon as a process of its own, between a simulated kubelet and a simulated API server, over real sockets."""

import json
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dra_driver.cluster.rights import REVIEWS, RIGHTS
from dra_driver.kubelet.api import grpc_health_v1_pb2 as health_pb
from dra_driver.kubelet.api import grpc_health_v1_pb2_grpc as health_grpc
from dra_driver.kubelet.sockets import SocketServer
from dra_driver.kubelet.types import ClaimRef, PreparedDevice
from dra_driver.simulator.apiserver.server import ApiServer
from dra_driver.simulator.cluster import NodePaths
from dra_driver.simulator.daemon import DriverProcess
from dra_driver.simulator.kubelet import FakeKubelet, Timing
from dra_driver.simulator.machines import make_machine

Obj = dict[str, Any]
T = TypeVar("T")

DRIVER = "neuron.coreslice.dev"
NODE = "node-1"
POOL = f"{DRIVER}/{NODE}"
DEADLINE = 20.0
IDLE = 1.0  # seconds; the publisher puts off a look by 0.03 at most
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def eventually(
    condition: Callable[[], T], what: str, *, seen: Callable[[], object] = lambda: "", within: float = 0
) -> T:
    """Look until it gives something true, and give that."""
    deadline, pause = time.monotonic() + (within or DEADLINE), threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what}: not within {within or DEADLINE:g} s; last seen: {seen()}"
        pause.wait(0.01)
    return found


def result(device: str, *, driver: str = DRIVER, pool: str = POOL, request: str = "r") -> Obj:
    """One allocation result as the scheduler writes it."""
    return {"request": request, "driver": driver, "pool": pool, "device": device}


def _parsed(line: str) -> Obj:
    try:
        parsed: Obj = json.loads(line)
    except ValueError as error:
        raise AssertionError(f"a log line that is no JSON: {line!r}") from error
    return parsed


class Rig:
    """One node: machine, API server, kubelet, and the daemon once it is started. Everything lies under `root`."""

    def __init__(self, root: Path) -> None:
        self.paths = NodePaths(root)
        self.machine = make_machine("trn1.2xlarge", root / "m")
        self.server = ApiServer().start()
        self.store = self.server.store
        self.kubelet = FakeKubelet(
            plugins_dir=self.paths.plugins,
            registry_dir=self.paths.registry,
            device_plugins_dir=self.paths.device_plugins,
            pod_resources_dir=self.paths.pod_resources,
            wipe_slices=self._wipe,
            timing=Timing(tick=0.02),  # health as in production: after an end it is opened again 5 s later
        )
        self.kubeconfig = self.server.kubeconfig(root / "kubeconfig")
        self.daemon: DriverProcess | None = None
        self._before = 0  # bytes of the log that are of earlier lives
        self._threads = ThreadPoolExecutor(4)
        self.store.create("nodes", {"metadata": {"name": NODE}})

    def _wipe(self, driver: str | None) -> None:
        fields = {"spec.nodeName": NODE} | ({"spec.driver": driver} if driver else {})
        for item in self.store.list("resourceslices", fields=fields):
            self.store.delete("resourceslices", item["metadata"]["name"])

    def close(self) -> None:
        """End the daemon by force if it still runs, then the rest."""
        if self.daemon:
            self.daemon.__exit__(None, None, None)
        self.server.faults.clear()
        self._threads.shutdown()
        self.kubelet.stop()
        self.server.stop()

    # the daemon

    def build(self, *options: str) -> DriverProcess:
        """The daemon's process, not started."""
        return DriverProcess(
            node=NODE,
            paths=self.paths,
            machine=self.machine,
            kubeconfig=self.kubeconfig,
            driver_name=DRIVER,
            extra=options,
        )

    def launch(self, *options: str) -> DriverProcess:
        """Start the daemon's process and nothing more."""
        self.daemon = self.build(*options)
        self._before = self.daemon.log.stat().st_size if self.daemon.log.exists() else 0
        self.daemon.start()
        return self.daemon

    def start(self, *options: str) -> DriverProcess:
        """Start it, and wait until it is ready."""
        daemon = self.launch(*options)
        self.wait_ready()
        return daemon

    @property
    def process(self) -> DriverProcess:
        """The daemon that was started last."""
        assert self.daemon
        return self.daemon

    def log(self) -> str:
        """All that it has said since it was started last."""
        return self.process.log.read_bytes()[self._before :].decode()

    def lines(self) -> list[Obj]:
        """Its log as objects; anything that is no JSON object is an error."""
        return [_parsed(line) for line in self.log().split("\n")[:-1]]

    def said(self, pattern: str) -> list[Obj]:
        """Lines whose message matches."""
        return [line for line in self.lines() if re.search(pattern, line["message"])]

    def wait_said(self, pattern: str) -> Obj:
        """The first such line, once it is there."""
        return eventually(lambda: self.said(pattern), f"{pattern!r} in the log", seen=self.process.tail)[0]

    def wait_not_ready(self, pattern: str) -> str:
        """Wait until it says that it isn't ready, for this reason; the whole text."""

        def found() -> str | None:
            told = self.said("^(not )?ready$")
            why = str(told[-1]["why"]) if told and told[-1]["message"] == "not ready" else ""
            return why if re.search(pattern, why) else None

        return str(eventually(found, f"not ready: {pattern}", seen=self.process.tail))

    def wait_ready_because(self, pattern: str) -> str:
        """Wait until it says that it is ready, for this reason; the whole text."""

        def found() -> str | None:
            told = self.said("^(not )?ready$")
            why = str(told[-1]["why"]) if told and told[-1]["message"] == "ready" else ""
            return why if re.search(pattern, why) else None

        return str(eventually(found, f"ready: {pattern}", seen=self.process.tail))

    def scrape(self) -> str:
        """All metrics, as a scraper gets them."""
        port = self.said("^metrics are served$")[-1]["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            text: str = answer.read().decode()
        return text

    def metrics(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each sample of that name."""
        families = text_string_to_metric_families(self.scrape())
        return [
            (sample.labels, sample.value) for family in families for sample in family.samples if sample.name == name
        ]

    def health(self, service: str) -> str:
        """What gRPC health answers, e.g. SERVING."""
        port = self.said("^health is served$")[-1]["port"]
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            answer = health_grpc.HealthStub(channel).Check(health_pb.HealthCheckRequest(service=service), timeout=5)
        return str(health_pb.HealthCheckResponse.ServingStatus.Name(answer.status))

    def rights_asked(self) -> bool:
        """Whether it has been told of each of its rights, its last requests of a quiet start."""
        return len(self.server.audit.rows("create", REVIEWS)) >= len(RIGHTS)

    def wait_idle(self) -> int:
        """Requests until now, once what belongs to the start is over: all rights are asked, then nothing more."""
        seen = [(0, time.monotonic())]

        def idle() -> bool:
            requests, now = len(self.server.audit.rows()), time.monotonic()
            if requests != seen[-1][0]:
                seen.append((requests, now))
            return bool(self.server.watches and self.rights_asked() and now - seen[-1][1] > IDLE)

        eventually(idle, "the start is over", seen=self.process.tail)
        return seen[-1][0]

    def wait_ready(self) -> None:
        """Wait until readiness answers SERVING."""
        self.wait_said("^health is served$")

        def ready() -> bool:
            self.process.check()
            return self.health("readiness") == "SERVING"

        eventually(ready, "the daemon ready", seen=self.process.tail)

    # what it leaves

    def sockets(self) -> set[str]:
        """Names in both of the kubelet's folders, hidden ones too, without the records' folder."""
        folders = (self.paths.plugins / DRIVER, self.paths.registry)
        return {path.name for folder in folders if folder.exists() for path in folder.iterdir() if path.is_socket()}

    def specs(self) -> list[Path]:
        """All files in the CDI directory, hidden ones too."""
        return sorted(self.paths.cdi.iterdir()) if self.paths.cdi.exists() else []

    def records(self) -> list[Path]:
        """All files in the records' folder but the lock."""
        folder = self.paths.plugins / DRIVER / "claims"
        return sorted(path for path in folder.iterdir() if path.name != "lock") if folder.exists() else []

    def slices(self) -> list[Obj]:
        """Its slices in the API."""
        return self.store.list("resourceslices", fields={"spec.driver": DRIVER})

    def devices(self) -> dict[str, Obj]:
        """All devices in them by name."""
        return listed(self.slices())

    def device_names(self) -> list[str]:
        """Names of all devices in them."""
        return [device["name"] for item in self.slices() for device in item["spec"].get("devices") or []]

    def events(self, reason: str, about: str = "") -> list[Obj]:
        """Events with that reason, about the object of that UID if one is given."""
        return [
            event
            for event in self.store.list("events")
            if event["reason"] == reason and about in ("", event["involvedObject"].get("uid"))
        ]

    def wait_events(self, reason: str, about: str = "") -> list[str]:
        """Messages of these Events, once there is one."""
        seen = lambda: (self.store.list("events"), self.process.tail())  # noqa: E731
        found = eventually(lambda: self.events(reason, about), f"an Event {reason}", seen=seen)
        return [event["message"] for event in found]

    # claims

    def claim(self, name: str, *results: Obj, allocated: bool = True, **status: Any) -> ClaimRef:
        """A claim of a user with these results, as the kubelet would name it to the driver."""
        claim = self.store.create("resourceclaims", {"metadata": {"name": name, "namespace": "default"}, "spec": {}})
        if allocated:
            claim["status"] = {"allocation": {"devices": {"results": list(results), **status}}}
            self.store.update("resourceclaims", claim, subresource="status")
        return ClaimRef("default", name, claim["metadata"]["uid"])

    def core(self, name: str, device: str = "core-0-0") -> ClaimRef:
        """A claim that holds one core."""
        return self.claim(name, result(device))

    def prepare(self, *refs: ClaimRef, pod: str = "") -> Sequence[PreparedDevice]:
        """A pod with these claims starts; raises PrepareError with the kubelet's text."""
        prepared = self.kubelet.prepare_pod(pod or f"pod-of-{refs[0].name}", refs)
        return [device for ref in refs for device in prepared[ref.uid]]

    def in_background(self, work: Callable[[], T]) -> Future[T]:
        """Run it in a thread of its own."""
        return self._threads.submit(work)

    def tidy(self) -> None:
        """End every pod and delete every claim."""
        pods = {pod for each in self.kubelet.claims.held().values() for pod in each}
        for pod in sorted(pods):
            self.kubelet.unprepare_pod(pod)
        for claim in self.store.list("resourceclaims"):
            self.store.delete("resourceclaims", claim["metadata"]["name"], namespace="default")

    def unprepare(self, ref: ClaimRef) -> None:
        """The pod of that claim ends; raises UnprepareError with the kubelet's text."""
        self.kubelet.unprepare_pod(f"pod-of-{ref.name}")


def listed(slices: Sequence[Obj]) -> dict[str, Obj]:
    """The devices of slices by name."""
    return {device["name"]: device for item in slices for device in item["spec"].get("devices") or ()}


@contextmanager
def listening(path: Path) -> Iterator[None]:
    """A live socket on which nothing is served."""
    server = SocketServer(path, add=lambda _: None, workers=1, name="other")
    server.start()
    try:
        yield
    finally:
        server.unlink()
        server.stop(0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    """Not under tmp_path: a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="dr-") as root:
        rig = Rig(Path(root))
        try:
            rig.kubelet.start()
            yield rig
        finally:
            rig.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Rig]:
    """One daemon for a module of tests that leave nothing of theirs behind; it waits for nothing inside a call."""
    with tempfile.TemporaryDirectory(prefix="dr-") as root:
        rig = Rig(Path(root))
        try:
            rig.kubelet.start()
            rig.start("--prepare-wait=0")
            yield rig
        finally:
            rig.close()
