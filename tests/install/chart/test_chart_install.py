"""The chart on a real node, by real helm, with the image: what install, upgrade and a second installation do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from testbed import driver_image, objects
from testbed.charts import CHART, NAMESPACE
from testbed.node import Node
from testbed.release import USER, Site
from testbed.waiting import until

from dra_driver.settings import DRIVER_NAME

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def site(chart_node: Node) -> Iterator[Site]:
    """A trn1.2xlarge without a driver; its label isn't there yet."""
    chart_node.load_image(driver_image.build())
    with Site.prepared(chart_node) as site:
        yield site


@pytest.fixture(scope="module")
def installed(site: Site) -> Iterator[Site]:
    """The chart, installed and Ready on the node."""
    site.label("coreslice.dev/neuron=true")
    site.install("--wait", "--timeout", "120s")
    yield site
    site.node.clean()
    site.node.helm("uninstall", "coreslice", "--namespace", NAMESPACE, "--no-hooks", "--wait", "--ignore-not-found")
    site.node.kubectl("delete", "namespace", NAMESPACE, "--wait", "--timeout=60s")
    site.label("coreslice.dev/neuron-")
    until(lambda: not site.node.slices(DRIVER_NAME), what="slices gone", timeout=60)


def test_node_without_label_or_known_type_gets_no_pod(site: Site) -> None:
    said = site.install("--wait").text
    try:
        assert "Of 1 node(s), 0 have a known instance type" in said
        assert "kubectl label node NODE coreslice.dev/neuron=true" in said
        assert site.daemon_set()["status"]["desiredNumberScheduled"] == 0
    finally:
        site.node.helm("uninstall", "coreslice", "--namespace", NAMESPACE, "--no-hooks", "--wait")
    assert site.left() == ""
    site.node.kubectl("delete", "namespace", NAMESPACE, "--wait", "--timeout=60s")


def test_installed_pod_serves_a_claim(installed: Site) -> None:
    node = installed.node
    assert installed.daemon_set()["status"]["numberReady"] == 1
    assert node.slices(DRIVER_NAME)
    node.apply(objects.template("one-core", r="neuron-core"))
    node.run_pod(objects.pod("a", objects.container(claims=["c"]), claims={"c": "template/one-core"}))
    assert node.view("a").cores in {"0", "1"}
    node.clean()


def test_commands_of_the_notes_work(installed: Site) -> None:
    notes = installed.node.helm("get", "notes", "coreslice", "--namespace", NAMESPACE).text
    lines = [line.split() for line in notes.splitlines() if line.startswith("  kubectl ")]
    assert len(lines) == 3
    for line in lines[:2]:
        assert installed.node.kubectl(*line[1:]).text
    assert Path(CHART.parents[2] / lines[2][3]).exists()


def test_rights_of_the_account_are_those_that_the_readme_lists(installed: Site) -> None:
    """What everybody may do is taken off: an account without any binding shows it."""
    readme = (CHART / "README.md").read_text().partition("## What it may do")[2].partition("No write to")[0]
    rows = [[cell.strip() for cell in row.split("|")[1:4]] for row in readme.splitlines() if row.startswith("| ")][2:]
    documented = {(".".join(filter(None, (row[1], row[0]))), frozenset(row[2].split(", "))) for row in rows}
    everybody = rights(installed, "system:serviceaccount:default:default")
    assert rights(installed, USER) - everybody == documented


def rights(site: Site, user: str) -> set[tuple[str, frozenset[str]]]:
    """`kubectl auth can-i --list`: resource and verbs."""
    groups = "--as-group=system:serviceaccounts", "--as-group=system:authenticated"
    text = site.node.kubectl("auth", "can-i", "--list", f"--as={user}", *groups, "--no-headers").text
    found = set()
    for line in text.splitlines():
        resource, _, rest = line.partition(" ")
        verbs = rest.rpartition("[")[2].rstrip("] ").split()
        found.add((resource, frozenset(verbs)))
    return found


