"""Claims that can't be prepared: the kubelet gets the reason, the claim an Event, and nothing is held or half done.

And the way back: what a claim was refused for, its Unprepare doesn't mind.
"""

import json
import uuid
from collections.abc import Callable, Iterator

import pytest

from dra_driver.kubelet.api import dra_v1_pb2 as dra
from dra_driver.kubelet.types import ClaimRef
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.kubelet import PrepareError
from tests.contract.driver.conftest import CLAIMS, DRIVER, POOL, SLICES, Rig, eventually, result

DELETE = "the pod has to be deleted"


@pytest.fixture(autouse=True)
def nothing_left(running: Rig) -> Iterator[None]:
    """Whatever became of the claims, they can be undone, and then nothing of them is left."""
    yield
    running.tidy()
    assert (running.records(), running.specs()) == ([], [])
    assert "Traceback" not in running.log()


def gone(rig: Rig) -> ClaimRef:
    ref = rig.core("bad")
    rig.store.delete("resourceclaims", "bad", namespace="default")
    return ref


def replaced(rig: Rig) -> ClaimRef:
    """Deleted and made anew under its name, while the kubelet still asks for the old one."""
    old = rig.core("bad")
    rig.store.delete("resourceclaims", "bad", namespace="default")
    rig.core("bad")
    return old


def malformed(rig: Rig) -> ClaimRef:
    return rig.claim("bad", {"driver": DRIVER, "pool": POOL, "request": "r", "device": 7})


def configured(rig: Rig) -> ClaimRef:
    opaque = {"source": "FromClaim", "requests": ["r"], "opaque": {"driver": DRIVER, "parameters": {}}}
    return rig.claim("bad", result("core-0-0"), config=[opaque])


def for_a_group(rig: Rig) -> ClaimRef:
    ref = rig.core("bad")
    claim = rig.store.get("resourceclaims", "bad", "default")
    claim["status"]["reservedFor"] = [{"resource": "podgroups", "apiGroup": "x.example.dev", "name": "g", "uid": "u"}]
    rig.store.update("resourceclaims", claim, subresource="status")
    return ref


