"""Somebody else has the same chips: nothing is published, the node stays Ready, and everybody can read why."""

import socket
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.legacy.device_plugin import CHIP_RESOURCE, CORE_RESOURCE, DevicePlugin
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.kubelet import PrepareError
from tests.contract.driver.conftest import DRIVER, NODE, Rig, eventually, listening

ALL = ["chip-0", "core-0-0", "core-0-1"]
SOON = "--rescan-interval=1"


def plugin(rig: Rig) -> DevicePlugin:
    """The device plugin of this machine, on the kubelet's sockets."""
    return DevicePlugin(
        read_machine(sysfs_root=rig.machine.sysfs, proc_root=rig.machine.proc), rig.paths.device_plugins
    )


@contextmanager
def running_plugin(rig: Rig) -> Iterator[None]:
    with plugin(rig):
        rig.kubelet.wait_allocatable(CHIP_RESOURCE, 1)
        rig.kubelet.wait_allocatable(CORE_RESOURCE, 2)
        yield


def offer(rig: Rig, **allocatable: str) -> None:
    """The node's status says so, as the kubelet writes it."""
    names = {"chips": CHIP_RESOURCE, "cores": CORE_RESOURCE}
    status(rig, allocatable={names[key]: amount for key, amount in allocatable.items()})


def status(rig: Rig, **fields: Any) -> None:
    node = rig.store.get("nodes", NODE)
    rig.store.update("nodes", {**node, "status": {**node.get("status", {}), **fields}}, subresource="status")


def wait_withheld(rig: Rig, pattern: str) -> str:
    """Ready, and no slice, with this reason in its last word on readiness; the whole text."""
    why = rig.wait_ready_because(pattern)
    assert why.startswith("withheld: ")
    assert rig.health("readiness") == "SERVING"
    assert rig.slices() == []
    return why


def wait_all_published(rig: Rig) -> None:
    eventually(
        lambda: sorted(rig.device_names()) == ALL, "all devices", seen=lambda: (rig.slices(), rig.process.tail())
    )
    rig.wait_ready_because("^published: ")


def conflicts(rig: Rig) -> set[str]:
    """Reasons that the metric shows."""
    return {labels["reason"] for labels, value in rig.metrics("coreslice_conflict") if value}


# BC-105, from the beginning to the end of a node's move


def test_bc105_device_plugin_then_its_container_then_nobody(rig: Rig) -> None:
    with running_plugin(rig):
        held = rig.kubelet.allocate(CHIP_RESOURCE, 1, pod="old-training")
        offer(rig, chips="1", cores="2")
        rig.launch(SOON)
        why = wait_withheld(rig, "a device plugin offers the same chips")
        assert "aws.amazon.com/neuron 1" in why
        assert "aws.amazon.com/neuroncore 2" in why
        assert "take it off this node" in why
        assert "default/old-training" in why
        assert any("offers the same chips" in text for text in rig.wait_events("DevicePluginActive"))
        assert conflicts(rig) == {"DevicePluginActive", "DevicePluginContainers"}
        assert rig.metrics("coreslice_withheld") == [({}, 1)]
    offer(rig, chips="0", cores="0")

    why = rig.wait_ready_because("^withheld: containers that a device plugin served")
    assert "default/old-training (main, 1 aws.amazon.com/neuron)" in why
    assert any("old-training" in text for text in rig.wait_events("DevicePluginContainers"))
    eventually(lambda: conflicts(rig) == {"DevicePluginContainers"}, "one reason left", seen=lambda: conflicts(rig))
    assert rig.slices() == [], "the plugin is gone, its container isn't"

    rig.kubelet.free(held)
    wait_all_published(rig)
    assert conflicts(rig) == set()
    assert rig.metrics("coreslice_withheld") == [({}, 0)]
    rig.prepare(rig.core("a"))


def test_bc105_plugin_that_comes_later_withdraws_what_is_published(rig: Rig) -> None:
    """Held devices too: with nothing listed nothing can be allocated, and what runs goes on."""
    rig.start()
    rig.prepare(ref := rig.core("a"))
    files = (rig.records(), rig.specs())
    with running_plugin(rig):
        wait_withheld(rig, "a device plugin offers the same chips")
        assert (rig.records(), rig.specs()) == files
        assert rig.said("^slices withdrawn: a device plugin")[0]["level"] == "WARNING"
    wait_all_published(rig)
    rig.unprepare(ref)
    assert (rig.records(), rig.specs()) == ([], [])


def test_bc105_claim_that_was_allocated_before_waits_for_the_plugins_containers(rig: Rig) -> None:
    rig.start(SOON, "--prepare-wait=0")
    rig.prepare(before := rig.core("before"))
    with running_plugin(rig):
        held = rig.kubelet.allocate(CORE_RESOURCE, 1, pod="old")
        rig.wait_ready_because("default/old")
        with pytest.raises(PrepareError, match=r"HeldByDevicePlugin: .*default/old"):
            rig.prepare(late := rig.core("late", "core-0-1"))
    assert rig.wait_events("HeldByDevicePlugin", late.uid)
    rig.unprepare(before)
    rig.kubelet.free(held)
    wait_all_published(rig)
    rig.prepare(late)


