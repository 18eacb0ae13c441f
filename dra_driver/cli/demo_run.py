"""The demo's run: a simulated machine and cluster, the old way, then the real driver; facts in, nothing printed.

Each act has a cluster of its own in the same scratch folder. The driver is a process of its own and meets the
simulation where it meets a real node: HTTP, the kubelet's sockets, sysfs and the CDI directory.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dra_driver.cli.demo_story import (
    ChipFacts,
    Ending,
    MachineFacts,
    NodeFacts,
    OnePool,
    PodFacts,
    Published,
    PublishedDevice,
    Story,
    TwoLedgers,
    check,
)
from dra_driver.errors import CoresliceError
from dra_driver.inventory.classes import chip_class, core_class, device_classes
from dra_driver.inventory.devices import from_wire, physical_cores
from dra_driver.legacy.device_plugin import CHIP_RESOURCE, CORE_RESOURCE, DevicePlugin
from dra_driver.neuron.machine import Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.allocator import results
from dra_driver.simulator.cluster import Cluster
from dra_driver.simulator.container import ContainerView
from dra_driver.simulator.daemon import DriverProcess
from dra_driver.simulator.kubelet import Timing
from dra_driver.simulator.machines import MachinePaths, make_machine
from dra_driver.simulator.pools import gather

DRIVER_NAME = "neuron.coreslice.dev"
A, B = "pod-a", "pod-b"
HALVES = ("pod-c", "pod-d")
_START = 20.0  # the driver's process, on a machine that is busy
_BASE_ENV = {"PATH"}


@dataclass
class Run:
    """One run. `tell` gets the story so far whenever a part is complete."""

    size: str
    scratch: Path
    tell: Callable[[Story], None] = lambda _: None
    story: Story = field(default_factory=Story)

    def run(self) -> Story:
        """Everything; a failure becomes part of the story, an interrupt passes through."""
        started = time.monotonic()
        try:
            paths, machine = self._machine()
            self._old(machine)
            self._new(paths, machine)
        except (CoresliceError, OSError) as error:
            self.story = replace(self.story, failure=str(error))
        seconds = round(time.monotonic() - started, 2)
        self.story = replace(self.story, seconds=seconds, checks=check(self.story))
        return self.story

    def _add(self, **part: Any) -> None:
        self.story = replace(self.story, **part)
        self.tell(self.story)

    def _machine(self) -> tuple[MachinePaths, Machine]:
        paths = make_machine(self.size, self.scratch / "m")
        machine = read_machine(sysfs_root=paths.sysfs, proc_root=paths.proc)
        chips = tuple(
            ChipFacts(chip.index, chip.family, chip.physical_cores, chip.serial, f"{chip.major}:{chip.minor}")
            for chip in machine.chips
        )
        self._add(machine=MachineFacts(machine.instance_type, machine.driver_version, chips))
        return paths, machine

    def _old(self, machine: Machine) -> None:
        with (
            Cluster(self.scratch / "o", machine=machine) as cluster,
            DevicePlugin(machine, cluster.paths.device_plugins) as plugin,
        ):
            self._add(two_ledgers=_two_ledgers(cluster, plugin, _cores(machine)))

    def _new(self, paths: MachinePaths, machine: Machine) -> None:
        cores = _cores(machine)
        # The real kubelet wipes the slices of a driver 30 s after it is gone; here at once.
        with Cluster(self.scratch / "n", timing=Timing(wipe_delay=0.1)) as cluster:
            for each in (
                *device_classes(DRIVER_NAME),
                *map(_template, (chip_class(1), core_class(cores), core_class(1))),
            ):
                cluster.create(each)
            driver = DriverProcess.on(cluster, paths, driver_name=DRIVER_NAME)
            with driver, _log_of(driver):
                self._add(one_pool=_one_pool(cluster, _published(cluster, driver), cores))
                self._add(ending=_stop(cluster, driver))


@contextmanager
def _log_of(driver: DriverProcess) -> Iterator[None]:
    """Gives an error the end of the driver's log, which goes with the scratch folder."""
    try:
        yield
    except CoresliceError as error:
        raise CoresliceError(f"{error}\nend of the driver's log:\n{driver.tail()}") from error


