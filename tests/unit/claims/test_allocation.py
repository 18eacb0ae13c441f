"""What is read of a ResourceClaim, and what can't be used of it."""

from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.claims.allocation import Claim, decode, holds, reserved_pods
from dra_driver.claims.refusals import PodRef, Reason, Refusal
from dra_driver.kubelet.types import ClaimRef
from dra_driver.simulator.samples import DRIVER, NAMESPACE, POOL, claim, ref, result

Decode = Callable[[dict[str, Any]], Claim]
OPAQUE = {"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": {}}}


def test_a_claim_of_a_pod_names_its_owner_and_users(decoded: Decode) -> None:
    found = decoded(claim("a", "core-0-0", owner="p"))
    assert found.owner == PodRef("p", "uid-p")
    assert found.users == (PodRef("p", "uid-p"),)
    assert [(one.request, one.pool, one.device, one.admin) for one in found.results] == [
        ("req", POOL, "core-0-0", False)
    ]
    assert found.used_by("uid-p")
    assert not found.used_by("uid-q")


def test_a_claim_without_a_controlling_pod_is_user_made(decoded: Decode) -> None:
    raw = claim("a", "core-0-0", users=["p"])
    raw["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "uid-q"},
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "uid-r", "controller": True},
    ]
    assert decoded(raw).owner is None


def test_a_subrequest_belongs_to_its_request(decoded: Decode) -> None:
    found = decoded(claim("a", result("core-0-0", "req/small"), owner="p"))
    assert found.requests == {"req"}


def test_bc044_other_drivers_results_and_configuration_are_not_ours(decoded: Decode) -> None:
    nic = {"source": "FromClaim", "opaque": {"driver": "nic.example.com", "parameters": {}}}
    mixed = claim("a", result("core-0-0", "net", driver="nic.example.com"), "core-0-0", owner="p", config=[nic])
    assert [one.request for one in decoded(mixed).results] == ["req"]
    foreign = claim("b", result("core-0-0", driver="nic.example.com", pool="other"), owner="p", config=[OPAQUE])
    assert decoded(foreign).results == ()


def test_bc132_null_is_empty_everywhere(decoded: Decode) -> None:
    raw = claim("a", "core-0-0", owner="p")
    raw["metadata"]["ownerReferences"] = None
    raw["status"]["reservedFor"] = None
    raw["status"]["allocation"]["devices"]["config"] = None
    assert (decoded(raw).owner, decoded(raw).users, len(decoded(raw).results)) == (None, (), 1)
    for devices in ({"results": None}, None):
        raw["status"]["allocation"] = {"devices": devices}
        assert decoded(raw).results == ()


def test_fields_of_later_releases_are_no_fault(decoded: Decode) -> None:
    raw = claim("a", {**result("core-0-0"), "shareID": "x", "new": [1]}, owner="p")
    raw["status"]["allocation"]["new"] = {}
    assert len(decoded(raw).results) == 1


def reasons() -> list[Any]:
    group = claim("a", "core-0-0", users=["p"])
    group["status"]["reservedFor"].append(
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
    )
    unallocated = claim("a", "core-0-0", owner="p")
    unallocated["status"].pop("allocation")
    new = claim("a", "core-0-0", owner="p")
    new["status"] = None
    broken = claim("a", {"request": "req", "driver": DRIVER, "pool": POOL}, owner="p")
    return [
        pytest.param(claim("a", "core-0-0", owner="p", uid="new"), Reason.CLAIM_REPLACED, "UID new", id="made anew"),
        pytest.param(unallocated, Reason.CLAIM_NOT_ALLOCATED, "no allocation", id="no allocation"),
        pytest.param(new, Reason.CLAIM_NOT_ALLOCATED, "no allocation", id="no status"),
        pytest.param(broken, Reason.CLAIM_MALFORMED, "results.0.device", id="malformed"),
        pytest.param(
            claim("a", "core-0-0", owner="p", config=[OPAQUE]),
            Reason.OPAQUE_CONFIG,
            "remove it from the claim",
            id="opaque configuration",
        ),
        pytest.param(
            claim("a", "core-0-0", owner="p", config=[{**OPAQUE, "source": "FromClass"}]),
            Reason.OPAQUE_CONFIG,
            "remove it from its DeviceClass",
            id="opaque configuration of the class",
        ),
        pytest.param(
            claim("a", result("core-0-0", pool=f"{DRIVER}/node-b"), owner="p"),
            Reason.FOREIGN_POOL,
            "node-b",
            id="another node",
        ),
        pytest.param(group, Reason.NOT_A_POD, "podgroups/g", id="reserved for no pod"),
    ]


@pytest.mark.parametrize(("raw", "reason", "told"), reasons())
def test_what_cannot_be_used_says_so_and_names_the_claim(raw: dict[str, Any], reason: Reason, told: str) -> None:
    with pytest.raises(Refusal) as caught:
        decode(raw, asked=ClaimRef(NAMESPACE, "a", "uid-a"), driver=DRIVER, pool=POOL)
    assert caught.value.reason is reason
    assert told in caught.value.detail
    assert "default/a (uid-a)" in caught.value.detail


def test_who_has_a_claim_reserved_is_told_whatever_else_it_holds() -> None:
    raw = claim("a", result("x", pool="elsewhere"), users=["p", "q"], config=[OPAQUE])
    raw["status"]["reservedFor"].append({"apiGroup": "g", "resource": "podgroups", "name": "g", "uid": "uid-g"})
    assert {"uid-p", "uid-q"} <= reserved_pods(raw, asked=ref(raw))
    raw["status"].pop("allocation")
    assert "uid-p" in reserved_pods(raw, asked=ref(raw))


def test_a_claim_made_anew_is_reserved_for_nobody_we_know() -> None:
    raw = claim("a", "core-0-0", users=["p"], uid="new")
    assert reserved_pods(raw, asked=ClaimRef(NAMESPACE, "a", "uid-a")) == frozenset()


def test_what_a_claim_holds_now() -> None:
    raw = claim("a", "core-0-0", result("core-0-1", driver="nic.example.com"), owner="p")
    assert holds(raw, driver=DRIVER, claim=ref(raw)) == {"core-0-0"}
    assert holds(raw, driver=DRIVER, claim=ClaimRef(NAMESPACE, "a", "older")) == frozenset()
    raw["status"] = {}
    assert holds(raw, driver=DRIVER, claim=ref(raw)) == frozenset()


def test_what_cannot_be_read_is_not_taken_for_a_claim_that_holds_nothing() -> None:
    raw = claim("a", "core-0-0", owner="p")
    raw["status"]["allocation"]["devices"]["results"] = [{"driver": DRIVER}]
    with pytest.raises(Refusal, match="ClaimMalformed"):
        holds(raw, driver=DRIVER, claim=ref(raw))