REFUSED: dict[str, tuple[Callable[[Rig], ClaimRef], str, list[str]]] = {
    "unknown device": (lambda rig: rig.core("bad", "core-7-0"), "UnknownDevice", ["core-7-0"]),
    "device of a size": (lambda rig: rig.core("bad", "chips-0-4"), "UnknownDevice", ["chips-0-4"]),
    "not allocated": (lambda rig: rig.claim("bad", allocated=False), "ClaimNotAllocated", ["has no allocation"]),
    "wrong UID": (replaced, "ClaimReplaced", ["has the UID", "in the API now"]),
    "gone": (gone, "ClaimReplaced", ["isn't in the API any more"]),
    "foreign pool": (
        lambda rig: rig.claim("bad", result("core-0-0", pool=f"{DRIVER}/node-2")),
        "ForeignPool",
        [f"{DRIVER}/node-2", f"this node's pool is {POOL}"],
    ),
    "malformed": (malformed, "ClaimMalformed", ["device", "valid string"]),
    "configuration": (configured, "OpaqueConfigRefused", ["remove it from the claim"]),
    "no pod": (for_a_group, "ReservedForNoPod", ["podgroups/g", "only pods are supported"]),
    "overlap": (
        lambda rig: rig.claim("bad", result("core-0-0"), result("chip-0")),
        "DevicesOverlap",
        ["chip-0", "core-0-0"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_claim(running: Rig, case: str) -> None:
    make, reason, told = REFUSED[case]
    ref = make(running)
    with pytest.raises(PrepareError) as caught:
        running.prepare(ref)
    text = str(caught.value)
    assert [part for part in (f"{reason}: ", "bad", ref.uid, DELETE, *told) if part not in text] == [], text

    assert (running.records(), running.specs()) == ([], [])
    (message,) = running.wait_events(reason, ref.uid)
    assert message in text
    (event,) = running.events(reason, ref.uid)
    assert (event["type"], event["involvedObject"]["kind"]) == ("Warning", "ResourceClaim")
    line = next(line for line in running.said("^claim refused") if line["claim_uid"] == ref.uid)
    assert line["reason"] == reason

    running.unprepare(ref)
    running.prepare(running.core("good"))


def test_refused_claim_doesnt_take_its_neighbour_with_it(running: Rig) -> None:
    """Two user-made claims of one pod: each stands alone. The kubelet then forgets the whole call and asks again."""
    bad, good = running.core("bad", "core-9-9"), running.core("good")
    with pytest.raises(PrepareError, match="UnknownDevice"):
        running.prepare(bad, good, pod="pod-of-bad")
    running.kubelet.unprepare_pod("pod-of-bad")
    assert (running.records(), running.specs()) == ([], [])


def test_bc043_unprepare_of_a_claim_that_nobody_knows(running: Rig) -> None:
    stranger = ClaimRef("default", "stranger", str(uuid.uuid4()))
    with pytest.raises(PrepareError, match="isn't in the API any more"):
        running.prepare(stranger)
    running.unprepare(stranger)


@pytest.mark.parametrize("uid", ["../../../outside", "a/b", "", ".", "..", "x" * 300])
def test_uid_that_is_no_file_name(running: Rig, uid: str) -> None:
    """It becomes a part of paths. Nothing can have been prepared under it, so there is nothing to undo either."""
    outside = running.paths.root / "outside.record"
    outside.touch()
    running.claim("odd", result("core-0-0"))
    asked = [dra.Claim(namespace="default", name="odd", uid=uid)]
    stub = running.kubelet.plugins.plugin(DRIVER).dra
    prepared = stub.NodePrepareResources(dra.NodePrepareResourcesRequest(claims=asked), timeout=10)
    assert prepared.claims[uid].error
    assert not prepared.claims[uid].devices
    undone = stub.NodeUnprepareResources(dra.NodeUnprepareResourcesRequest(claims=asked), timeout=10)
    assert [(key, answer.error) for key, answer in undone.claims.items()] == [(uid, "")]
    assert running.said("can't be one, so nothing was prepared for it")[-1]["level"] == "WARNING"
    assert outside.exists()
    assert (running.records(), running.specs()) == ([], [])


def test_bc044_claim_of_another_driver_alone_is_done_without_devices(running: Rig) -> None:
    ref = running.claim("nic", result("core-0-0", driver="nic.example.dev", pool="nics"))
    assert running.prepare(ref) == []
    assert (running.records(), running.specs()) == ([], [])
    running.unprepare(ref)


def test_bc044_claim_that_also_holds_another_drivers_device(running: Rig) -> None:
    """Under the same device name, and with configuration for the other one."""
    other = {"source": "FromClass", "requests": [], "opaque": {"driver": "nic.example.dev", "parameters": {"a": 1}}}
    theirs = result("core-0-0", driver="nic.example.dev", pool="nics", request="n")
    ref = running.claim("both", theirs, result("core-0-0"), config=[other])
    (device,) = running.prepare(ref)
    assert (device.pool, device.device, device.requests) == (POOL, "core-0-0", ("r",))
    running.unprepare(ref)


def test_bc132_nulls_where_lists_belong(running: Rig) -> None:
    """Legal from servers that are written in Go."""
    nulls = frozenset({"items", "devices", "results", "config", "reservedFor", "ownerReferences", "requests"})
    ref = running.claim("empty", config=[], reservedFor=[])
    running.server.faults.plant(Fault(nulls=nulls), verb="get", prefix=CLAIMS)
    assert running.prepare(ref) == []
    running.unprepare(ref)

    lists_but_results = nulls - {"results", "devices"}
    core = running.core("core")
    running.server.faults.plant(Fault(nulls=lists_but_results), verb="get", prefix=CLAIMS)
    assert [device.device for device in running.prepare(core)] == ["core-0-0"]
    running.unprepare(core)


def test_bc132_null_for_the_list_of_slices(running: Rig) -> None:
    """Then they are no more than missed once: nothing is written twice, nothing breaks."""
    slices = running.slices()
    met = running.server.faults.plant(Fault(nulls=frozenset({"items"})), verb="list", prefix=SLICES)
    running.server.expire_watches()
    eventually(met, "slices listed again", seen=running.process.tail)
    eventually(lambda: running.server.watches, "watched again", seen=running.process.tail)
    running.wait_ready()
    assert running.slices() == slices


def test_device_that_another_claim_holds(running: Rig) -> None:
    """A wrong grant is the worst of all faults: whatever the scheduler says, a held core isn't given again."""
    holder, second = running.core("holder", "core-0-1"), running.claim("second", result("chip-0"))
    running.prepare(holder)
    with pytest.raises(PrepareError) as caught:
        running.prepare(second)
    assert "DeviceHeld: " in str(caught.value)
    assert "chip-0" in str(caught.value)
    assert f"default/holder ({holder.uid})" in str(caught.value)
    assert [json.loads(path.read_text())["kind"] for path in running.specs()] == [f"{DRIVER}/claim"]
    running.unprepare(holder)
    running.kubelet.unprepare_pod("pod-of-second")
    running.prepare(second)
    running.unprepare(second)
