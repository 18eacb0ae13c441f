"""Faults that were seen in the field, on the real node. Each test is named after its case."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.node import Node
from testbed.waiting import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
NAMESPACE = "coreslice"
# Everything that a user may copy: whole files, and the blocks of YAML in documents.
FILES = [*ROOT.glob("deploy/examples/*.yaml"), *ROOT.glob("deploy/manifests/*.yaml")]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("deploy/**/*.md"), *ROOT.glob("cdi/*.md")]


def claiming_pod(name: str) -> Object:
    return objects.pod(name, objects.container(claims=["c"]), claims={"c": "template/one-core"})


def scheduled(node: Node, name: str) -> bool:
    return bool(node.api.get("pods", name)["spec"].get("nodeName"))


def test_bc024_a_new_node_of_the_old_name_gets_slices_of_its_own(driver: Driver) -> None:
    """The collector takes the slices with their Node; what comes back belongs to the new one, so it stays."""
    node = driver.node
    old = {item["metadata"]["uid"] for item in driver.slices()}
    first = node.api.get("nodes", node.name)["metadata"]["uid"]
    node.stop("kubelet")
    node.api.delete("nodes", node.name)
    until(lambda: not old & uids(driver), what="slices of the node that is gone", timeout=120, seen=driver.slices)
    node.start("kubelet")
    second = until(lambda: uid_of(node, but=first), what="a new node", timeout=60)
    driver.wait_ready()
    owners = [item["metadata"]["ownerReferences"] for item in driver.slices()]
    assert [[owner["uid"] for owner in each] for each in owners] == [[second]] * len(old)


def uids(driver: Driver) -> set[str]:
    return {item["metadata"]["uid"] for item in driver.slices()}


def uid_of(node: Node, *, but: str) -> str:
    """Of the node's object; empty while there is none, or the old one."""
    found = node.api.find("nodes", node.name)
    return found["metadata"]["uid"] if found and found["metadata"]["uid"] != but else ""


def test_bc028_pods_that_came_while_the_driver_was_dead_run_when_it_is_back(
    driver: Driver, classes: list[Object]
) -> None:
    """One in the 30 seconds before the kubelet wipes the slices, which is bound to a dead end; one after that."""
    node = driver.node
    node.apply(objects.template("one-core", r="neuron-core"))
    driver.kill()
    node.apply(claiming_pod("bound"))
    until(lambda: scheduled(node, "bound"), what="a pod bound to a node without a driver", timeout=20)
    until(lambda: not driver.slices(), what="slices wiped", timeout=90)
    node.apply(claiming_pod("late"))
    node.wait_unschedulable("late")
    driver.start()
    for name in ("bound", "late"):
        node.wait_pod(name, timeout=150)
    assert {node.view(name).cores for name in ("bound", "late")} == {"0", "1"}


def blocks(path: Path) -> list[str]:
    """The YAML of a file, or of a document's fences."""
    text = path.read_text()
    return re.findall(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if path.suffix == ".md" else [text]


def manifests(path: Path) -> list[Object]:
    """What of it is meant for an API server; the rest are values of the chart, or kustomize's own."""
    found = [item for text in blocks(path) for item in yaml.safe_load_all(text) if item]
    return [item for item in found if item.get("kind", "Kustomization") != "Kustomization"]


SAMPLES = [path for path in (*FILES, *DOCUMENTS) if manifests(path)]


@pytest.fixture(scope="module")
def server(shared_node: Node) -> Iterator[Node]:
    """With the namespace that the manifests are for."""
    shared_node.kubectl("create", "namespace", NAMESPACE)
    yield shared_node
    shared_node.kubectl("delete", "namespace", NAMESPACE)


def sent(server: Node, *found: Object) -> str:
    """What the server says to them, tried in earnest and not kept; unknown fields are refused."""
    text = yaml.safe_dump_all(found)
    ran = server.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text, check=False)
    return "" if ran.status == 0 else ran.text


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: str(path.relative_to(ROOT)))
def test_bc075_every_sample_passes_the_api(server: Node, path: Path) -> None:
    assert sent(server, *manifests(path)) == ""


def test_bc075_a_sample_with_a_misspelt_mode_or_field_does_not_pass(server: Node) -> None:
    """As one was published: `all` where the API knows `All` only. So the test above can fail."""
    (template, _) = manifests(ROOT / "deploy/examples/one-chip.yaml")
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["allocationMode"] = "all"
    assert "allocationMode" in sent(server, template)
    request["exactly"] = {"deviceClassname": "neuron-chip"}
    assert "deviceClassname" in sent(server, template)


def test_bc075_the_documents_with_samples_are_these() -> None:
    """So that a fence which is no longer found is missed."""
    assert {path.name for path in SAMPLES if path.suffix == ".md"} == {"README.md"}
    assert [item["kind"] for item in manifests(ROOT / "README.md")] == ["ResourceClaimTemplate", "Pod", "Pod"]
    assert len(FILES) > 14
