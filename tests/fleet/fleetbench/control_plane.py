"""etcd, API server and scheduler without client limits; no kubelet, no controllers: nodes are objects only."""

import json
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from testbed import binaries, settings
from testbed.program import Program
from testbed.sandbox import open_sandbox
from testbed.stack import PORTS, Options, Paths, Stack, make_programs, prepare_files

from fleetbench.client import Client

_METRICS = "/metrics"
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class ControlPlane:
    """A running one."""

    stack: Stack
    client: Client

    @property
    def scheduler(self) -> Program:
        """The scheduler's process."""
        return self.stack.programs["scheduler"]

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the scheduler's clock meanwhile, so that what is created then is seen all at once."""
        self.scheduler.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.scheduler.signal(signal.SIGCONT)

    def cpu_seconds(self) -> float:
        """What the scheduler's threads have used so far; Go ends none. `stat` counts in hundredths only."""
        tasks = Path(f"/proc/{self.scheduler.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text().split()[0]) for each in tasks) / 1e9

    def metrics(self) -> Mapping[str, float]:
        """Seconds in Filter (all nodes of an attempt together) and the number of attempts, both so far."""
        text = self.stack.sandbox.run(
            "curl", "-sk", f"https://{self.stack.sandbox.address}:{PORTS['scheduler']}/metrics"
        )
        found = {"filter": 0.0, "attempts": 0.0}
        for name, labels, value in _SAMPLE.findall(text):
            if name.startswith("scheduler_framework_extension_point_duration_seconds") and '"Filter"' in labels:
                key = {"sum": "filter", "count": "attempts"}.get(name.rpartition("_")[2], "")
                found |= {key: found[key] + float(value)} if key else {}
        return found


@contextmanager
def control_plane(scoring: str = "LeastAllocated") -> Iterator[ControlPlane]:
    """One of 1.37. `scoring` is how the scheduler's resource fit ranks nodes."""
    programs = binaries.build_all()
    stack = Stack(sandbox := open_sandbox(), Paths(sandbox.scratch), programs, Options(), {})
    try:
        prepare_files(stack)
        stack.programs.update(make_programs(stack))
        stack.programs["apiserver"].argv.append("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition")
        stack.start("etcd")
        stack.start("apiserver")
        _scheduler(stack, scoring)
        client = _client(stack)
        yield ControlPlane(stack, client)
        client.close()
    finally:
        stack.close()


def _scheduler(stack: Stack, scoring: str) -> None:
    ca = (stack.paths.pki / "apiserver.crt").read_text()
    kubeconfig = stack.paths.kubeconfig("scheduler")
    kubeconfig.write_text(settings.kubeconfig(server=stack.server, ca=ca, user="scheduler"))
    path = stack.paths.scratch / "scheduler.json"
    path.write_text(json.dumps(scheduler_configuration(str(kubeconfig), scoring)))
    program = stack.programs["scheduler"]
    kept = [each for each in program.argv if not each.startswith(("--kubeconfig", "--leader-elect"))]
    program.argv = [*kept, f"--config={path}", f"--authorization-always-allow-paths=/healthz,{_METRICS}"]
    stack.start("scheduler")


def scheduler_configuration(kubeconfig: str, scoring: str) -> dict[str, object]:
    """Of the scheduler: as it comes, but without client limits."""
    resources = [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]
    strategy = {"type": scoring, "resources": resources}
    arguments = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeResourcesFitArgs",
        "scoringStrategy": strategy,
    }
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 100000, "burst": 100000},
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}],
            }
        ],
    }


def _client(stack: Stack) -> Client:
    ca = (stack.paths.pki / "apiserver.crt").read_text()
    return Client(host=stack.sandbox.address, port=PORTS["apiserver"], token=settings.token("admin"), ca=ca)
