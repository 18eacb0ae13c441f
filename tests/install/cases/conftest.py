"""Fixtures: the chart installed on a real node, once for a file of cases, and what the driver's pod says of itself."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from testbed import objects
from testbed.api import Object
from testbed.charts import NAMESPACE
from testbed.node import Node
from testbed.release import USER, Site
from testbed.waiting import until

from dra_driver.legacy.device_plugin import DevicePlugin
from dra_driver.neuron.sysfs import read_machine

SECONDS = 90.0
LABEL = "coreslice.dev/neuron"
WRITES = {"create", "update", "patch", "delete", "deletecollection"}

Measured = Callable[[str, object], None]


@dataclass(frozen=True)
class Installed:
    """A release whose driver runs on the node."""

    site: Site

    @property
    def node(self) -> Node:
        """The node."""
        return self.site.node

    # The driver's pod ----------------------------------------------------------------------

    def pod(self) -> Object:
        """The driver's one pod, once there is one that isn't about to go."""

        def one() -> Object | None:
            pods = [pod for pod in self.site.pods() if "deletionTimestamp" not in pod["metadata"]]
            return pods[0] if len(pods) == 1 else None

        return until(one, what="one driver pod", timeout=SECONDS, seen=self.site.pods)

    @property
    def name(self) -> str:
        """The pod's name."""
        return str(self.pod()["metadata"]["name"])

    def is_ready(self) -> bool:
        """Whether the kubelet says so."""
        statuses = self.pod()["status"].get("containerStatuses") or [{"ready": False}]
        return all(status["ready"] for status in statuses)

    def wait_ready(self) -> None:
        """Wait until the kubelet says so."""
        until(self.is_ready, what="the driver's pod ready", timeout=SECONDS, seen=lambda: (self.pod(), self.log()))

    def log(self, pod: str = "") -> str:
        """All that it has said; empty where there is no container yet."""
        done = self.node.kubectl("logs", "-n", NAMESPACE, pod or self.name, "-c", "driver", check=False)
        return "" if done.status else done.text

    def follow(self, pod: str) -> str:
        """All that it says to its end. Returns then."""
        return self.node.kubectl("logs", "-n", NAMESPACE, pod, "-c", "driver", "--follow").text

    def why(self) -> str:
        """`ready: …` or `not ready: …`, the last that it has said."""
        told = [line for line in lines(self.log()) if re.fullmatch("(not )?ready", line["message"])]
        return f"{told[-1]['message']}: {told[-1]['why']}" if told else ""

    def wait_why(self, pattern: str) -> str:
        """Wait until its last word on readiness matches; the whole text."""
        return until(
            lambda: text if re.search(pattern, text := self.why()) else None,
            what=f"readiness {pattern!r}",
            timeout=SECONDS,
            seen=self.log,
        )

    def restart(self) -> None:
        """Delete the pod; until the next one runs."""
        old = self.name
        self.node.api.delete("pods", old, NAMESPACE)
        until(
            lambda: self.name != old and (self.pod()["status"].get("phase") == "Running"),
            what="the next pod",
            timeout=SECONDS,
            seen=self.site.pods,
        )

    def python(self, program: str) -> str:
        """Run a Python program in its container; what it prints."""
        command = ("exec", "-n", NAMESPACE, self.name, "-c", "driver", "--", "python3", "-c", program)
        return self.node.kubectl(*command).text

    def metrics(self, name: str) -> dict[tuple[str, ...], float]:
        """Samples of that name by their labels' values, as its own port tells."""
        fetch = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8080/metrics').read().decode())"
        return samples(self.python(fetch), name)

    def conflicts(self) -> set[str]:
        """Reasons that the metric shows."""
        return {reason for (reason,), value in self.metrics("coreslice_conflict").items() if value}

    def memory_mb(self) -> int:
        """Resident memory of its process."""
        text = self.python("print(open('/proc/1/status').read())")
        (kilobytes,) = re.findall(r"^VmRSS:\s*(\d+) kB", text, flags=re.MULTILINE)
        return round(int(kilobytes) / 1024)

    def requests(self) -> list[Object]:
        """Its requests in the audit log."""
        return self.node.audit(USER)

    # Pods with claims ----------------------------------------------------------------------

    def run_claim_pods(self, *names: str) -> None:
        """Pods with a core each; until they run."""
        if self.node.api.find("resourceclaimtemplates", "one-core") is None:
            self.node.apply(objects.template("one-core", r="neuron-core"))
        for name in names:
            pod = objects.pod(name, objects.container(claims=["c"]), claims={"c": "template/one-core"})
            self.node.apply(pod)
        for name in names:
            self.node.wait_pod(name, timeout=SECONDS)

    def tidy(self) -> None:
        """No pod, claim and template; the classes are the release's."""
        for resource in ("pods", "resourceclaimtemplates", "resourceclaims"):
            for item in self.node.api.list(resource):
                self.node.api.delete(resource, item["metadata"]["name"])
        for resource in ("pods", "resourceclaims"):
            until(lambda r=resource: not self.node.api.list(r), what=f"no {resource}", timeout=SECONDS)  # type: ignore[misc]


