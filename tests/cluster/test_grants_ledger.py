"""Cores and chips come from one ledger, whichever way a pod asks for them."""

from collections.abc import Callable

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.grants import by_core, on_chip, seen, wait_waiting
from testbed.node import Node

from dra_driver.inventory.classes import device_classes

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("nothing_held_after")]

OLD_NAMES = {"neuron-chip": "aws.amazon.com/neuron", "neuron-core": "aws.amazon.com/neuroncore"}

Ask = Callable[[str, str], Object]


def by_claim(name: str, device_class: str) -> Object:
    """A pod that names a claim template."""
    return objects.pod(name, objects.container(claims=["c"]), claims={"c": f"template/{device_class}"})


def by_old_name(name: str, device_class: str, count: int = 1) -> Object:
    """A pod as it was written for the device plugin."""
    return objects.pod(name, objects.container(resources={OLD_NAMES[device_class]: count}))


@pytest.fixture
def offer(driver: Driver) -> Node:
    """The classes with the old names on two of them, and a template for each of the two."""
    node = driver.node
    node.apply(*device_classes(driver.name, extended_names=OLD_NAMES))
    node.apply(*(objects.template(name, c=name) for name in OLD_NAMES))
    return node


@pytest.mark.parametrize("ask", [by_claim, by_old_name])
def test_two_core_pods_run_side_by_side_and_the_chip_waits_for_both(driver: Driver, offer: Node, ask: Ask) -> None:
    offer.apply(ask("a", "neuron-core"), ask("b", "neuron-core"))
    offer.wait_pod("a")
    offer.wait_pod("b")
    first = seen(driver, "a")
    assert by_core(first, seen(driver, "b")) == [on_chip(driver, "0"), on_chip(driver, "1")]

    offer.apply(ask("whole", "neuron-chip"))
    wait_waiting(offer, "whole", "cannot allocate all claims")
    offer.delete_pods("a")
    offer.run_pod(ask("c", "neuron-core"))
    assert seen(driver, "c") == first
    assert "nodeName" not in offer.api.get("pods", "whole")["spec"]

    offer.delete_pods("b", "c")
    offer.wait_pod("whole")
    assert seen(driver, "whole") == on_chip(driver)


def test_old_pod_specs_for_a_chip_and_for_two_cores_wait_for_each_other(driver: Driver, offer: Node) -> None:
    """Two names with a ledger each admit both pods to the same cores. Here the second waits."""
    offer.run_pod(by_old_name("a", "neuron-chip"))
    assert seen(driver, "a") == on_chip(driver)
    offer.apply(by_old_name("b", "neuron-core", 2))
    wait_waiting(offer, "b", "cannot allocate all claims")
    offer.delete_pods("a")
    offer.wait_pod("b")
    assert seen(driver, "b") == on_chip(driver, "0-1")


def test_two_cores_by_count_are_two_results_of_one_claim(driver: Driver, offer: Node) -> None:
    """Each result has a CDI device of its own; the container gets both cores, not those of the last one."""
    offer.run_pod(by_old_name("b", "neuron-core", 2))
    status = offer.api.get("pods", "b")["status"]["extendedResourceClaimStatus"]
    claim = offer.api.get("resourceclaims", status["resourceClaimName"])
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [item["request"] for item in results] == ["container-0-request-0"] * 2
    assert {item["device"] for item in results} == {"core-0-0", "core-0-1"}
    assert seen(driver, "b") == on_chip(driver, "0-1")