def test_second_installation_is_refused_by_name(installed: Site) -> None:
    for release, namespace in (("coreslice", "other"), ("another", NAMESPACE)):
        refused = installed.install(release=release, namespace=namespace, check=False)
        assert refused.status != 0
        assert f'already, as release "coreslice" in namespace "{NAMESPACE}"' in refused.text
        assert "upgrade that one, or uninstall it first" in refused.text


def test_bc124_upgrade_without_a_change_rolls_nothing_out(installed: Site) -> None:
    before = installed.daemon_set()["metadata"]["generation"]
    installed.upgrade()
    assert installed.daemon_set()["metadata"]["generation"] == before


def test_bc095_drain_leaves_the_driver(installed: Site) -> None:
    node = installed.node
    pods = names(node)
    node.kubectl("drain", node.name, "--ignore-daemonsets", "--force", "--timeout=60s")
    node.kubectl("taint", "node", node.name, "aws.amazon.com/neuron=true:NoExecute")
    try:
        assert names(node) == pods
        assert installed.daemon_set()["status"]["desiredNumberScheduled"] == 1
    finally:
        node.kubectl("taint", "node", node.name, "aws.amazon.com/neuron-")
        node.kubectl("uncordon", node.name)


def names(node: Node) -> set[str]:
    """Pods of the driver."""
    return {item["metadata"]["name"] for item in node.api.list("pods", NAMESPACE)}


def test_without_the_right_to_read_pods_a_single_claim_is_served(installed: Site) -> None:
    installed.upgrade(rbac={"readPods": False})
    try:
        assert ("pods", frozenset({"get"})) not in rights(installed, USER)
        node = installed.node
        node.apply(objects.template("one-core", r="neuron-core"))
        node.run_pod(objects.pod("a", objects.container(claims=["c"]), claims={"c": "template/one-core"}))
        node.clean()
    finally:
        installed.upgrade()
    assert ("pods", frozenset({"get"})) in rights(installed, USER)


def test_uninstall_whose_check_cannot_run_is_refused(installed: Site) -> None:
    """No answer is no permission."""
    values = installed.values | {"uninstall": {"timeoutSeconds": 10}}
    values["image"] = values["image"] | {"tag": "missing"}
    command = ("upgrade", "coreslice", str(CHART), "--namespace", NAMESPACE, "--values", "-")
    installed.node.helm(*command, stdin=yaml.safe_dump(values))
    refused = installed.uninstall()
    assert refused.status != 0
    assert "job coreslice-uninstall-check failed: DeadlineExceeded" in refused.text
    assert installed.daemon_set()["status"]["numberReady"] == 1  # the driver serves on
    assert "has no deployed releases" in installed.node.helm(*command, stdin=yaml.safe_dump(values), check=False).text
    last = json.loads(installed.node.helm("history", "coreslice", "--namespace", NAMESPACE, "-o", "json").text)[-1]
    good = str(last["revision"] - 1)
    installed.node.helm("rollback", "coreslice", good, "--namespace", NAMESPACE, "--wait")  # as the README says
    installed.upgrade()


def test_uninstall_with_a_claim_is_refused_and_names_it(installed: Site) -> None:
    node = installed.node
    node.apply(objects.claim("mine", r="neuron-core"))
    node.run_pod(objects.pod("user", objects.container(claims=["c"]), claims={"c": "claim/mine"}))
    refused = installed.uninstall()
    assert refused.status != 0
    assert "default/mine" in refused.text  # helm shows the log of the check
    assert "job coreslice-uninstall-check failed" in refused.text
    there = installed.left().split()
    assert [name for name in there if "check" in name and not name.startswith("pod/")] == [
        "job.batch/coreslice-uninstall-check"  # its account and rights are gone; the log can be read again
    ]
    assert installed.daemon_set()["status"]["numberReady"] == 1
    node.delete_pods("user")
    node.clean()
    assert installed.uninstall().status == 0
    until(lambda: installed.left() == "", what="nothing left", timeout=60, seen=installed.left)
