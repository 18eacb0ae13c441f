"""Faults that were seen in the field, on the whole path: examples as users apply them, the real driver as a process.

Each test is named after its case. Scheduler and kubelet are simulated; what a container sees comes from CDI files.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.inventory.classes import device_classes
from dra_driver.settings import DRIVER_NAME
from dra_driver.simulator.cluster import Cluster
from dra_driver.simulator.container import ContainerView
from dra_driver.simulator.daemon import DriverProcess
from dra_driver.simulator.machines import make_machine

ROOT = Path(__file__).parents[3]
CORES = "NEURON_RT_VISIBLE_CORES"


@pytest.fixture
def start(cluster: Cluster, folder: Path) -> Iterator[Callable[..., None]]:
    """The driver on a machine of a size, and its classes."""
    with ExitStack() as stack:

        def start(size: str = "trn1.2xlarge", *extra: str) -> None:
            machine = make_machine(size, folder / "m", stats=False)
            driver = stack.enter_context(DriverProcess.on(cluster, machine, driver_name=DRIVER_NAME, extra=extra))
            for each in device_classes(DRIVER_NAME):
                cluster.create(each)
            cluster.kubelet.wait_registered(DRIVER_NAME, timeout=30)
            driver.check()

        yield start


def example(cluster: Cluster, name: str) -> dict[str, ContainerView]:
    """What the containers of the example's pod see, which is named as its file is."""
    for each in yaml.safe_load_all((ROOT / f"deploy/examples/{name}.yaml").read_text()):
        cluster.create(each)
    cluster.wait_running(name, timeout=30)
    return cluster.views(name)


def hosts(view: ContainerView) -> list[tuple[str, str]]:
    return [(node.path, node.host_path) for node in view.nodes]


def asking(name: str, device_class: str) -> list[dict[str, Any]]:
    """A template and a pod of that name with one device of the class."""
    requests = [{"name": "r", "exactly": {"deviceClassName": device_class}}]
    template = {"kind": "ResourceClaimTemplate", "metadata": {"name": name}}
    template["spec"] = {"spec": {"devices": {"requests": requests}}}
    container = {"name": "main", "resources": {"claims": [{"name": "r"}]}}
    spec = {"resourceClaims": [{"name": "r", "resourceClaimTemplateName": name}], "containers": [container]}
    return [template, {"kind": "Pod", "metadata": {"name": name}, "spec": spec}]


def test_bc066_core_numbers_are_the_containers_own(cluster: Cluster, start: Callable[..., None]) -> None:
    """The last core of an inf2.24xlarge is core 11 of the host; its container has one chip, and that chip's core 1."""
    start("inf2.24xlarge")
    seen = []
    for at in range(12):
        for each in asking(f"pod-{at}", "neuron-core"):
            cluster.create(each)
        cluster.wait_running(f"pod-{at}", timeout=30)
        view = cluster.views(f"pod-{at}")["main"]
        seen.append((hosts(view), view.variable(CORES)))
    assert seen == [([("/dev/neuron0", f"/dev/neuron{at // 2}")], str(at % 2)) for at in range(12)]


@pytest.mark.parametrize(
    ("flags", "size", "cores"),
    [
        ((), "trn1.2xlarge", None),
        (("--visible-cores-on-chips=true",), "trn1.2xlarge", "0-1"),
        (("--visible-cores-on-chips=true",), "trn2.3xlarge", "0-3"),
    ],
    ids=["by default", "told on chips too", "told in logical cores"],
)
def test_bc067_what_a_container_is_told_of_its_cores(
    cluster: Cluster, start: Callable[..., None], flags: tuple[str, ...], size: str, cores: str | None
) -> None:
    """A core claim always has its list; a chip's would override the pod's own NEURON_RT_NUM_CORES."""
    start(size, *flags)
    assert example(cluster, "one-core")["main"].variable(CORES) == "0"
    cluster.delete_pod("one-core")
    cluster.wait_gone("one-core", timeout=30)
    assert example(cluster, "one-chip")["main"].variable(CORES) == cores


def test_bc067_the_documented_split_gives_each_process_its_own_cores(
    cluster: Cluster, start: Callable[..., None]
) -> None:
    """The README's workers share out exactly what the container has, and nothing overrides what they say."""
    start()
    view = example(cluster, "one-chip")["main"]
    assert (hosts(view), view.variable(CORES)) == ([("/dev/neuron0", "/dev/neuron0")], None)
    (pod,) = [
        found
        for text in re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        for found in yaml.safe_load_all(text)
        if found["metadata"]["name"] == "two-workers"
    ]
    assert pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] == "one-chip"
    (container,) = pod["spec"]["containers"]
    assert re.findall(rf"{CORES}=(\S+) worker &", container["command"][-1]) == ["0", "1"]


def test_bc069_two_containers_of_a_pod_have_a_core_each(cluster: Cluster, start: Callable[..., None]) -> None:
    """By the template named twice: neither container sees the other's core, whichever process starts first."""
    start("inf2.24xlarge")
    example(cluster, "one-core")  # so that the two have cores of different chips
    views = example(cluster, "two-containers")
    seen = {name: (hosts(view), view.variable(CORES)) for name, view in views.items()}
    assert seen == {
        "a": ([("/dev/neuron0", "/dev/neuron0")], "1"),
        "b": ([("/dev/neuron0", "/dev/neuron1")], "0"),
    }