def test_plugin_that_is_gone_is_not_named_until_its_containers_are(rig: Rig) -> None:
    """The node's status lags behind by seconds; a plugin that was removed must not stand in the text for hours."""
    offer(rig, chips="1", cores="2")
    with running_plugin(rig):
        held = rig.kubelet.allocate(CHIP_RESOURCE, 1, pod="old-training")
        rig.launch(SOON)
        wait_withheld(rig, "a device plugin offers the same chips.*default/old-training")
    wait_withheld(rig, "in the node's status.*default/old-training")
    offer(rig, chips="0", cores="0")
    rig.wait_ready_because("^withheld: containers that a device plugin served")
    eventually(lambda: conflicts(rig) == {"DevicePluginContainers"}, "one reason left", seen=lambda: conflicts(rig))
    reads = len(rig.server.audit.rows("get"))
    looks = rig.kubelet.pod_resources
    assert looks
    seen = looks.lists
    eventually(lambda: looks.lists >= seen + 3, "looked again and again")
    assert len(rig.server.audit.rows("get")) == reads, "the Node is spared again"
    rig.kubelet.free(held)
    wait_all_published(rig)


def test_legacy_names_only_in_the_nodes_status(rig: Rig) -> None:
    """No other witness: the folders are empty, the kubelet tells of nothing."""
    offer(rig, chips="16")
    rig.launch(SOON)
    why = wait_withheld(rig, "aws.amazon.com/neuron 16 in the node's status")
    assert conflicts(rig) == {"DevicePluginActive"}
    assert any(text in why for text in rig.wait_events("DevicePluginActive"))
    offer(rig, chips="0")
    wait_all_published(rig)


def test_node_that_conflicts_costs_no_writes_and_no_reads_while_nothing_changes(rig: Rig) -> None:
    with running_plugin(rig):
        rig.launch(SOON)
        wait_withheld(rig, "a device plugin")
        rig.wait_events("DevicePluginActive")
        kubelet = rig.kubelet.pod_resources
        assert kubelet
        before, looks = rig.wait_idle(), kubelet.lists
        eventually(lambda: kubelet.lists >= looks + 3, "looked again and again")
        assert rig.server.audit.rows()[before:] == []


@pytest.mark.parametrize("where", ["registration", "plugin folder"])
def test_another_drivers_socket(rig: Rig, where: str) -> None:
    with ExitStack() as stack:
        stack.enter_context(other_driver(rig, "neuron.aws.com", where))
        rig.launch(SOON)
        why = wait_withheld(rig, "the DRA driver neuron.aws.com serves this node")
        assert "take one of the two off it" in why
        assert rig.wait_events("OtherDriverActive")
        assert conflicts(rig) == {"OtherDriverActive"}
    wait_all_published(rig)


def test_another_driver_that_comes_later(rig: Rig) -> None:
    rig.start()
    with other_driver(rig, "neuron.aws.com", "registration"):
        wait_withheld(rig, "neuron.aws.com serves this node")
    wait_all_published(rig)


def test_other_drivers_are_those_of_the_list(rig: Rig) -> None:
    """Ours, one whose name only begins alike, a foreign one, and a file that a dead one left are none of them."""
    dead = rig.paths.registry / "neuron.aws.com-reg.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    assert stat.S_ISSOCK(dead.stat().st_mode)
    with ExitStack() as stack:
        for name in ("neuron.aws.com.example.dev", "gpu.example.dev"):
            stack.enter_context(other_driver(rig, name, "registration"))
        rig.start(f"--other-drivers={DRIVER},neuron.aws.com")
        assert sorted(rig.device_names()) == ALL
        assert conflicts(rig) == set()


def other_driver(rig: Rig, name: str, where: str) -> AbstractContextManager[None]:
    """A live socket of that driver; nothing is served on it, so the kubelet doesn't get far with it."""
    folder = rig.paths.registry if where == "registration" else rig.paths.plugins / name
    folder.mkdir(exist_ok=True)
    return listening(folder / (f"{name}-1234-reg.sock" if where == "registration" else "dra.sock"))


# Policy


def test_warn_publishes_and_says_so(rig: Rig) -> None:
    with running_plugin(rig):
        held = rig.kubelet.allocate(CORE_RESOURCE, 1, pod="old")
        rig.start("--coexistence=warn")
        wait_all_published(rig)
        assert rig.wait_events("DevicePluginActive")
        assert rig.wait_events("DevicePluginContainers")
        assert conflicts(rig) == {"DevicePluginActive", "DevicePluginContainers"}
        rig.prepare(rig.core("a"))
        rig.kubelet.free(held)


