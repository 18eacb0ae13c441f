"""Who sees devices that aren't theirs: monitoring with adminAccess (BC-101), privileged containers (BC-103)."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from testbed import binaries, charts, driver_image, objects
from testbed.api import Object, path_of
from testbed.charts import Chart
from testbed.node import Node, View, parse_view, shown
from testbed.pod_driver import PodDriver
from testbed.waiting import until

from dra_driver.inventory.classes import device_classes
from dra_driver.neuron.catalogue import SIZES, Size

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WATCHERS = "watchers"
CLAIMS = path_of("resourceclaims", "{}")


@dataclass(frozen=True)
class Site:
    """The driver's pod, and device nodes for every chip on the node."""

    driver: PodDriver
    chips: int

    @property
    def node(self) -> Node:
        """The node."""
        return self.driver.node

    def device(self, chip: int) -> str:
        """What the node of that chip shows."""
        return f"{self.driver.major}:{chip}"


@pytest.fixture
def site(node: Node, request: pytest.FixtureRequest) -> Iterator[Site]:
    """A trn1.2xlarge, or the size that the test gives."""
    size: Size = getattr(request, "param", SIZES["trn1.2xlarge"])
    chips = size.chips
    driver = PodDriver(node, image=driver_image.REFERENCE, size=size)
    for chip in range(chips):
        node.make_device(f"neuron{chip}", driver.major, chip)
    try:
        node.apply(*device_classes(driver.name))
        driver.start()
        yield Site(driver, chips)
        node.clean(but=[driver.pod])
    finally:
        driver.close()
        for chip in range(chips):
            node.remove_device(f"neuron{chip}")
        shutil.rmtree(driver.machine.sysfs.parent)


# adminAccess ---------------------------------------------------------------------------------------


def monitor_claim(*, admin: bool = True) -> Object:
    """All chips of the node it lands on, to look at and not to hold."""
    request = {"deviceClassName": "neuron-chip", "allocationMode": "All", "adminAccess": admin}
    claim = objects.claim("all-chips")
    claim["spec"] = {"devices": {"requests": [{"name": "r", "exactly": request}]}}
    return claim


def monitor_pod(name: str) -> Object:
    pod = objects.pod(name, objects.container(claims=["c"]), claims={"c": "claim/all-chips"})
    pod["metadata"]["namespace"] = WATCHERS
    return pod