def lines(log: str) -> list[Object]:
    """Log lines that are JSON objects."""
    return [json.loads(line) for line in log.splitlines() if line.startswith("{")]


def samples(text: str, name: str) -> dict[tuple[str, ...], float]:
    """Samples of one name in the Prometheus text format, by their labels' values."""
    found = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {tuple(sample.labels.values()): sample.value for sample in found if sample.name == name}


@contextmanager
def device_plugin(site: Site) -> Iterator[None]:
    """The device plugin of this machine at the node's kubelet, until its names are in the node's status."""
    machine = read_machine(sysfs_root=site.machine.sysfs, proc_root=site.machine.proc)
    with DevicePlugin(machine, site.node.paths.device_plugins) as plugin:
        for name in plugin.sockets:
            wait_allocatable(site.node, name, some=True)
        yield


def wait_allocatable(node: Node, name: str, *, some: bool) -> None:
    """Wait until the node's status offers some, or none, of a resource."""

    def offered() -> bool:
        amount = node.api.get("nodes", node.name)["status"]["allocatable"].get(name, "0")
        return (amount != "0") is some

    until(offered, what=f"{name} {'offered' if some else 'not offered'}", timeout=SECONDS)


@contextmanager
def cordoned(node: Node) -> Iterator[None]:
    """The node takes no new pods meanwhile."""
    node.kubectl("cordon", node.name)
    try:
        yield
    finally:
        node.kubectl("uncordon", node.name)


@pytest.fixture(scope="module")
def site(installed_node: Node) -> Iterator[Site]:
    """A labelled node with a trn1.2xlarge, nothing installed; the driver looks at it every second."""
    settings: dict[str, Any] = {"rescanInterval": 1}
    with Site.prepared(installed_node, folder="m", settings=settings) as site:
        site.label(f"{LABEL}=true")
        yield site
        site.label(f"{LABEL}-")


@pytest.fixture(scope="module")
def release(site: Site) -> Iterator[Installed]:
    """The chart, installed and Ready."""
    site.install("--wait", "--timeout", "120s")
    yield Installed(site)
    site.node.clean()
    site.uninstall("--no-hooks", "--ignore-not-found")
    site.node.kubectl("delete", "namespace", NAMESPACE, "--wait", "--timeout=90s")
    until(lambda: not site.slices(), what="slices gone", timeout=SECONDS)


@pytest.fixture
def installed(release: Installed) -> Iterator[Installed]:
    """The release with no pod that has claims, before and after."""
    release.wait_ready()
    yield release
    release.tidy()


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Notes a figure in the report, and shows it with `-s`."""

    def note(what: str, value: object) -> None:
        record_property(what, value)
        print(f"\n{what}: {value}")

    return note
