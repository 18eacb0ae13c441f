"""Nodes that aren't what the driver needs, seen from outside of the installed pod: what it says, does and costs."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from testbed import driver_image, objects, overlap
from testbed.api import Object
from testbed.charts import CHART, NAMESPACE
from testbed.node import Node, lone_node
from testbed.release import Site, image_of
from testbed.stack import AUDIT_METADATA, Options
from testbed.waiting import until

from dra_driver.simulator.machines import put
from tests.install.cases.conftest import LABEL, SECONDS, WRITES, Installed, Measured

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

GATE = "DRAPartitionableDevices"


@contextmanager
def without_class(site: Site) -> Iterator[None]:
    """No `/sys/class/neuron_device` meanwhile."""
    folder = site.machine.class_entry(0).parent
    aside = site.machine.sysfs / "aside"
    folder.rename(aside)
    try:
        yield
    finally:
        aside.rename(folder)


@contextmanager
def product(site: Site, name: str) -> Iterator[None]:
    """DMI calls the machine that meanwhile."""
    path = site.machine.sysfs / "devices/virtual/dmi/id/product_name"
    before = path.read_text()
    put(path, f"{name}\n")
    try:
        yield
    finally:
        put(path, before)


def wait_leases(node: Node, count: int) -> None:
    """Until the kubelet has renewed its lease that often: 10 s each time."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node.name}"
    seen: set[str] = set()

    def renewed() -> bool:
        seen.add(node.api.request("GET", path)["spec"]["renewTime"])
        return len(seen) > count

    until(renewed, what=f"{count} leases", timeout=SECONDS)


def test_bc118_node_without_neuron_is_ready_says_so_and_costs_nothing(installed: Installed, measured: Measured) -> None:
    site, node = installed.site, installed.node
    with without_class(site), product(site, "m5.large"):
        installed.restart()
        installed.wait_ready()
        assert installed.why() == "ready: withheld: no Neuron hardware on this node"
        assert site.daemon_set()["status"]["numberReady"] == 1
        assert installed.metrics("coreslice_ready") == {(): 1}
        until(lambda: not site.slices(), what="no slice", timeout=SECONDS)
        wait_leases(node, 1)  # its start is over
        asked, said = len(installed.requests()), installed.log()
        wait_leases(node, 3)  # it looks at its hardware every second
        since = [(event["verb"], event["requestURI"]) for event in installed.requests()[asked:]]
        assert [one for one in since if one[0] in WRITES] == []
        assert [one for one in since if one[0] != "watch"] == []
        assert installed.log() == said
        measured("memory of a driver with nothing to do, MB", installed.memory_mb())
    site.wait_cores(2)  # it looked all the time
    measured("memory of a driver with a trn1.2xlarge, MB", installed.memory_mb())


def test_bc026_node_that_should_have_neuron_and_shows_none_is_not_ready(installed: Installed) -> None:
    site, node = installed.site, installed.node
    with without_class(site):
        installed.restart()
        why = installed.wait_why("^not ready: a trn1.2xlarge has Neuron chips, but sysfs shows none")
        assert "is the neuron kernel module loaded?" in why
        node.wait_event(node.name, "HardwareMissing: a trn1.2xlarge")
        until(lambda: container(installed)["started"], what="alive: it can still undo claims", timeout=SECONDS)
        assert container(installed)["restartCount"] == 0
        assert not installed.is_ready()
        until(lambda: not site.slices(), what="no slice", timeout=SECONDS, seen=site.slices)
    installed.wait_ready()  # the module is loaded late
    site.wait_cores(2)


def test_bc004_wrong_kubelet_root_is_told_by_the_kubelet_and_the_old_pod_serves_on(installed: Installed) -> None:
    site, node, old = installed.site, installed.node, installed.name
    slices = site.identities()
    command = ("upgrade", "coreslice", str(CHART), "--reuse-values", "--namespace", NAMESPACE)
    node.helm(*command, "--set", "kubelet.root=/var/lib/elsewhere")
    try:
        new = until(lambda: others(site, old), what="the new pod", timeout=SECONDS, seen=site.pods)[0]
        text = until(lambda: mount_failure(node, new), what="an Event", timeout=SECONDS, seen=lambda: events(node, new))
        assert "hostPath type check failed" in text
        assert 'path "/var/lib/elsewhere/plugins_registry" does not exist' in text
        assert node.api.get("pods", new, NAMESPACE)["status"]["phase"] == "Pending"
        assert node.api.get("pods", old, NAMESPACE)["status"]["containerStatuses"][0]["ready"]
        assert site.identities() == slices
    finally:
        site.upgrade()
    installed.wait_ready()
    assert site.identities() == slices
    installed.run_claim_pods("user")


def container(installed: Installed) -> Object:
    """Status of the driver's container."""
    status: Object = installed.pod()["status"]["containerStatuses"][0]
    return status


def others(site: Site, old: str) -> list[str]:
    return [name for pod in site.pods() if (name := pod["metadata"]["name"]) != old]


def events(node: Node, pod: str) -> list[str]:
    found = node.api.list("events", NAMESPACE, fieldSelector=f"involvedObject.name={pod}")
    return [f"{event['reason']}: {event['message']}" for event in found]


def mount_failure(node: Node, pod: str) -> str:
    return next((text for text in events(node, pod) if text.startswith("FailedMount: ") and "registry" in text), "")


# Without the gate ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateless() -> Iterator[Installed]:
    """The release on a node and control plane of its own with the gate off everywhere."""
    with lone_node(Options(feature_gates={GATE: False}, audit=AUDIT_METADATA)) as node:
        node.load_image(driver_image.build())
        with Site.prepared(node, folder="m") as site:
            site.label(f"{LABEL}=true")
            site.install("--wait", "--timeout", "120s")
            yield Installed(site)
            node.clean()


def device_names(slices: list[Object]) -> list[str]:
    return [device["name"] for device in overlap.devices(slices)]


def test_cluster_without_the_gate_gets_whole_chips_and_is_told(gateless: Installed) -> None:
    node, site = gateless.node, gateless.site
    assert image_of(gateless.pod()) == driver_image.REFERENCE
    until(lambda: device_names(site.slices()) == ["chip-0"], what="the chip", timeout=SECONDS, seen=site.slices)
    why = gateless.wait_why("^ready: published")
    event = node.wait_event(node.name, "CountersDropped: ")
    for text in (why, event["message"]):
        assert "drops shared counters" in text
        assert GATE in text
    assert "only whole chips are offered" in event["message"]
    assert gateless.metrics("coreslice_counters_dropped") == {(): 1}
    assert gateless.metrics("coreslice_devices")["chip",] == 1
    for name in ("neuron-core", "neuron-chip"):
        node.apply(objects.template(name, r=name))
        node.apply(objects.pod(name, objects.container(claims=["c"]), claims={"c": f"template/{name}"}))
    node.wait_pod("neuron-chip", timeout=SECONDS)
    assert "cannot allocate all claims" in node.wait_unschedulable("neuron-core")
    assert device_names(site.slices()) == ["chip-0"]
