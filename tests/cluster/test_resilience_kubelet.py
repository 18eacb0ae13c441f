"""The kubelet restarts under the driver: it wipes the node's slices, forgets who is registered, and finds out again."""

from collections.abc import Callable

import pytest
from testbed import objects
from testbed.api import Object
from testbed.driver import Driver
from testbed.observer import Seen, SliceObserver

pytestmark = pytest.mark.cluster

RESTARTS = 5
WIPE_SECONDS = 20.0
BACK_SECONDS = 1.0


def claiming_pod(name: str) -> Object:
    return objects.pod(name, objects.container(claims=["c"]), claims={"c": "template/one-core"})


def wiped_and_back(seen: list[Seen], slices: int) -> bool:
    """Whether the last changes are that many deletions and as many additions, in any order of each."""
    changes = [entry.change for entry in seen]
    return changes.count("DELETED") >= slices and changes.count("ADDED") == changes.count("DELETED") + slices


def absences(seen: list[Seen]) -> dict[str, list[float]]:
    """Seconds from each deletion of a slice to its return, by slice."""
    gone: dict[str, float] = {}
    found: dict[str, list[float]] = {}
    for entry in seen:
        if entry.change == "DELETED":
            gone[entry.name] = entry.at
        elif entry.name in gone:
            found.setdefault(entry.name, []).append(entry.at - gone.pop(entry.name))
    assert not gone, f"never came back: {gone}"
    return found


def test_bc012_slices_are_back_within_a_second_and_claims_work_after_each_restart(
    driver: Driver, classes: list[Object], record_testsuite_property: Callable[[str, object], None]
) -> None:
    node = driver.node
    node.apply(objects.template("one-core", r="neuron-core"))
    lasting = node.run_pod(claiming_pod("lasting"))["status"]["containerStatuses"][0]["containerID"]
    names, sockets = [item["metadata"]["name"] for item in driver.slices()], driver.sockets()
    kubelet_said = len(node.program("kubelet").log_text())
    longest = []
    for number in range(RESTARTS):
        observer = SliceObserver(node.api, driver.name)
        node.restart_kubelet()
        history = observer.wait(
            lambda seen: wiped_and_back(seen, len(names)), what="slices wiped and back", timeout=WIPE_SECONDS
        )
        observer.stop()
        away = absences(history)
        assert sorted(away) == names, "the kubelet wipes every slice of its node when it starts"
        longest.append(max(seconds for each in away.values() for seconds in each))

        pod = f"after-{number}"
        node.run_pod(claiming_pod(pod))
        assert node.view(pod).cores == "1", "core 0 is the lasting pod's"
        node.delete_pods(pod)

    record_testsuite_property("longest_absence_s", [round(seconds, 3) for seconds in longest])
    assert max(longest) < BACK_SECONDS
    assert driver.sockets() == sockets, "the same registration served every time"
    assert driver.serving()
    after = node.wait_pod("lasting")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (lasting, 0)
    assert len(driver.records()) == 1
    assert "WatchResources" not in node.program("kubelet").log_text()[kubelet_said:]
    node.delete_pods("lasting")
    assert (driver.records(), driver.cdi_files()) == ([], [])


def test_pod_of_before_is_undone_when_driver_and_kubelet_both_died(driver: Driver, classes: list[Object]) -> None:
    """As after a crash of both: nobody remembers anything but the records, and the slices have been wiped."""
    node = driver.node
    node.apply(objects.template("one-core", r="neuron-core"))
    node.run_pod(claiming_pod("lasting"))
    observer = SliceObserver(node.api, driver.name)
    driver.kill()
    node.restart_kubelet()
    observer.wait(lambda seen: [entry.change for entry in seen][-2:] == ["DELETED"] * 2, what="slices wiped")
    assert len(driver.records()) == 1

    driver.start()

    assert len(driver.slices()) == 2
    node.run_pod(claiming_pod("second"))
    assert node.view("second").cores == "1", "core 0 is still the lasting pod's"
    node.delete_pods("second", "lasting")
    assert (driver.records(), driver.cdi_files()) == ([], [])
    observer.stop()
