"""Every file of deploy/examples on a real node with a trn1.2xlarge, brought to the outcome that it states.

The chart's classes and policies are in force. Only images are changed: the node has no registry.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml
from testbed import images
from testbed.api import Object
from testbed.charts import CHART, Chart
from testbed.driver import Driver
from testbed.grants import wait_nothing_held
from testbed.node import Node
from testbed.waiting import until

EXAMPLES = CHART.parents[1] / "examples"
SECONDS = 60.0

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Seen:
    """What a container printed of its grant."""

    cores: str | None
    chips: tuple[str, ...]


class Examples:
    """Applies files, looks at their pods, and takes all of it away again."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.node = driver, driver.node
        self._applied: list[Object] = []

    def apply(self, name: str, *flags: str) -> str:
        """`kubectl apply -f`; what kubectl said."""
        objects = [local(item) for item in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text())]
        self._applied += objects
        return self.node.kubectl("apply", "-f", "-", *flags, stdin=yaml.safe_dump_all(objects)).text

    def seen(self, pod: str, container: str = "main") -> Seen:
        """What a container of a pod saw, once it has printed it."""
        text = until(
            lambda: self._printed(pod, container),
            what=f"output of {pod}/{container}",
            timeout=SECONDS,
            seen=lambda: self.node.describe(pod),
        )
        cores = re.search(r"^NEURON_RT_VISIBLE_CORES=(.*)$", text, re.MULTILINE)
        return Seen(cores[1] if cores else None, tuple(re.findall(r"^/dev/(neuron\d+)$", text, re.MULTILINE)))

    def _printed(self, pod: str, container: str) -> str | None:
        ran = self.node.kubectl("logs", pod, "-c", container, check=False)
        return ran.text if ran.status == 0 and "/dev/neuron" in ran.text else None

    def pods(self, selector: str) -> list[Object]:
        """Pods by label, by name."""
        found = self.node.api.list("pods", labelSelector=selector)
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def wait_pods(self, selector: str, running: int) -> list[str]:
        """Wait until that many pods run; their names."""

        def enough() -> list[str] | None:
            names = [pod["metadata"]["name"] for pod in self.pods(selector) if is_ready(pod)]
            return names if len(names) == running else None

        return until(enough, what=f"{running} pods {selector}", timeout=SECONDS, seen=lambda: self.pods(selector))

    def delete(self) -> None:
        """Everything that was applied, and until its devices are free."""
        text = yaml.safe_dump_all(self._applied)
        self.node.kubectl("delete", "--ignore-not-found", "--wait", "--timeout=60s", "-f", "-", stdin=text)
        until(lambda: not self.node.api.list("pods"), what="pods gone", timeout=SECONDS)
        wait_nothing_held(self.driver)


def local(item: Any) -> Any:
    """An object with the node's image in place of the one from a registry."""
    if isinstance(item, list):
        return [local(one) for one in item]
    if not isinstance(item, dict):
        return item
    changed = {key: local(value) for key, value in item.items()}
    if "image" in changed:
        assert changed["image"] == "busybox:1.37"
        changed |= {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    return changed


def is_ready(pod: Object) -> bool:
    """Running, with every container ready, and not on its way out."""
    states = pod["status"].get("containerStatuses", [])
    going = "deletionTimestamp" in pod["metadata"]
    return pod["status"]["phase"] == "Running" and all(state["ready"] for state in states) and not going


@pytest.fixture(scope="module")
def serving(chart: Chart, chart_node: Node) -> Iterator[Driver]:
    """The driver, with the chart's classes and policies."""
    wanted = [item for item in chart.objects("--no-hooks") if item["kind"] != "DaemonSet"]
    text = yaml.safe_dump_all(wanted)
    chart_node.kubectl("create", "namespace", "coreslice", check=False)
    chart_node.kubectl("apply", "-f", "-", stdin=text)
    driver = Driver(chart_node)
    driver.start()
    yield driver
    driver.close()
    for item in driver.slices():
        chart_node.api.delete("resourceslices", item["metadata"]["name"])
    chart_node.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=text)


@pytest.fixture
def examples(serving: Driver) -> Iterator[Examples]:
    """Nothing on the node before and after."""
    found = Examples(serving)
    yield found
    found.delete()


