"""The device plugin on a node of the installed driver: its sockets, its containers, and a resource name of both."""

import pytest
from testbed import objects
from testbed.api import Object
from testbed.waiting import until

from dra_driver.kubelet.sockets import SocketServer
from dra_driver.legacy.device_plugin import CHIP_RESOURCE, CORE_RESOURCE
from tests.install.cases.conftest import SECONDS, Installed, device_plugin, wait_allocatable

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

NAMED: Object = {"classes": {"extendedResourceNames": {"neuron-chip": CHIP_RESOURCE}}}


def wait_withheld(installed: Installed, pattern: str) -> str:
    """Nothing is published, for this reason, and the pod is Ready all the same; the whole reason."""
    why = installed.wait_why(f"^ready: withheld: .*{pattern}")
    assert installed.site.slices() == []
    assert installed.is_ready()
    assert installed.site.daemon_set()["status"]["numberReady"] == 1
    return why


def legacy_pod(name: str) -> Object:
    """A pod of before the move: a chip by its old name."""
    return objects.pod(name, objects.container(resources={CHIP_RESOURCE: 1}))


def test_bc105_device_plugin_then_its_container_then_nobody(installed: Installed) -> None:
    node, site = installed.node, installed.site
    site.wait_cores(2)
    with device_plugin(site):
        why = wait_withheld(installed, "a device plugin offers the same chips")
        assert f"{CHIP_RESOURCE} 1" in why
        assert f"{CORE_RESOURCE} 2" in why
        assert "take it off this node" in why
        node.wait_event(node.name, "DevicePluginActive: a device plugin")
        assert installed.conflicts() == {"DevicePluginActive"}
        assert installed.metrics("coreslice_withheld") == {(): 1}
        assert set(installed.metrics("coreslice_devices").values()) == {0}
        node.apply(legacy_pod("old-training"))
        node.wait_pod("old-training", timeout=SECONDS)
        assert list(node.view("old-training").nodes) == ["/dev/neuron0"]
        installed.restart()  # one that has published nothing before
        installed.wait_ready()
        wait_withheld(installed, "a device plugin offers the same chips.*default/old-training")

    why = installed.wait_why("^ready: withheld: containers that a device plugin served")
    assert f"default/old-training (main, 1 {CHIP_RESOURCE})" in why
    wait_allocatable(node, CHIP_RESOURCE, some=False)
    wait_withheld(installed, "default/old-training")
    node.wait_event(node.name, "DevicePluginContainers: .*default/old-training")
    until(
        lambda: installed.conflicts() == {"DevicePluginContainers"},
        what="one reason left",
        timeout=SECONDS,
        seen=installed.conflicts,
    )
    assert site.slices() == [], "the plugin is gone, its container isn't"

    node.delete_pods("old-training")
    site.wait_cores(2)
    installed.wait_why("^ready: published")
    assert installed.conflicts() == set()
    assert installed.metrics("coreslice_withheld") == {(): 0}
    installed.run_claim_pods("user")


def test_bc107_device_plugin_wins_over_a_class_of_the_same_name(installed: Installed) -> None:
    """Both on one node, which `warn` allows: the scheduler goes by the node's status first, and asks no driver."""
    node, site = installed.node, installed.site
    site.upgrade(coexistence={"policy": "warn"}, policies={"pods": False}, **NAMED)
    installed.wait_ready()
    try:
        with device_plugin(site):
            node.wait_event(node.name, "DevicePluginActive: ")
            assert site.slices(), "published, with a warning"
            node.apply(legacy_pod("by-plugin"))
            node.wait_pod("by-plugin", timeout=SECONDS)
            assert "extendedResourceClaimStatus" not in node.api.get("pods", "by-plugin")["status"]
            assert node.api.list("resourceclaims") == []
            assert site.records() == []
            node.delete_pods("by-plugin")
        wait_allocatable(node, CHIP_RESOURCE, some=False)
        node.apply(legacy_pod("by-class"))
        pod = node.wait_pod("by-class", timeout=SECONDS)
        assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        assert len(site.records()) == 1
        assert list(node.view("by-class").nodes) == ["/dev/neuron0"]
        node.delete_pods("by-class")
    finally:
        installed.tidy()
        site.upgrade()


def test_bc105_another_driver_of_the_list(installed: Installed) -> None:
    """AWS's own: that somebody listens on its registration socket is enough."""
    node, site = installed.node, installed.site
    server = SocketServer(site.node.paths.registry / "neuron.aws.com-reg.sock", add=lambda _: None, workers=1, name="o")
    server.start()
    try:
        why = wait_withheld(installed, "the DRA driver neuron.aws.com serves this node")
        assert str(server.path) in why
        assert "take one of the two off it" in why
        node.wait_event(node.name, "OtherDriverActive: ")
        assert installed.conflicts() == {"OtherDriverActive"}
    finally:
        server.unlink()
        server.stop(0)
    site.wait_cores(2)
