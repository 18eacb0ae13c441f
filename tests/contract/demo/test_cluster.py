"""A simulated cluster with a driver on real sockets: what pods get, and how failures are told."""

from collections.abc import Callable
from typing import Any, Protocol

import pytest

from dra_driver.legacy.device_plugin import DevicePlugin
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.simulator.cluster import Cluster, WaitError

Wire = dict[str, Any]


class Driver(Protocol):
    """What tests plan and look at."""

    calls: list[tuple[str, tuple[str, ...]]]
    refuse: str
    keep: str
    write_spec: bool


def pod(name: str, *entries: Wire, containers: list[Wire] | None = None, **spec: Any) -> Wire:
    names = [{"name": entry["name"]} for entry in entries]
    main = containers or [{"name": "main", "resources": {"claims": names}}]
    body = {"resourceClaims": list(entries), "containers": main, **spec}
    return {"kind": "Pod", "metadata": {"name": name}, "spec": body}


def template(name: str, entry: str = "dev") -> Wire:
    return {"name": entry, "resourceClaimTemplateName": name}


def variables(cluster: Cluster, name: str, container: str = "main") -> set[str]:
    return {key for key, _ in cluster.views(name)[container].env if key.startswith("DEVICE_")}


def events(cluster: Cluster, reason: str) -> list[str]:
    return [event["message"] for event in cluster.store.list("events") if event["reason"] == reason]


def test_a_pod_runs_with_the_device_it_was_given(cluster: Cluster, driver: Driver) -> None:
    cluster.create(pod("a", template("core")))
    running = cluster.wait_running("a")
    view = cluster.views("a")["main"]
    assert [(node.path, node.major, node.minor, node.permissions) for node in view.nodes] == [
        ("/dev/neuron0", 243, 0, "rw")
    ]
    assert variables(cluster, "a") == {"DEVICE_CORE_0_0"}
    assert running["status"]["containerStatuses"][0]["state"] == {"running": {}}


def test_a_waits_b_runs_and_the_other_way_round(cluster: Cluster, driver: Driver) -> None:
    cluster.create(pod("a", template("chip")))
    cluster.wait_running("a")
    cluster.create(pod("b", template("core")))
    assert "counter chip-0 has 0 of 2 left, needs 1" in cluster.wait_unschedulable("b")
    cluster.delete_pod("a")
    cluster.wait_running("b")
    cluster.create(pod("c", template("chip")))
    assert "counter chip-0 has 1 of 2 left, needs 2" in cluster.wait_unschedulable("c")
    cluster.delete_pod("b")
    cluster.wait_running("c")
    assert [verb for verb, _ in driver.calls] == [
        *("prepare", "unprepare"),
        *("prepare", "unprepare"),
        "prepare",
    ]


def test_devices_are_given_back_before_the_pod_object_is_gone(cluster: Cluster, driver: Driver) -> None:
    cluster.create(pod("a", template("chip")))
    cluster.wait_running("a")
    (claim,) = cluster.store.list("resourceclaims")
    cluster.delete_pod("a")
    cluster.wait_gone("a")
    assert driver.calls[-1] == ("unprepare", (claim["metadata"]["name"],))
    assert list(cluster.paths.cdi.iterdir()) == []
    assert cluster.store.list("resourceclaims") == []


def test_two_claims_of_one_pod_are_one_call(cluster: Cluster, driver: Driver) -> None:
    cluster.create(pod("a", template("core", "x"), template("core", "y")))
    cluster.wait_running("a")
    ((verb, names),) = driver.calls
    assert (verb, [name[:4] for name in names]) == ("prepare", ["a-x-", "a-y-"])
    assert variables(cluster, "a") == {"DEVICE_CORE_0_0", "DEVICE_CORE_0_1"}


def test_each_container_sees_its_own_claims_only(cluster: Cluster, driver: Driver) -> None:
    containers: list[Wire] = [
        {"name": "one", "resources": {"claims": [{"name": "x"}]}},
        {"name": "two", "resources": {"claims": [{"name": "y", "request": "r"}]}},
        {"name": "none"},
    ]
    cluster.create(pod("a", template("core", "x"), template("core", "y"), containers=containers))
    cluster.wait_running("a")
    assert variables(cluster, "a", "one") == {"DEVICE_CORE_0_0"}
    assert variables(cluster, "a", "two") == {"DEVICE_CORE_0_1"}
    assert cluster.views("a")["none"].nodes == ()


def test_a_pods_own_environment_is_there(cluster: Cluster, driver: Driver) -> None:
    containers = [{"name": "main", "env": [{"name": "MINE", "value": "1"}]}]
    cluster.create(pod("a", containers=containers))
    cluster.wait_running("a")
    assert cluster.views("a")["main"].variable("MINE") == "1"


