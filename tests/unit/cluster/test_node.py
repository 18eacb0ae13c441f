"""What a Node object says of device plugins, runtime and kubelet."""

from typing import Any

import pytest

from dra_driver.cluster import node

NAMES = ("aws.amazon.com/neuron", "aws.amazon.com/neuroncore")


def told(**info: str) -> dict[str, Any]:
    return {"status": {"nodeInfo": info}}


@pytest.mark.parametrize(
    ("offered", "found"),
    [
        ({"aws.amazon.com/neuron": "16", "cpu": "8"}, {"aws.amazon.com/neuron": "16"}),
        ({"aws.amazon.com/neuron": "0", "aws.amazon.com/neuroncore": "2"}, {"aws.amazon.com/neuroncore": "2"}),
        ({"aws.amazon.com/neuron": "0"}, {}),
        ({"aws.amazon.com/neurondevice": "1"}, {}),
        ({}, {}),
        (None, {}),
    ],
)
def test_bc105_allocatable_of_the_names(offered: Any, found: dict[str, str]) -> None:
    assert node.allocatable({"status": {"allocatable": offered}}, NAMES) == found


@pytest.mark.parametrize("obj", [{}, {"status": None}, {"status": {}}, {"status": {"nodeInfo": None}}])
def test_node_without_a_status_is_unknown(obj: dict[str, Any]) -> None:
    assert (node.allocatable(obj, NAMES), node.without_cdi(obj), node.deadlocking_kubelet(obj)) == ({}, "", "")


@pytest.mark.parametrize(
    ("runtime", "off"),
    [
        ("containerd://1.7.28", True),
        ("containerd://1.6.36-k3s1", True),
        ("containerd://v1.7.0", True),
        ("containerd://2.0.0", False),
        ("containerd://2.4.2", False),
        ("containerd://10.1.0", False),
        ("containerd://Unknown", False),
        ("cri-o://1.34.0", False),
        ("", False),
    ],
)
def test_runtime_with_cdi_off_by_default(runtime: str, *, off: bool) -> None:
    assert node.without_cdi(told(containerRuntimeVersion=runtime)) == (runtime if off else "")


@pytest.mark.parametrize(
    ("kubelet", "bad"),
    [
        ("v1.34.0", True),
        ("v1.34.1", True),
        ("v1.34.1-eks-113cf36", True),
        ("v1.34.2", False),
        ("v1.34.10", False),
        ("v1.33.1", False),
        ("v1.35.0-alpha.1", False),
        ("v1.340.1", False),
        ("", False),
    ],
)
def test_bc006_kubelets_that_deadlock(kubelet: str, *, bad: bool) -> None:
    assert node.deadlocking_kubelet(told(kubeletVersion=kubelet)) == (kubelet if bad else "")
