"""What a Prometheus needs of the installed pod: its port on the pod network, and the objects that open it."""

import pytest
import yaml
from testbed import objects
from testbed.charts import CHART, NAMESPACE
from testbed.waiting import until

from dra_driver import __version__
from tests.install.cases.conftest import SECONDS, Installed, samples

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_metrics_over_the_pod_network(installed: Installed) -> None:
    """Found as a scraper finds it: the pod's address, and the port by its name."""
    node = installed.node
    pod = installed.pod()
    (port,) = [port for port in pod["spec"]["containers"][0]["ports"] if port["name"] == "metrics"]
    node.run_pod(objects.pod("scraper"))
    url = f"http://{pod['status']['podIP']}:{port['containerPort']}/metrics"

    def scrape() -> str:
        done = node.exec("scraper", "wget", "-q", "-O", "-", url)
        assert done.status == 0, done.text
        return done.text

    text = scrape()
    ((info, _),) = samples(text, "coreslice_build_info").items()
    assert __version__ in info
    assert samples(text, "coreslice_ready") == {(): 1}
    assert samples(text, "coreslice_registered") == {(): 1}
    assert samples(text, "coreslice_rights_missing") == {(): 0}
    devices = samples(text, "coreslice_devices")
    assert (devices["core",], devices["chip",]) == (2, 1)
    before = samples(text, "coreslice_prepare_duration_seconds_count")["done",]
    installed.run_claim_pods("user")
    after = samples(scrape(), "coreslice_prepare_duration_seconds_count")["done",]
    assert after == before + 1
    node.delete_pods("user")
    undone = "coreslice_unprepare_duration_seconds_count"
    until(lambda: samples(scrape(), undone)["done",] > samples(text, undone)["done",], what="undone", timeout=SECONDS)


def test_network_policy_is_taken_by_the_server(installed: Installed) -> None:
    """Nothing here enforces one: what it lets through is the network plugin's to show."""
    values = {
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        }
    }
    command = ("template", "coreslice", str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.37.0")
    shown = ("--show-only", "templates/networkpolicy.yaml", "--values", "-")
    text = installed.node.helm(*command, *shown, stdin=yaml.safe_dump(values)).text
    flags = ("--dry-run=server", "--validate=strict", "-o", "yaml")
    made = yaml.safe_load(installed.node.kubectl("apply", "-f", "-", *flags, stdin=text).text)
    assert made["metadata"]["uid"]
    (rule,) = made["spec"]["ingress"]
    assert rule["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    assert rule["from"] == values["networkPolicy"]["metricsFrom"]
    labels = installed.pod()["metadata"]["labels"]
    assert made["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