def test_each_file_states_its_outcome_and_has_a_test() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.yaml")}
    assert names <= {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    for path in EXAMPLES.glob("*.yaml"):
        header = path.read_text().partition("apiVersion")[0]
        assert "\n# Outcome: " in header, path.name
        assert all(line.startswith("#") for line in header.splitlines()), path.name


def test_one_core(examples: Examples) -> None:
    examples.apply("one-core")
    examples.node.wait_pod("one-core")
    seen = examples.seen("one-core")
    assert (seen.cores in {"0", "1"}, seen.chips) == (True, ("neuron0",))


def test_one_chip(examples: Examples) -> None:
    examples.apply("one-chip")
    examples.node.wait_pod("one-chip")
    assert examples.seen("one-chip") == Seen(None, ("neuron0",))


def test_fallback(examples: Examples) -> None:
    examples.apply("fallback")
    examples.node.wait_pod("fallback")
    assert examples.seen("fallback") == Seen(None, ("neuron0",))
    assert chosen(examples, "fallback") == "device/one-chip"


def test_fallback_where_part_of_the_chip_is_taken(examples: Examples) -> None:
    examples.apply("one-core")
    examples.node.wait_pod("one-core")
    examples.apply("fallback")
    examples.node.wait_pod("fallback")
    assert {examples.seen(pod).cores for pod in ("one-core", "fallback")} == {"0", "1"}
    assert chosen(examples, "fallback") == "device/one-core"


def chosen(examples: Examples, pod: str) -> str:
    """The alternative that a pod's claim was allocated by."""
    name = examples.node.api.get("pods", pod)["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    (result,) = examples.node.api.get("resourceclaims", name)["status"]["allocation"]["devices"]["results"]
    return str(result["request"])


def test_shared_claim(examples: Examples) -> None:
    examples.apply("shared-claim")
    for pod in ("reader", "writer"):
        examples.node.wait_pod(pod)
    seen = {examples.seen(pod) for pod in ("reader", "writer")}
    assert len(seen) == 1
    assert seen.pop().cores in {"0", "1"}
    examples.node.delete_pods("reader")
    assert is_ready(examples.node.api.get("pods", "writer"))


def test_init_container(examples: Examples) -> None:
    examples.apply("init-container")
    examples.node.wait_pod("init-container")
    seen = {examples.seen("init-container", name) for name in ("warm-up", "main")}
    assert len(seen) == 1
    assert seen.pop().cores in {"0", "1"}


def test_two_containers(examples: Examples) -> None:
    examples.apply("two-containers")
    examples.node.wait_pod("two-containers")
    seen = [examples.seen("two-containers", name) for name in ("a", "b")]
    assert {one.cores for one in seen} == {"0", "1"}
    assert {one.chips for one in seen} == {("neuron0",)}


def test_extended_name(examples: Examples) -> None:
    examples.apply("extended-name")
    pod = examples.node.wait_pod("extended-name")
    assert examples.node.api.get("resourceclaims", pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"])
    seen = examples.seen("extended-name")
    assert (seen.cores in {"0", "1"}, seen.chips) == (True, ("neuron0",))


def test_schedulers_claim_for_two_containers_passes_the_policies(examples: Examples) -> None:
    """Two requests in one claim: refused to a user, made by the scheduler for a pod whose containers ask one each."""
    limits = {"limits": {"deviceclass.resource.kubernetes.io/neuron-core": "1"}}
    one = {"image": images.BUSYBOX, "command": ["sleep", "3600"], "resources": limits}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "two-by-name"},
        "spec": {"containers": [{"name": name, **one} for name in ("a", "b")], "terminationGracePeriodSeconds": 1},
    }
    status = examples.node.run_pod(pod)["status"]["extendedResourceClaimStatus"]
    claim = examples.node.api.get("resourceclaims", status["resourceClaimName"])
    assert len(claim["spec"]["devices"]["requests"]) == 2
    examples.node.delete_pods("two-by-name")


def test_job(examples: Examples) -> None:
    examples.apply("job")
    done = examples.node.kubectl("wait", "--for=condition=complete", "job/job", "--timeout=100s")
    assert "condition met" in done.text
    assert [pod["status"]["phase"] for pod in examples.pods("job-name=job")] == ["Succeeded"] * 4
    assert {examples.seen(pod["metadata"]["name"]).cores for pod in examples.pods("job-name=job")} <= {"0", "1"}


def test_deployment_hpa(examples: Examples) -> None:
    """The autoscaler isn't brought to its outcome: this node has no metrics server. It is taken by the server."""
    said = examples.apply("deployment-hpa", "--dry-run=server")
    assert "horizontalpodautoscaler.autoscaling/deployment created (server dry run)" in said
    examples.apply("deployment-hpa")
    names = examples.wait_pods("app=deployment", 2)
    assert {examples.seen(name).cores for name in names} == {"0", "1"}
    examples.node.kubectl("scale", "deployment/deployment", "--replicas=3")
    (third,) = until(
        lambda: {pod["metadata"]["name"] for pod in examples.pods("app=deployment")} - set(names),
        what="third replica",
        timeout=SECONDS,
    )
    assert "cannot allocate all claims" in examples.node.wait_unschedulable(third)
    examples.node.kubectl("delete", "pod", names[0], "--wait=false")
    examples.node.wait_pod(third, timeout=SECONDS)


def test_statefulset(examples: Examples) -> None:
    examples.apply("statefulset")
    assert examples.wait_pods("app=statefulset", 2) == ["statefulset-0", "statefulset-1"]
    assert {examples.seen(f"statefulset-{at}").cores for at in (0, 1)} == {"0", "1"}
    first = examples.node.api.get("pods", "statefulset-0")["metadata"]["uid"]
    examples.node.kubectl("delete", "pod", "statefulset-0")

    def came_back() -> bool:
        pod = examples.node.api.find("pods", "statefulset-0")
        return pod is not None and pod["metadata"]["uid"] != first

    until(came_back, what="statefulset-0 anew", timeout=SECONDS)
    examples.wait_pods("app=statefulset", 2)
    assert {examples.seen(f"statefulset-{at}").cores for at in (0, 1)} == {"0", "1"}


def test_serving(examples: Examples) -> None:
    examples.apply("serving")
    examples.node.wait_pod("serving", timeout=SECONDS)
    answer = examples.node.exec("serving", "wget", "-q", "-O", "-", "http://127.0.0.1:8080/", container="server")
    assert answer.text.split() == ["/dev/neuron0"]
