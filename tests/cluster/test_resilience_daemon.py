"""The driver dies, stops, or loses its sockets while a pod runs; and what it publishes, read back with kubectl."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.observer import SliceObserver
from testbed.waiting import until

pytestmark = pytest.mark.cluster

CLAIM = {"c": "template/one-core"}
STREAM_ERROR = ("Error receiving from WatchResources stream", "NodeWatchResources RPC call failed")


def claiming_pod(name: str) -> Object:
    return objects.pod(name, objects.container(claims=["c"]), claims=CLAIM)


@pytest.fixture
def running(driver: Driver, classes: list[Object]) -> Object:
    """A pod with a core, running."""
    driver.node.apply(objects.template("one-core", r="neuron-core"))
    return driver.node.run_pod(claiming_pod("lasting"))


def identities(driver: Driver) -> dict[str, tuple[str, int, str]]:
    """Slices as the API stores them: equal before and after means that nobody wrote."""
    return {
        item["metadata"]["name"]: (
            item["metadata"]["uid"],
            item["spec"]["pool"]["generation"],
            item["metadata"]["resourceVersion"],
        )
        for item in driver.slices()
    }


def container_id(driver: Driver, pod: str) -> str:
    return str(driver.node.api.get("pods", pod)["status"]["containerStatuses"][0]["containerID"])


def contents(paths: list[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}


def stream_errors(driver: Driver, since: int) -> list[str]:
    """What the kubelet has said against the health stream from that character of its log on."""
    lines = driver.node.program("kubelet").log_text()[since:].splitlines()
    return [line for line in lines if any(text in line for text in STREAM_ERROR)]


def kubelet_log_size(driver: Driver) -> int:
    return len(driver.node.program("kubelet").log_text())


def assert_gone_completely(driver: Driver, pod: str) -> None:
    driver.node.delete_pods(pod)
    assert driver.cdi_files() == []
    assert driver.records() == []


def test_killed_driver_comes_back_to_what_it_held(driver: Driver, running: Object) -> None:
    slices, container = identities(driver), container_id(driver, "lasting")
    held, specs, old_sockets = contents(driver.records()), contents(driver.cdi_files()), driver.sockets()
    assert len(held) == len(specs) == 1

    driver.kill()
    assert driver.sockets() == old_sockets, "a killed process takes nothing away itself"
    assert contents(driver.cdi_files()) == specs
    driver.start()

    assert identities(driver) == slices
    assert (contents(driver.records()), contents(driver.cdi_files())) == (held, specs)
    assert container_id(driver, "lasting") == container
    assert len(driver.sockets()) == 2
    assert not set(driver.sockets()) & set(old_sockets), "BC-001, BC-002: dead sockets go, new names come"
    assert_gone_completely(driver, "lasting")
    assert identities(driver) == slices
    driver.node.run_pod(claiming_pod("next"))


def test_pod_deleted_while_the_driver_is_dead_ends_when_it_is_back(driver: Driver, running: Object) -> None:
    driver.kill()
    driver.node.api.delete("pods", "lasting")
    driver.start()
    driver.node.wait_gone("pods", "lasting", timeout=120)
    assert (driver.cdi_files(), driver.records()) == ([], [])


def test_stopped_driver_leaves_slices_and_records_but_no_socket(driver: Driver, running: Object) -> None:
    slices, since = identities(driver), kubelet_log_size(driver)
    held, specs = contents(driver.records()), contents(driver.cdi_files())

    assert driver.terminate(timeout=5) == 0

    assert driver.sockets() == []
    assert list((driver.node.paths.plugins / driver.name).glob(".*")) == []
    assert identities(driver) == slices
    assert (contents(driver.records()), contents(driver.cdi_files())) == (held, specs)
    driver.start()
    assert identities(driver) == slices, "restarted within 30 s: the kubelet hasn't wiped, nobody has written"
    assert_gone_completely(driver, "lasting")
    assert stream_errors(driver, since) == []


@pytest.mark.parametrize("lost", ["registration", "dra"])
def test_lost_socket_is_replaced_by_a_new_registration(driver: Driver, running: Object, lost: str) -> None:
    slices, old, since = identities(driver), driver.sockets(), kubelet_log_size(driver)
    next(path for path in old if path.name.endswith("-reg.sock") == (lost == "registration")).unlink()

    until(
        lambda: len(driver.sockets()) == 2 and not set(driver.sockets()) & set(old),
        what="a new pair of sockets",
        timeout=10,
        seen=driver.sockets,
    )
    driver.wait_ready()

    assert_gone_completely(driver, "lasting")
    driver.node.run_pod(claiming_pod("next"))
    assert identities(driver) == slices, "it was registered again before the kubelet could wipe"
    assert stream_errors(driver, since) == []


def test_bc028_slices_follow_the_confirmation_of_the_new_registration(driver: Driver) -> None:
    """Slices without a reachable driver bind pods to a dead end: while nobody confirms, none are restored."""
    node, old, since = driver.node, driver.sockets(), len(driver.said())
    observer = SliceObserver(node.api, driver.name)
    node.stop("kubelet")
    next(path for path in old if path.name.endswith("-reg.sock")).unlink()
    for item in driver.slices():
        node.api.delete("resourceslices", item["metadata"]["name"])
    driver.wait_said("slices blocked: the kubelet hasn't confirmed", since=since)
    assert not driver.serving()
    assert driver.serving("liveness")
    observer.wait(lambda seen: len(seen) == 4, what="slices deleted")
    assert [seen.change for seen in observer.history()] == ["ADDED"] * 2 + ["DELETED"] * 2

    node.start("kubelet")
    driver.wait_ready()

    confirmed = driver.wait_said(r"registration confirmed: .*-2-reg\.sock", since=since)
    published = driver.wait_said("slices published", since=since)
    assert confirmed["time"] < published["time"]
    assert len(driver.slices()) == 2
    observer.stop()


def test_kubectl_shows_what_the_slices_command_prints(driver: Driver) -> None:
    node = driver.node
    uid = node.api.get("nodes", node.name)["metadata"]["uid"]
    roots = ("--sysfs-root", str(driver.machine.sysfs), "--proc-root", str(driver.machine.proc))
    owner = ("--node-name", node.name, "--node-uid", uid, "--driver-name", driver.name)
    command = [str(Path(sys.executable).with_name("coreslice")), "slices", *roots, *owner, "-o", "json"]
    printed = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    shown = json.loads(node.kubectl("get", "resourceslices", "-o", "json").text)

    assert [essence(item) for item in shown["items"]] == [essence(item) for item in printed["items"]]
    assert (shown["kind"], shown["apiVersion"]) == (printed["kind"], printed["apiVersion"])
    assert sum(len(item["spec"].get("devices", [])) for item in shown["items"]) == 3


def essence(item: Object) -> Object:
    """A slice without what the server adds."""
    kept = {key: item["metadata"].get(key) for key in ("name", "ownerReferences", "labels", "annotations")}
    return {"kind": item["kind"], "apiVersion": item["apiVersion"], "metadata": kept, "spec": item["spec"]}


def test_health_of_the_device_is_in_the_pods_status(driver: Driver, running: Object) -> None:
    since = kubelet_log_size(driver)
    uid = driver.node.api.list("resourceclaims")[0]["metadata"]["uid"]
    expected = {"resourceID": f"{driver.name}/claim={uid}-core-0-0", "health": "Healthy"}

    def shown() -> Object | None:
        status = driver.node.api.get("pods", "lasting")["status"]["containerStatuses"][0]
        found = {
            item["name"]: item["resources"] for item in status.get("allocatedResourcesStatus", []) if item["resources"]
        }
        return found if found.get("claim:c") == [expected] else None

    until(shown, what="Healthy in the pod's status", timeout=30, seen=lambda: driver.node.describe("lasting"))
    assert stream_errors(driver, since) == []