def test_a_shared_claim_is_prepared_once_and_unprepared_with_its_last_pod(cluster: Cluster, driver: Driver) -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "core"}}]
    cluster.create(
        {"kind": "ResourceClaim", "metadata": {"name": "shared"}, "spec": {"devices": {"requests": requests}}}
    )
    entry = {"name": "dev", "resourceClaimName": "shared"}
    for name in ("a", "b"):
        cluster.create(pod(name, entry))
        cluster.wait_running(name)
    assert variables(cluster, "a") == variables(cluster, "b") == {"DEVICE_CORE_0_0"}
    assert driver.calls == [("prepare", ("shared",))]
    cluster.delete_pod("a")
    cluster.wait_gone("a")
    assert driver.calls == [("prepare", ("shared",))]
    cluster.delete_pod("b")
    cluster.wait_gone("b")
    assert driver.calls == [("prepare", ("shared",)), ("unprepare", ("shared",))]
    claim = cluster.wait(
        "the claim is free",
        lambda: next(
            (each for each in cluster.store.list("resourceclaims") if not each["status"].get("allocation")), None
        ),
    )
    assert claim["metadata"]["name"] == "shared"


def test_old_names_work_unchanged_and_from_one_ledger(cluster: Cluster, driver: Driver) -> None:
    cluster.create(pod("a", containers=[{"name": "main", "resources": {"limits": {"old.dev/chip": "1"}}}]))
    cluster.wait_running("a")
    assert variables(cluster, "a") == {"DEVICE_CHIP_0"}
    cluster.create(pod("b", containers=[{"name": "main", "resources": {"limits": {"old.dev/core": "2"}}}]))
    assert "2 of class core wanted, 0 free" in cluster.wait_unschedulable("b")
    cluster.delete_pod("a")
    cluster.wait_running("b")
    assert variables(cluster, "b") == {"DEVICE_CORE_0_0", "DEVICE_CORE_0_1"}


def test_an_init_container_sees_the_device_it_reuses(cluster: Cluster, driver: Driver) -> None:
    limits = {"resources": {"limits": {"old.dev/core": "1"}}}
    cluster.create(pod("a", containers=[{"name": "main", **limits}], initContainers=[{"name": "load", **limits}]))
    cluster.wait_running("a")
    assert variables(cluster, "a", "load") == variables(cluster, "a", "main") == {"DEVICE_CORE_0_0"}


def test_a_refused_prepare_is_an_event_and_tried_again_at_the_next_sync(cluster: Cluster, driver: Driver) -> None:
    driver.refuse = "the chip is on holiday"
    cluster.create(pod("a", template("core")))
    told = cluster.wait("an event", lambda: events(cluster, "FailedPrepareDynamicResources") or None)
    assert told[0].startswith("Failed to prepare dynamic resources: prepare dynamic resources: ")
    assert told[0].endswith("the chip is on holiday")
    cluster.wait("the pod says so", lambda: "on holiday" in cluster.why("a"))
    assert len(driver.calls) == 1
    driver.refuse = ""
    cluster.node.resync()
    running = cluster.wait_running("a")
    assert "message" not in running["status"]


def test_a_pod_that_never_started_can_be_deleted(cluster: Cluster, driver: Driver) -> None:
    driver.refuse = "no"
    cluster.create(pod("a", template("core")))
    cluster.wait("an event", lambda: events(cluster, "FailedPrepareDynamicResources") or None)
    cluster.delete_pod("a")
    cluster.wait_gone("a")
    assert [verb for verb, _ in driver.calls] == ["prepare", "unprepare"]


def test_a_refused_unprepare_keeps_the_pod_and_its_device(cluster: Cluster, driver: Driver) -> None:
    cluster.create(pod("a", template("chip")))
    cluster.wait_running("a")
    driver.keep = "still in use"
    cluster.delete_pod("a")
    told = cluster.wait("an event", lambda: events(cluster, "FailedKillPod") or None)
    assert "still in use" in told[0]
    cluster.create(pod("b", template("core")))
    assert "counter chip-0 has 0 of 2 left" in cluster.wait_unschedulable("b")
    driver.keep = ""
    cluster.node.resync()
    cluster.wait_gone("a")
    cluster.wait_running("b")


def test_bc_forced_deletion_frees_the_claim_at_once_and_unprepares_all_the_same(
    cluster: Cluster, driver: Driver
) -> None:
    """The hole in the real thing: the device may be given away before Unprepare was heard."""
    cluster.create(pod("a", template("chip")))
    cluster.wait_running("a")
    cluster.delete_pod("a", force=True)
    assert cluster.pod("a") is None
    assert cluster.store.list("resourceclaims") == []
    cluster.wait("unprepare", lambda: [verb for verb, _ in driver.calls] == ["prepare", "unprepare"])


def test_a_cdi_id_that_does_not_resolve_is_told(cluster: Cluster, driver: Driver) -> None:
    driver.write_spec = False
    cluster.create(pod("a", template("core")))
    told = cluster.wait("an event", lambda: events(cluster, "Failed") or None)
    assert "core-0-0" in told[0]
    with pytest.raises(WaitError, match=r"pod a doesn't run within 0\.05 s: Error:"):
        cluster.wait_running("a", timeout=0.05)


