"""The files of deploy/examples on a real node with a trn1.2xlarge, brought to the outcomes that they state.

The chart's classes and policies are in force; the driver is a process of the node. The installed pod's turn is in
tests/install/lifecycle; files that one chip can't show are in tests/cluster/test_machine_sizes.py.
"""

from collections.abc import Iterator

import pytest
import yaml
from testbed import images
from testbed.charts import Chart
from testbed.driver import Driver
from testbed.examples import EXAMPLES, Examples
from testbed.node import Node
from testbed.outcomes import LARGE_OUTCOMES, OUTCOMES

pytestmark = pytest.mark.cluster


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
    tested = [*OUTCOMES, *(name for _, name in LARGE_OUTCOMES)]
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == {name.partition("+")[0] for name in tested}
    for path in EXAMPLES.glob("*.yaml"):
        header = path.read_text().partition("apiVersion")[0]
        assert "\n# Outcome: " in header, path.name
        assert all(line.startswith("#") for line in header.splitlines()), path.name


@pytest.mark.parametrize("name", OUTCOMES)
def test_example(examples: Examples, name: str) -> None:
    OUTCOMES[name](examples)


@pytest.mark.parametrize("name", sorted({name.partition("+")[0] for _, name in LARGE_OUTCOMES}))
def test_example_for_large_machines_passes_the_policies(examples: Examples, name: str) -> None:
    said = examples.apply(name, "--dry-run=server")
    assert f"resourceclaimtemplate.resource.k8s.io/{name} created (server dry run)" in said
    assert f"pod/{name} created (server dry run)" in said


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