def _cores(machine: Machine) -> int:
    return machine.chips[0].physical_cores


def _two_ledgers(cluster: Cluster, plugin: DevicePlugin, cores: int) -> TwoLedgers:
    offered = {CHIP_RESOURCE: 1, CORE_RESOURCE: cores}
    cluster.wait(f"the node offers {offered}", lambda: _allocatable(cluster) == {k: str(v) for k, v in offered.items()})
    cluster.create(_old_pod(A, CHIP_RESOURCE, 1))
    cluster.wait_running(A)
    left = cluster.kubelet.devices.available()
    cluster.create(_old_pod(B, CORE_RESOURCE, cores))
    cluster.wait_running(B)
    return TwoLedgers(
        sockets={name: path.name for name, path in plugin.sockets.items()},
        offered={name: int(count) for name, count in _allocatable(cluster).items()},
        left_after_a=left,
        a=_old_facts(cluster, plugin, A, f"{CHIP_RESOURCE}: 1"),
        b=_old_facts(cluster, plugin, B, f"{CORE_RESOURCE}: {cores}"),
    )


def _allocatable(cluster: Cluster) -> Mapping[str, str]:
    node = cluster.store.get("nodes", cluster.node_name)
    found: Mapping[str, str] = (node.get("status") or {}).get("allocatable") or {}
    return found


def _old_facts(cluster: Cluster, plugin: DevicePlugin, name: str, asks: str) -> PodFacts:
    pod = _pod(cluster, name)
    allocations = cluster.node.allocations(pod["metadata"]["uid"])
    cores = [core for one in allocations for core in plugin.ledgers[one.resource].grant(one.ids).cores]
    facts = PodFacts(name, asks, pod["status"]["phase"], cores=tuple(sorted(cores)))
    ids = tuple(device for one in allocations for device in one.ids)
    return _seen(replace(facts, devices=ids), cluster.views(name)["main"])


def _published(cluster: Cluster, driver: DriverProcess) -> Published:
    def complete() -> Published | None:
        driver.check()
        slices = cluster.store.list("resourceslices", fields={"spec.driver": DRIVER_NAME})
        pools = gather(slices, node=cluster.node_name)
        return _facts_of(driver.pid, slices) if pools and not pools[0].problem else None

    return cluster.wait("the driver publishes its slices", complete, _START)


def _facts_of(pid: int, slices: Sequence[Mapping[str, Any]]) -> Published:
    sets = [each for item in slices for each in item["spec"].get("sharedCounters") or ()]
    devices = [from_wire(wire) for item in slices for wire in item["spec"].get("devices") or ()]
    return Published(
        pid=pid,
        slices=tuple(item["metadata"]["name"] for item in slices),
        pool=slices[0]["spec"]["pool"]["name"],
        counters={name: value["value"] for each in sets for name, value in each["counters"].items()},
        devices=tuple(
            PublishedDevice(device.name, device.type.value, device.cores, _draws(device.wire)) for device in devices
        ),
    )


def _draws(wire: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: value["value"]
        for entry in wire.get("consumesCounters") or ()
        for name, value in entry["counters"].items()
    }


def _one_pool(cluster: Cluster, published: Published, cores: int) -> OnePool:
    chip, whole, core = chip_class(1), core_class(cores), core_class(1)
    cluster.create(_new_pod(A, chip))
    cluster.wait_running(A)
    for_chip, for_cores, for_one = f"1 chip (class {chip})", f"{cores} cores (class {whole})", f"1 core (class {core})"
    a = _new_facts(cluster, A, for_chip)
    cluster.create(_new_pod(B, whole))
    b_waits = _waiting(cluster, B, for_cores)
    _end(cluster, A)
    cluster.wait_running(B)
    b_runs = _new_facts(cluster, B, for_cores)
    for name in HALVES:
        cluster.create(_new_pod(name, core))
    halves_wait = tuple(_waiting(cluster, name, for_one) for name in HALVES)
    _end(cluster, B)
    for name in HALVES:
        cluster.wait_running(name)
    halves = tuple(_new_facts(cluster, name, for_one) for name in HALVES)
    for name in HALVES:
        _end(cluster, name)
    return OnePool(published, a, b_waits, b_runs, halves_wait, halves)


