"""Each right of the account taken away in turn, on a real node: what the driver says, what still works, and that it
needs no restart when the right is back (BC-099).
"""

import shutil
from collections.abc import Callable, Mapping

import pytest
from testbed import objects
from testbed.node import Node
from testbed.waiting import until

from dra_driver.cluster.rights import CREATE_EVENTS, RIGHTS, Right
from dra_driver.settings import DRIVER_NAME
from dra_driver.simulator import machines

from .conftest import Trimmed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]

WAIT = 60.0


def run(driver: Trimmed, name: str, *, claims: int = 1) -> None:
    """A pod with that many claims of a core runs, and goes."""
    node = driver.node
    node.run_pod(pod(driver, name, claims=claims), timeout=WAIT)
    assert node.view(name).cores == ("0" if claims == 1 else "0-1")
    node.delete_pods(name)


def pod(driver: Trimmed, name: str, *, claims: int = 1) -> objects.Object:
    """Such a pod; its template is made if it isn't there."""
    if driver.node.api.find("resourceclaimtemplates", "one-core") is None:
        driver.node.apply(objects.template("one-core", r="neuron-core"))
    names = [f"c{index}" for index in range(claims)]
    return objects.pod(name, objects.container(claims=names), claims=dict.fromkeys(names, "template/one-core"))


def published(driver: Trimmed) -> str:
    """The driver's version as the slices have it."""
    devices = [device for item in driver.slices() for device in item["spec"].get("devices", [])]
    return str(devices[0]["attributes"]["driverVersion"]["version"]) if devices else ""


def uids(driver: Trimmed) -> dict[str, str]:
    """The slices: UID by name."""
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in driver.slices()}


# What each right's absence does. All begin with the driver's container running, and end with the right still missing.


def nothing_is_published(driver: Trimmed) -> None:
    driver.wait_why("not ready", "is forbidden")
    assert driver.slices() == []
    driver.node.apply(pod(driver, "waits"))
    driver.node.wait_unschedulable("waits")
    driver.node.delete_pods("waits")


def no_claim_is_prepared(driver: Trimmed) -> None:
    driver.wait_ready()
    driver.node.apply(pod(driver, "refused"))
    driver.node.wait_event("refused", 'ClaimUnreadable: .*verb "get" on "resourceclaims"', timeout=WAIT)
    driver.node.delete_pods("refused")
    assert driver.cdi_files() == []


def slices_are_restored_later(driver: Trimmed) -> None:
    driver.wait_ready()
    driver.wait_why("ready", "changes can't be followed")
    lost = driver.slices()[0]["metadata"]
    driver.node.api.delete("resourceslices", lost["name"])
    until(lambda: uids(driver).get(lost["name"]), what="the slice restored", timeout=WAIT, seen=driver.why)
    assert uids(driver)[lost["name"]] != lost["uid"]
    run(driver, "served")


def changes_are_not_published(driver: Trimmed) -> None:
    driver.wait_ready()
    run(driver, "served")
    before = published(driver)
    machines.put(driver.machine.sysfs / "module/neuron/version", "2.31.0.0\n")
    driver.wait_why("not ready", 'verb "update" on "resourceslices"')
    assert published(driver) == before


def slices_that_should_go_stay(driver: Trimmed) -> None:
    driver.wait_ready()
    run(driver, "served")
    shutil.rmtree(driver.machine.class_entry(0).parent)
    machines.put(driver.machine.sysfs / "devices/virtual/dmi/id/product_name", "m5.large\n")
    driver.wait_why("not ready", 'verb "delete" on "resourceslices"')
    assert driver.slices() != []


def pods_with_several_claims_are_refused(driver: Trimmed) -> None:
    driver.wait_ready()
    run(driver, "single")
    driver.node.apply(pod(driver, "several", claims=2))
    driver.node.wait_event("several", 'verb "get" on "pods"', timeout=WAIT)
    driver.node.delete_pods("several")


def events_are_in_the_log_only(driver: Trimmed) -> None:
    driver.wait_ready()
    run(driver, "served")
    assert [line for line in driver.said() if "RightMissing not recorded" in line["message"]] == []


def everything_works(driver: Trimmed) -> None:
    driver.wait_ready()
    run(driver, "served")


# What shows that it is back.


def a_pod_runs(driver: Trimmed) -> None:
    driver.wait_ready()
    run(driver, "after")


def several_claims_are_served(driver: Trimmed) -> None:
    run(driver, "after", claims=2)


def change_is_published(driver: Trimmed) -> None:
    until(lambda: published(driver).startswith("2.31.0"), what="the new version", timeout=WAIT, seen=driver.why)
    a_pod_runs(driver)


def slices_are_gone(driver: Trimmed) -> None:
    until(lambda: not driver.slices(), what="no slices", timeout=WAIT, seen=driver.why)
    driver.wait_why("ready", "no Neuron hardware on this node")


Step = Callable[[Trimmed], None]
CASES: Mapping[str, tuple[Step, Step]] = {
    "get resourceclaims": (no_claim_is_prepared, a_pod_runs),
    "list resourceslices": (nothing_is_published, a_pod_runs),
    "watch resourceslices": (slices_are_restored_later, a_pod_runs),
    "create resourceslices": (nothing_is_published, a_pod_runs),
    "update resourceslices": (changes_are_not_published, change_is_published),
    "delete resourceslices": (slices_that_should_go_stay, slices_are_gone),
    "get nodes": (nothing_is_published, a_pod_runs),
    "get pods": (pods_with_several_claims_are_refused, several_claims_are_served),
    "create events": (events_are_in_the_log_only, a_pod_runs),
    "patch events": (everything_works, a_pod_runs),
}


@pytest.mark.full  # in short against the simulated API server: contract/driver/test_rights.py
@pytest.mark.parametrize("right", RIGHTS, ids=lambda right: f"{right.verb}-{right.resource}")
def test_bc099_right_taken_away_and_given_back(launch: Callable[[Right | None], Trimmed], right: Right) -> None:
    without, after = CASES[f"{right.verb} {right.resource}"]
    driver = launch(right)
    assert right.rule in driver.wait_said(str(right))["message"]
    driver.wait_why(str(right))
    assert driver.metric("coreslice_rights_missing") == 1
    if right != CREATE_EVENTS:
        driver.node.wait_event(driver.node.name, f"RightMissing: .*{right.without}")
    without(driver)
    driver.give(right)
    after(driver)
    driver.wait_said(f"the account can {right.verb} {right.resource} now")
    until(lambda: driver.metric("coreslice_rights_missing") == 0, what="the metric back at 0", timeout=WAIT)
    assert str(right) not in driver.why()
    assert driver.status()["restartCount"] == 0


def test_every_right_has_its_case() -> None:
    assert list(CASES) == [f"{right.verb} {right.resource}" for right in RIGHTS]


def test_name_that_somebody_else_holds_is_told_without_a_right_to_get_it(
    node: Node, launch: Callable[[Right | None], Trimmed]
) -> None:
    """The slice in the way is looked up by a list, which the API server narrows to the name."""
    name = f"00000-{DRIVER_NAME}-{node.name}"
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "other.example", "nodeName": "nowhere", "pool": pool, "devices": []}
    taken = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
    node.apply(taken)
    try:
        driver = launch(None)
        driver.wait_why("not ready", f"{name} is taken by a slice of driver 'other.example' on node 'nowhere'")
        assert "forbidden" not in driver.why()
    finally:
        node.delete_all_of([taken])
    a_pod_runs(driver)