def test_without_the_driver_the_kubelet_says_so(cluster: Cluster, driver: Driver) -> None:
    cluster.kubelet.refuse_registrations("not today")
    for path in cluster.paths.registry.iterdir():
        path.unlink()
    cluster.wait("it is lost", lambda: not cluster.kubelet.plugins.drivers())
    cluster.create(pod("a", template("core")))
    told = cluster.wait("an event", lambda: events(cluster, "FailedPrepareDynamicResources") or None)
    assert told[0].endswith("DRA driver neuron.test is not registered")


def test_pods_that_come_together_all_get_something_different(cluster: Cluster, driver: Driver) -> None:
    names = [f"p{at}" for at in range(6)]
    for name in names:
        cluster.create(pod(name, template("core")))
    for first, second in (names[0:2], names[2:4], names[4:6]):
        cluster.wait_running(first)
        cluster.wait_running(second)
        assert variables(cluster, first) | variables(cluster, second) == {"DEVICE_CORE_0_0", "DEVICE_CORE_0_1"}
        cluster.delete_pod(first)
        cluster.delete_pod(second)
    for name in names:
        cluster.wait_gone(name)
    assert cluster.store.list("resourceclaims") == []


def test_waiting_for_what_does_not_come_says_how_things_stand(cluster: Cluster) -> None:
    with pytest.raises(WaitError, match=r"pod a doesn't run within 0\.05 s: it isn't there"):
        cluster.wait_running("a", timeout=0.05)
    cluster.create(pod("a", template("none")))
    waits = "waiting for a resourceclaim to be created"
    cluster.wait("the scheduler says what it waits for", lambda: waits in cluster.why("a"))
    with pytest.raises(WaitError, match=waits):
        cluster.wait_running("a", timeout=0.05)
    with pytest.raises(WaitError, match="pod a waits: not within"):
        cluster.wait_unschedulable("a", timeout=0.05)


@pytest.fixture
def plug(cluster: Cluster) -> Callable[[], DevicePlugin]:
    chip = Chip(index=0, major=243, minor=0, physical_cores=2, neighbours=frozenset())
    return lambda: DevicePlugin(
        Machine((chip,)), cluster.paths.device_plugins, chips="old.dev/chip", cores="old.dev/core"
    )


def old(name: str, resource: str, amount: int) -> Wire:
    return pod(name, containers=[{"name": "main", "resources": {"limits": {resource: str(amount)}}}])


def wait_offered(cluster: Cluster, resource: str, count: str) -> None:
    def offered() -> bool:
        status = cluster.store.get("nodes", cluster.node_name).get("status") or {}
        return (status.get("allocatable") or {}).get(resource) == count

    cluster.wait(f"{count} of {resource}", offered)


def test_a_device_plugin_admits_both(cluster: Cluster, plug: Callable[[], DevicePlugin]) -> None:
    with plug():
        wait_offered(cluster, "old.dev/core", "2")
        cluster.create(old("a", "old.dev/chip", 1))
        cluster.create(old("b", "old.dev/core", 2))
        cluster.wait_running("a")
        cluster.wait_running("b")
        assert [node.path for node in cluster.views("a")["main"].nodes] == ["/dev/neuron0"]
        assert [node.path for node in cluster.views("b")["main"].nodes] == ["/dev/neuron0"]
        assert cluster.views("b")["main"].variable("NEURON_RT_VISIBLE_CORES") == "0-1"
        cluster.create(old("c", "old.dev/core", 1))
        assert cluster.wait_unschedulable("c") == "0/1 nodes are available: 1 Insufficient old.dev/core."
        cluster.delete_pod("b")
        cluster.wait_running("c")


def test_while_a_device_plugin_offers_a_name_the_class_does_not(
    cluster: Cluster, driver: Driver, plug: Callable[[], DevicePlugin]
) -> None:
    """Node by node: the same pod spec goes one way or the other."""
    with plug():
        wait_offered(cluster, "old.dev/core", "2")
        cluster.create(old("a", "old.dev/core", 1))
        cluster.wait_running("a")
        assert driver.calls == []
        assert variables(cluster, "a") == set()
        cluster.delete_pod("a")
        cluster.wait_gone("a")
    wait_offered(cluster, "old.dev/core", "0")
    cluster.create(old("b", "old.dev/core", 1))
    cluster.wait_running("b")
    assert variables(cluster, "b") == {"DEVICE_CORE_0_0"}


def test_a_device_plugin_that_has_lied_fails_the_pod_at_admission(
    cluster: Cluster, plug: Callable[[], DevicePlugin]
) -> None:
    """The node's status is older than what the device manager knows: the pod is Failed, as on a real node."""
    with plug():
        wait_offered(cluster, "old.dev/chip", "1")
        cluster.kubelet.allocate("old.dev/chip", 1)
        cluster.create(old("a", "old.dev/chip", 1))
        told = cluster.wait("an event", lambda: events(cluster, "UnexpectedAdmissionError") or None)
        assert "requested number of devices unavailable for old.dev/chip" in told[0]
        cluster.wait("it failed", lambda: (cluster.pod("a") or {}).get("status", {}).get("phase") == "Failed")