def _waiting(cluster: Cluster, name: str, asks: str) -> PodFacts:
    reason = cluster.wait_unschedulable(name)
    return replace(_new_facts(cluster, name, asks), reason=reason)


def _end(cluster: Cluster, name: str) -> None:
    cluster.delete_pod(name)
    cluster.wait_gone(name)


def _new_facts(cluster: Cluster, name: str, asks: str) -> PodFacts:
    """A pod with the devices of its claims; their cores from what the driver published of them."""
    pod = _pod(cluster, name)
    wires = {
        wire["name"]: wire
        for item in cluster.store.list("resourceslices")
        for wire in item["spec"].get("devices") or ()
    }
    owned = [
        claim
        for claim in cluster.store.list("resourceclaims")
        if any(ref["uid"] == pod["metadata"]["uid"] for ref in claim["metadata"]["ownerReferences"])
    ]
    devices = tuple(result["device"] for claim in owned for result in results(claim))
    cores = [core for device in devices for core in physical_cores(from_wire(wires[device]))]
    phase = (pod.get("status") or {}).get("phase", "Pending")
    facts = PodFacts(name, asks, phase, devices=devices, cores=tuple(sorted(cores)))
    view = cluster.views(name).get("main")
    return _seen(facts, view) if view else facts


def _seen(facts: PodFacts, view: ContainerView) -> PodFacts:
    nodes = tuple(
        NodeFacts(node.path, node.host_path, f"{node.major}:{node.minor}", node.permissions) for node in view.nodes
    )
    return replace(facts, nodes=nodes, env={name: value for name, value in view.env if name not in _BASE_ENV})


def _pod(cluster: Cluster, name: str) -> Mapping[str, Any]:
    pod = cluster.pod(name)
    if pod is None:
        raise CoresliceError(f"pod {name} is gone")
    return pod


def _stop(cluster: Cluster, driver: DriverProcess) -> Ending:
    """Stop the driver, and look at what is left on the node and in the API."""
    paths = cluster.paths
    cluster.wait("no claim is left", lambda: not cluster.store.list("resourceclaims"))
    status = driver.stop()
    cluster.wait("the kubelet wipes the slices", lambda: not cluster.store.list("resourceslices"))
    own = [path for folder in (paths.plugins, paths.registry) for path in sorted(folder.rglob("*"))]
    return Ending(
        exit_status=status,
        sockets=tuple(path.name for path in own if path.is_socket()),
        cdi_specs=tuple(path.name for path in sorted(paths.cdi.iterdir())),
        records=tuple(path.name for path in own if path.suffix == ".record"),
        claims=_names(cluster, "resourceclaims"),
        slices=_names(cluster, "resourceslices"),
    )


def _names(cluster: Cluster, plural: str) -> tuple[str, ...]:
    return tuple(item["metadata"]["name"] for item in cluster.store.list(plural))


def _old_pod(name: str, resource: str, amount: int) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {resource: str(amount)}}}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def _new_pod(name: str, class_name: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "resourceClaims": [{"name": "accelerator", "resourceClaimTemplateName": class_name}],
            "containers": [{"name": "main", "resources": {"claims": [{"name": "accelerator"}]}}],
        },
    }


def _template(class_name: str) -> dict[str, Any]:
    """A template that asks for one device of the class, under the class's name."""
    request = {"name": "device", "exactly": {"deviceClassName": class_name}}
    return {
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": class_name},
        "spec": {"spec": {"devices": {"requests": [request]}}},
    }
