"""Several containers of one pod: each sees its own grant."""

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.grants import by_core, held, on_chip, prepare_calls, records, seen

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("nothing_held_after")]

ONE_CORE = {"deviceclass.resource.kubernetes.io/neuron-core": 1}


def assert_one_core_each(driver: Driver, pod: str, first: str, second: str) -> None:
    grants = by_core(seen(driver, pod, first), seen(driver, pod, second))
    assert grants == [on_chip(driver, "0"), on_chip(driver, "1")]


def test_two_claims_for_two_containers(driver: Driver, classes: list[Object]) -> None:
    """One call, but two units: a claim doesn't depend on one that no container of its own uses."""
    driver.node.apply(objects.template("core", c="neuron-core"))
    containers = [objects.container(name, claims=[name]) for name in ("a", "b")]
    before = prepare_calls(driver)
    driver.node.run_pod(objects.pod("p", *containers, claims={"a": "template/core", "b": "template/core"}))
    assert_one_core_each(driver, "p", "a", "b")
    assert prepare_calls(driver) == before + 1
    assert [item["unit"] for item in records(driver)] == [[item["claim"]["uid"]] for item in records(driver)]


def test_two_requests_of_one_claim_for_two_containers(driver: Driver, classes: list[Object]) -> None:
    driver.node.apply(objects.template("both", a="neuron-core", b="neuron-core"))
    containers = [objects.container(name, claims=[("c", name)]) for name in ("a", "b")]
    driver.node.run_pod(objects.pod("p", *containers, claims={"c": "template/both"}))
    assert list(held(driver).values()) == [["core-0-0", "core-0-1"]]
    assert_one_core_each(driver, "p", "a", "b")


def test_two_requests_of_one_claim_for_one_container(driver: Driver, classes: list[Object]) -> None:
    driver.node.apply(objects.template("both", a="neuron-core", b="neuron-core"))
    driver.node.run_pod(objects.pod("p", objects.container(claims=["c"]), claims={"c": "template/both"}))
    assert seen(driver, "p") == on_chip(driver, "0-1")


def test_init_container_has_the_core_that_the_main_one_gets(driver: Driver, classes: list[Object]) -> None:
    """They run one after the other, so the scheduler gives both one device."""
    first = objects.container("first", stays=False, resources=ONE_CORE)
    driver.node.run_pod(objects.pod("p", objects.container(resources=ONE_CORE), init=[first]))
    assert list(held(driver).values()) == [["core-0-0"]]
    assert seen(driver, "p", "first") == on_chip(driver, "0")
    assert seen(driver, "p") == on_chip(driver, "0")


def test_sidecar_has_a_core_beside_that_of_the_main_container(driver: Driver, classes: list[Object]) -> None:
    sidecar = objects.container("sidecar", resources=ONE_CORE, restartPolicy="Always")
    driver.node.run_pod(objects.pod("p", objects.container(resources=ONE_CORE), init=[sidecar]))
    assert list(held(driver).values()) == [["core-0-0", "core-0-1"]]
    assert_one_core_each(driver, "p", "sidecar", "main")