@pytest.fixture
def watchers(site: Site) -> Iterator[Site]:
    """The chart's claims policy in force, and a namespace in which claims may have adminAccess."""
    node = site.node
    chart = Chart(binaries.build(binaries.helm())["helm"])
    policy = [item for item in chart.objects() if item["metadata"]["name"] == "coreslice-claims"]
    assert len(policy) == 2
    label = {"resource.kubernetes.io/admin-access": "true"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": WATCHERS, "labels": label}}
    made = [json.dumps(item) for item in (namespace, *policy)]
    try:
        for item in made:
            node.kubectl("apply", "-f", "-", stdin=item)
        until(
            lambda: "coreslice-claims" in charts.refused(node.api, "POST", CLAIMS.format("default"), two_cores())[1],
            what="the policy in force",
            timeout=60,
        )
        yield site
    finally:
        for item in made:
            node.kubectl("delete", "-f", "-", "--wait", "--timeout=60s", "--ignore-not-found", stdin=item)


def two_cores() -> Object:
    claim = objects.claim("two", r="neuron-core")
    claim["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    return claim


def run_monitor(node: Node, name: str) -> View:
    """Until it runs; what it saw."""
    node.api.create(monitor_pod(name), WATCHERS)
    return view_of_monitor(node, name)


def view_of_monitor(node: Node, name: str) -> View:
    text = until(
        lambda: shown(node.kubectl("logs", name, "-n", WATCHERS, check=False).text),
        what=f"output of {name}",
        timeout=60,
        seen=lambda: node.kubectl("describe", "pod", name, "-n", WATCHERS, check=False).text,
    )
    return parse_view(text)


def end_monitor(node: Node, name: str) -> None:
    node.kubectl("delete", "pod", name, "-n", WATCHERS, "--wait", "--timeout=60s")


def unschedulable(node: Node, name: str) -> str:
    """Until the scheduler has said no; its message."""

    def said() -> str:
        status = node.api.get("pods", name, WATCHERS)["status"]
        return next(
            (row["message"] for row in status.get("conditions", []) if row.get("reason") == "Unschedulable"), ""
        )

    return until(said, what=f"{name} unschedulable", timeout=60)


def test_bc101_claim_for_all_chips_needs_admin_access_and_a_labelled_namespace(watchers: Site) -> None:
    """The policy takes adminAccess for what it is; the API server decides who may have it."""
    node = watchers.node
    code, text = charts.refused(node.api, "POST", CLAIMS.format(WATCHERS), monitor_claim(admin=False))
    assert (code, "asks all devices of class neuron-chip" in text) == (422, True), text
    code, text = charts.refused(node.api, "POST", CLAIMS.format("default"), monitor_claim())
    assert code == 422
    assert "resource.kubernetes.io/admin-access" in text
    assert charts.refused(node.api, "POST", CLAIMS.format(WATCHERS), monitor_claim()) == (0, "")


@pytest.mark.parametrize("used", ["neuron-chip", "neuron-core"])
def test_bc101_monitor_runs_while_the_chip_is_free_and_waits_while_it_is_used(watchers: Site, used: str) -> None:
    node = watchers.node
    node.api.create(monitor_claim(), WATCHERS)
    chip = {"/dev/neuron0": watchers.device(0)}
    seen = run_monitor(node, "first")
    assert seen.nodes == chip
    assert seen.cores is None

    # it holds nothing: who comes later gets the chip, or its first core, beside it
    node.apply(objects.template("used", r=used))
    node.run_pod(objects.pod("user", objects.container(claims=["c"]), claims={"c": "template/used"}))
    user = node.view("user")
    assert (user.nodes, user.cores) == (chip, "0" if used == "neuron-core" else None)
    end_monitor(node, "first")
    assert watchers.driver.cdi_files(), "the user's, who runs on"

    # the allocator charges it for the chip's counters all the same (kubernetes#140729)
    until(lambda: not node.api.get("resourceclaims", "all-chips", WATCHERS)["status"], what="deallocated", timeout=60)
    node.api.create(monitor_pod("second"), WATCHERS)
    assert "cannot allocate all claims" in unschedulable(node, "second")
    node.delete_pods("user")
    assert view_of_monitor(node, "second").nodes == chip
    end_monitor(node, "second")


# privileged ----------------------------------------------------------------------------------------

FOUR = replace(SIZES["trn1.2xlarge"], name="trn1.four", links=((1,), (0, 2), (1, 3), (2,)))  # made up
LAST = (
    'device.driver == "{0}" && device.attributes["{0}"].?type.orValue("") == "{1}" '
    '&& device.attributes["{0}"].?index.orValue(-1) == 3'
)


@pytest.mark.parametrize("site", [FOUR], ids=["four-chips"], indirect=True)
@pytest.mark.parametrize("kind", ["core", "chip"])
def test_bc103_privileged_container_sees_every_chip_and_still_its_own_first(site: Site, kind: str) -> None:
    """What the runtime gives to any privileged container; the grant's own node and environment stay on top."""
    node, name = site.node, site.driver.name
    node.apply(objects.device_class("last", LAST.format(name, kind)), objects.claim("mine", r="last"))
    for pod, all_of_it in (("plain", False), ("privileged", True)):
        main = objects.container(claims=["c"], securityContext={"privileged": all_of_it})
        node.run_pod(objects.pod(pod, main, claims={"c": "claim/mine"}))
    granted = {"/dev/neuron0": site.device(3)}
    everything = {f"/dev/neuron{chip}": site.device(chip) for chip in range(site.chips)}
    plain, privileged = node.view("plain"), node.view("privileged")
    assert plain.nodes == granted
    assert privileged.nodes == everything | granted
    assert privileged.cores == plain.cores == ("0" if kind == "core" else None)

    # what a node in /dev is worth: the device cgroup lets nobody open what it doesn't name, but the privileged
    assert "Operation not permitted" in opened(node, "plain", 1, site)
    assert "No such device or address" in opened(node, "privileged", 1, site)


def opened(node: Node, pod: str, chip: int, site: Site) -> str:
    """What opening another chip gives, by a node made for it. No driver has that number: ENXIO is as far as it gets."""
    major = site.driver.major
    return node.exec(pod, "sh", "-c", f"mknod /tmp/other c {major} {chip}; cat /tmp/other").text
