"""What a grant permits inside of a container, and what becomes of variables that the pod sets itself.

No driver serves the chip's number, so opening it gives ENXIO where the container may
and EPERM where it may not.
"""

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.grants import VISIBLE_CORES, on_chip, seen
from testbed.node import Node

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("nothing_held_after")]

PERMITTED = "No such device or address"
FORBIDDEN = "Operation not permitted"
MADE_NODES = [{"name": "nodes", "mountPath": "/nodes"}]


def node_maker(driver: Driver) -> Object:
    """An init container without a grant that makes nodes of two numbers: the chip's, and one of no chip."""
    script = f"mknod /nodes/chip c {driver.major} 0; mknod /nodes/other c {driver.major} 1; chmod 666 /nodes/*"
    return objects.container(
        "maker",
        stays=False,
        command=["/bin/sh", "-c", script],
        securityContext={"capabilities": {"add": ["MKNOD"]}},
        volumeMounts=MADE_NODES,
    )


def opened(node: Node, container: str, path: str) -> str:
    """What a container of the pod ``p`` is told when it opens a node for reading and writing."""
    return node.exec("p", "sh", "-c", f": <>{path}", container=container).text


@pytest.mark.parametrize("user", [0, 1000])
def test_granted_node_may_be_opened_and_no_other(driver: Driver, classes: list[Object], user: int) -> None:
    """The mode of the host's node is not the container's: there it is open to every user.

    (The runtime makes the container's own user the node's owner; that user need not stay the only one.)
    """
    node = driver.node
    (node.stack.sandbox.root / "dev" / "neuron0").chmod(0o600)
    node.apply(objects.template("core", c="neuron-core"))
    common: Object = {"securityContext": {"runAsUser": user}, "volumeMounts": MADE_NODES}
    granted = objects.container("granted", claims=["c"], **common)
    beside = objects.container("beside", **common)
    volume = {"name": "nodes", "emptyDir": {}}
    claims = {"c": "template/core"}
    node.run_pod(objects.pod("p", granted, beside, claims=claims, init=[node_maker(driver)], volumes=[volume]))

    assert node.exec("p", "id", "-u", container="granted").text.strip() == str(user)
    assert seen(driver, "p", "granted") == on_chip(driver, "0")
    assert node.exec("p", "stat", "-c", "%a", "/dev/neuron0", container="granted").text.strip() == "666"
    assert PERMITTED in opened(node, "granted", "/dev/neuron0")
    assert PERMITTED in opened(node, "granted", "/nodes/chip")
    assert FORBIDDEN in opened(node, "granted", "/nodes/other")

    assert seen(driver, "p", "beside") == {}
    assert FORBIDDEN in opened(node, "beside", "/nodes/chip")


def test_node_may_be_made_but_not_opened(driver: Driver, classes: list[Object]) -> None:
    """CAP_MKNOD is among the default capabilities of containers: the device rules are what counts."""
    node = driver.node
    node.apply(objects.template("core", c="neuron-core"))
    main = objects.container(claims=["c"], securityContext={"capabilities": {"add": ["MKNOD"]}})
    node.run_pod(objects.pod("p", main, claims={"c": "template/core"}))
    assert node.exec("p", "mknod", "/dev/neuron1", "c", str(driver.major), "1").status == 0
    assert FORBIDDEN in opened(node, "main", "/dev/neuron1")
    assert PERMITTED in opened(node, "main", "/dev/neuron0")


def test_granted_cores_win_over_the_pods_own_variable(driver: Driver, classes: list[Object]) -> None:
    """containerd lets the CDI edits replace a variable of the same name, for the container and for exec.

    A pod can't widen its grant by its spec.
    """
    node = driver.node
    node.apply(objects.template("core", c="neuron-core"))
    own = {VISIBLE_CORES: "0-7", "NEURON_RT_NUM_CORES": "8"}
    node.run_pod(objects.pod("p", objects.container(claims=["c"], env=own), claims={"c": "template/core"}))
    assert seen(driver, "p") == on_chip(driver, "0") | {"NEURON_RT_NUM_CORES": "8"}
    assert node.exec("p", "sh", "-c", "env").text.count(f"{VISIBLE_CORES}=") == 1
    assert node.exec("p", "sh", "-c", f"echo ${VISIBLE_CORES}").text.strip() == "0"


def test_whole_chip_leaves_the_pods_own_variables_alone(driver: Driver, classes: list[Object]) -> None:
    """A pod may divide its own chip among its processes."""
    node = driver.node
    node.apply(objects.template("chip", c="neuron-chip"))
    own = {VISIBLE_CORES: "1", "NEURON_RT_NUM_CORES": "1"}
    node.run_pod(objects.pod("p", objects.container(claims=["c"], env=own), claims={"c": "template/chip"}))
    assert seen(driver, "p") == on_chip(driver) | own
