"""Claims that meet in one container are one unit: one call, one grant, all of it or nothing."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.grants import held, on_chip, prepare_calls, records, seen
from testbed.node import Node
from testbed.proxy import ApiProxy, api_proxy

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("nothing_held_after")]

# After an error the kubelet comes again only after 60 to 90 s.
PENALTY_SECONDS = 60.0
CLOSED = 0  # no answer at all


@pytest.fixture
def proxy(node: Node) -> Iterator[ApiProxy]:
    """Stands between driver and API server."""
    with api_proxy(node.stack) as proxy:
        yield proxy


@pytest.fixture
def driver_kubeconfig(proxy: ApiProxy) -> Path:
    return proxy.kubeconfig


def pair() -> Object:
    """A pod whose container uses two claims, made from one template."""
    both = {"first": "template/core", "second": "template/core"}
    return objects.pod("pair", objects.container(claims=["first", "second"]), claims=both)


def assert_one_unit(driver: Driver) -> None:
    """Both claims are held, each record with the UIDs of both: they were planned together."""
    assert sorted(held(driver).values()) == [["core-0-0"], ["core-0-1"]]
    uids = sorted(item["claim"]["uid"] for item in records(driver))
    assert [sorted(item["unit"]) for item in records(driver)] == [uids, uids]


def test_two_claims_in_one_container_are_one_call_and_one_grant(driver: Driver, classes: list[Object]) -> None:
    driver.node.apply(objects.template("core", c="neuron-core"))
    before = prepare_calls(driver)
    driver.node.run_pod(pair())
    assert seen(driver, "pair") == on_chip(driver, "0-1")
    assert prepare_calls(driver) == before + 1
    assert_one_unit(driver)


@pytest.mark.parametrize(
    ("path", "status"),
    [("/resourceclaims/pair-second-", 500), ("/resourceclaims/pair-second-", CLOSED), ("/pods/pair$", 500)],
    ids=["error 500 for the second claim", "connection closed on the second claim", "error 500 for the pod"],
)
def test_one_failure_of_the_api_costs_no_second_call(
    driver: Driver, classes: list[Object], proxy: ApiProxy, path: str, status: int
) -> None:
    """The driver asks again inside the call: a refusal would cost the pod a minute."""
    driver.node.apply(objects.template("core", c="neuron-core"))
    before, started = prepare_calls(driver), time.monotonic()
    fault = proxy.fail("GET", path, status=status)
    driver.node.run_pod(pair(), timeout=2 * PENALTY_SECONDS)
    assert time.monotonic() - started < PENALTY_SECONDS
    assert fault.hits == 1
    assert seen(driver, "pair") == on_chip(driver, "0-1")
    assert prepare_calls(driver) == before + 1
    assert_one_unit(driver)
