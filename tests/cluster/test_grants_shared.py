"""A claim that users made and pods share: it stands alone.

Everybody who uses it sees its own devices and nothing of what belongs to a single pod. A
container that combines it with a claim of the pod's own is refused the own one, so
that every other pod runs, whoever came first.
"""

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.grants import by_core, cdi_file, held, on_chip, seen
from testbed.node import Node

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("nothing_held_after")]


@pytest.fixture
def shared(driver: Driver, classes: list[Object]) -> Node:
    """The node with a claim for one core that pods may share, and a template for one of their own."""
    driver.node.apply(objects.claim("shared", r="neuron-core"), objects.template("core", r="neuron-core"))
    return driver.node


def other(name: str = "other") -> Object:
    """A pod that uses the shared claim only."""
    return objects.pod(name, objects.container(claims=["s"]), claims={"s": "claim/shared"})


def mixed(name: str, *containers: Object) -> Object:
    """A pod that has the shared claim and one of its own. Events outlive pods: every test takes another name."""
    return objects.pod(name, *containers, claims={"s": "claim/shared", "own": "template/core"})


def assert_refused_alone(driver: Driver, pod: str) -> None:
    """The pod is told why; its own claim is not prepared, the shared one is."""
    text = f"CombinedWithSharedClaim: container main of pod {pod} combines claim default/{pod}-own-"
    event = driver.node.wait_event(pod, f"^FailedPrepareDynamicResources: .*{text}")
    assert "use it in a container of its own" in event["message"]
    assert driver.node.api.get("pods", pod)["status"]["phase"] == "Pending"
    assert list(held(driver)) == ["shared"]


def test_two_pods_share_a_core(driver: Driver, shared: Node) -> None:
    shared.apply(other("a"), other("b"))
    shared.wait_pod("a")
    shared.wait_pod("b")
    assert seen(driver, "a") == on_chip(driver, "0")
    assert seen(driver, "b") == on_chip(driver, "0")
    file = cdi_file(driver, shared.api.get("resourceclaims", "shared"))
    shared.delete_pods("a")
    assert file.exists()
    shared.delete_pods("b")
    assert not file.exists()


def test_other_pod_runs_that_came_first(driver: Driver, shared: Node) -> None:
    shared.run_pod(other())
    assert seen(driver, "other") == on_chip(driver, "0")
    shared.apply(mixed("late", objects.container(claims=["s", "own"])))
    assert_refused_alone(driver, "late")
    shared.delete_pods("late")
    assert cdi_file(driver, shared.api.get("resourceclaims", "shared")).exists()
    assert shared.wait_pod("other")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_other_pod_runs_that_came_second(driver: Driver, shared: Node) -> None:
    shared.apply(mixed("early", objects.container(claims=["s", "own"])))
    assert_refused_alone(driver, "early")
    shared.run_pod(other())
    core = held(driver)["shared"][0].rpartition("-")[2]  # the allocator chooses which of the two
    assert seen(driver, "other") == on_chip(driver, core)
    assert_refused_alone(driver, "early")


def test_in_containers_of_their_own_both_are_fine(driver: Driver, shared: Node) -> None:
    shared.apply(other(), mixed("mixed", objects.container("a", claims=["s"]), objects.container("b", claims=["own"])))
    shared.wait_pod("other")
    shared.wait_pod("mixed")
    common, own = seen(driver, "mixed", "a"), seen(driver, "mixed", "b")
    assert seen(driver, "other") == common
    assert by_core(common, own) == [on_chip(driver, "0"), on_chip(driver, "1")]
