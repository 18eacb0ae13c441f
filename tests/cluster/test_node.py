"""The test bed itself: a node comes up, runs pods, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import leftovers, objects, sandbox
from testbed.node import Node
from testbed.observer import SliceObserver
from testbed.waiting import NotInTimeError, until

pytestmark = pytest.mark.cluster

TESTBED = Path(__file__).parent


def test_pod_runs_and_is_seen_from_inside(node: Node) -> None:
    node.run_pod(objects.pod("plain", objects.container(env={"GREETING": "a=b"})))
    view = node.view("plain")
    assert view.env["GREETING"] == "a=b"
    assert view.nodes == {}
    assert node.exec("plain", "sh", "-c", "echo out; echo err >&2; exit 3").status == 3
    node.delete_pods("plain")
    assert node.api.find("pods", "plain") is None


def test_init_container_is_seen_by_its_log(node: Node) -> None:
    first = objects.container("first", stays=False, env={"WHO": "first"})
    node.run_pod(objects.pod("two-steps", objects.container(env={"WHO": "main"}), init=[first]))
    assert node.view("two-steps", "first").env["WHO"] == "first"
    assert node.view("two-steps").env["WHO"] == "main"


def test_node_has_the_versions_it_was_built_from(node: Node) -> None:
    info = node.api.get("nodes", node.name)["status"]["nodeInfo"]
    assert info["kubeletVersion"] == "v1.37.2"
    assert info["containerRuntimeVersion"] == "containerd://2.4.2"
    assert "v1.37.2" in node.kubectl("version").text


def test_device_without_a_driver_is_forbidden_to_a_pod_that_was_not_granted_it(node: Node) -> None:
    """ENXIO is "you may, but nobody is there", EPERM is "you may not": the test of a grant."""
    number = node.make_device("neuron7", 243, 7).stat().st_rdev
    try:
        assert (os.major(number), os.minor(number)) == (243, 7)
        assert "No such device or address" in opened_on_the_node(node, "/dev/neuron7")
        node.run_pod(objects.pod("nosy"))
        assert "Operation not permitted" in node.exec("nosy", "sh", "-c", "mknod /tmp/n c 243 7; cat /tmp/n").text
    finally:
        node.remove_device("neuron7")


def opened_on_the_node(node: Node, path: str) -> str:
    command = node.stack.sandbox.enter("cat", path)
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


def test_device_number_of_a_real_driver_is_refused(node: Node) -> None:
    with pytest.raises(ValueError, match="major 1 belongs to a driver"):
        node.make_device("neuron8", 1, 3)


def test_kubelet_restart_leaves_the_pod_running(node: Node) -> None:
    before = node.run_pod(objects.pod("lasting"))["status"]["containerStatuses"][0]["containerID"]
    node.restart_kubelet()
    assert node.wait_pod("lasting")["status"]["containerStatuses"][0]["containerID"] == before
    node.run_pod(objects.pod("later"))


def test_observer_sees_every_state_across_a_restart_of_the_api_server(node: Node) -> None:
    observer = SliceObserver(node.api, "observer.example")
    first, second = a_slice("a"), a_slice("b")
    node.api.create(first)
    observer.wait(lambda seen: len(seen) == 1, what="first slice seen")
    node.stop("apiserver")
    node.start("apiserver")
    node.api.create(second)
    node.api.delete("resourceslices", "a")
    node.api.delete("resourceslices", "b")
    observer.wait(lambda seen: len(seen) == 4, what="four changes")
    observer.stop()
    assert [sorted(state) for state in observer.states()] == [["a"], ["a", "b"], ["b"], []]


def a_slice(name: str) -> objects.Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": "observer.example",
            "nodeName": "elsewhere",
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }


def test_driver_user_may_only_what_the_driver_needs(node: Node) -> None:
    def may(verb: str, resource: str) -> bool:
        asked = node.kubectl("auth", "can-i", verb, resource, "--as=coreslice-driver", check=False)
        return asked.text.splitlines()[-1] == "yes"  # a warning may stand before it

    granted = [("get", "resourceclaims"), ("delete", "resourceslices"), ("get", "pods"), ("create", "events")]
    assert all(may(verb, resource) for verb, resource in granted)
    refused = [("list", "resourceclaims"), ("update", "nodes"), ("get", "secrets"), ("delete", "pods")]
    assert not any(may(verb, resource) for verb, resource in refused)


def test_second_node_beside_the_first_leaves_nothing(node: Node) -> None:
    """Two whole clusters at once; the second goes in the middle of its work."""
    before = leftovers.snapshot()
    second = Node()
    try:
        token = objects.pod("with-token", automountServiceAccountToken=True)
        second.run_pod(token)
        assert leftovers.added(before, leftovers.snapshot(), second.stack.sandbox.name)["processes"]
    finally:
        second.close()
    leftovers.assert_nothing_left(before, second.stack.sandbox.name)
    node.run_pod(objects.pod("unharmed"))


HARNESS = """
import sys
sys.path.insert(0, {testbed!r})
from testbed.sandbox import open_sandbox
box = open_sandbox()
box.run("sh", "-c", "ip link add br9 type bridge; mount -t tmpfs none /mnt; sleep 1000 >/dev/null 2>&1 &")
print(box.dump(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("death", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_harness_dies(death: signal.Signals) -> None:
    before = leftovers.snapshot()
    with subprocess.Popen(
        [sys.executable, "-c", HARNESS.format(testbed=str(TESTBED))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as harness:
        assert harness.stdout
        box = sandbox.load(harness.stdout.readline().decode())
        assert leftovers.added(before, leftovers.snapshot(), box.name)
        harness.send_signal(death)
        harness.wait(10)
    leftovers.assert_nothing_left(before, box.name)
    assert not box.scratch.exists()


def test_sandbox_that_was_left_running_can_be_found_and_closed() -> None:
    before = leftovers.snapshot()
    left = sandbox.open_sandbox(detached=True)
    assert (left.root / "dev/null").is_char_device()
    found = sandbox.load(left.dump())
    assert sandbox.guard_alive(found.guard, found.scratch)
    found.close()
    leftovers.assert_nothing_left(before, left.name)
    found.close()
    left.close()


def test_leftovers_tell_what_is_new_and_whose_it_is() -> None:
    before = {"files": frozenset({"/tmp/a"})}
    after = {"files": frozenset({"/tmp/a", "/run/x", "/tmp/cs-aaaaaa/f", "/tmp/cs-bbbbbb/f"})}
    assert leftovers.added(before, after, "cs-aaaaaa") == {"files": ["/run/x", "/tmp/cs-aaaaaa/f"]}


def test_waiting_in_vain_says_for_what_and_what_was_there() -> None:
    with pytest.raises(NotInTimeError, match=r"three: not within 0.1 s; last seen: 2"):
        until(lambda: None, what="three", timeout=0.1, seen=lambda: 2)