def test_ignore_looks_at_nothing(rig: Rig) -> None:
    offer(rig, chips="1")
    with running_plugin(rig), other_driver(rig, "neuron.aws.com", "registration"):
        rig.start("--coexistence=ignore")
        wait_all_published(rig)
        assert conflicts(rig) == set()
        assert [event["reason"] for event in rig.store.list("events")] == []


def test_names_that_are_looked_for_are_settings(rig: Rig) -> None:
    with running_plugin(rig), other_driver(rig, "neuron.aws.com", "registration"):
        rig.start("--legacy-resource-names=example.dev/npu", "--other-drivers=none")
        wait_all_published(rig)


# What isn't there, and what doesn't answer


def test_folders_and_socket_that_arent_there_are_normal(rig: Rig) -> None:
    rig.start("--kubelet-device-plugins-dir=/nonexistent/dp", "--pod-resources-socket=/nonexistent/pr/kubelet.sock")
    wait_all_published(rig)
    assert [line for line in rig.lines() if line["level"] != "INFO"] == []
    assert not Path("/nonexistent").exists()


def test_legacy_names_are_found_without_podresources(rig: Rig) -> None:
    """The node's status is the witness then; it follows the plugin's sockets within seconds."""
    rig.start("--pod-resources-socket=/nonexistent/kubelet.sock", SOON)
    with running_plugin(rig):
        wait_withheld(rig, "a device plugin serves .*aws.amazon.com_neuron.sock")
        offer(rig, chips="1")
    rig.wait_ready_because("aws.amazon.com/neuron 1 in the node's status")
    offer(rig)
    wait_all_published(rig)


def test_podresources_that_dont_answer_are_not_taken_for_free_chips(rig: Rig) -> None:
    dead = rig.paths.root / "dead.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(dead))
    rig.launch(SOON, f"--pod-resources-socket={dead}")
    why = wait_withheld(rig, "can't be told")
    assert str(dead) in why
    assert conflicts(rig) == {"DevicePluginsUnknown"}
    dead.unlink()
    wait_all_published(rig)


def test_kubelet_that_restarts_has_freed_nothing(rig: Rig) -> None:
    with running_plugin(rig):
        rig.kubelet.allocate(CORE_RESOURCE, 1, pod="old")
        rig.launch(SOON)
        wait_withheld(rig, "default/old")
        rig.kubelet.stop()
        with socket.socket(socket.AF_UNIX) as server:  # as one that was killed leaves it
            server.bind(str(rig.paths.pod_resources / "kubelet.sock"))
        rig.wait_said("containers of a device plugin can't be looked for")
        assert conflicts(rig) >= {"DevicePluginContainers"}
        assert rig.slices() == []
        rig.kubelet.restart()  # this one knows no container yet
        eventually(lambda: rig.kubelet.pod_resources and rig.kubelet.pod_resources.lists >= 2, "asked again")
        assert conflicts(rig) >= {"DevicePluginContainers"}
        assert rig.slices() == []


# The node itself


@pytest.mark.parametrize("version", ["containerd://1.7.28", "containerd://1.6.0-rc.1", "containerd://v1.7.1"])
def test_runtime_that_has_cdi_off_by_default(rig: Rig, version: str) -> None:
    """It would start containers without their devices, silently."""
    status(rig, nodeInfo={"containerRuntimeVersion": version})
    rig.launch()
    why = wait_withheld(rig, f"the container runtime {version} has CDI off by default")
    assert "--assume-cdi" in why
    assert rig.wait_events("RuntimeWithoutCDI")
    assert conflicts(rig) == {"RuntimeWithoutCDI"}


@pytest.mark.parametrize("policy", ["warn", "ignore"])
def test_coexistence_has_no_say_over_a_runtime_without_cdi(rig: Rig, policy: str) -> None:
    status(rig, nodeInfo={"containerRuntimeVersion": "containerd://1.7.28"})
    rig.launch(f"--coexistence={policy}")
    wait_withheld(rig, "has CDI off by default")


@pytest.mark.parametrize(
    ("version", "options"),
    [("containerd://1.7.28", ["--assume-cdi=true"]), ("containerd://2.0.0", []), ("cri-o://1.34.1", []), ("", [])],
)
def test_runtime_with_cdi(rig: Rig, version: str, options: list[str]) -> None:
    status(rig, nodeInfo={"containerRuntimeVersion": version})
    rig.start(*options)
    wait_all_published(rig)
    assert conflicts(rig) == set()


def test_bc006_kubelet_that_stops_calling_drivers_is_warned_of_once(rig: Rig) -> None:
    status(rig, nodeInfo={"kubeletVersion": "v1.34.1-eks-113cf36"})
    rig.start(SOON)
    wait_all_published(rig)
    (text,) = rig.wait_events("KubeletDeadlocks")
    assert "v1.34.1-eks-113cf36" in text
    assert "1.34.2 or later" in text
    rig.prepare(rig.core("a"))
    assert len(rig.events("KubeletDeadlocks")) == 1
