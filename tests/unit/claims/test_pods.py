"""Which container uses what: the pod alone says it."""

from typing import Any

import pytest

from dra_driver.claims.pods import Pod, Use, read_pod
from dra_driver.claims.refusals import PodRef, Reason, Refusal
from dra_driver.simulator.samples import pod

P = PodRef("p", "uid-p")


def read(raw: dict[str, Any]) -> Pod:
    return read_pod(raw, expected=P)


def uses(raw: dict[str, Any]) -> dict[str, tuple[Use, ...]]:
    return {container.name: container.uses for container in read(raw).containers}


def test_every_kind_of_container_is_read() -> None:
    raw = pod("p", {"main": ["a", "b/one"]}, init={"setup": ["a"], "sidecar": ["c"]}, own=["b", "c"])
    raw["spec"]["initContainers"][1]["restartPolicy"] = "Always"
    assert uses(raw) == {
        "setup": (Use("a", None),),
        "sidecar": (Use("c", None),),
        "main": (Use("a", None), Use("b", "one")),
    }


def test_extended_resources_stand_in_the_status_alone() -> None:
    """An init container reuses a later one's request, whose name says nothing of the container."""
    pairs = [("setup", "container-1-request-0"), ("main", "container-1-request-0"), ("main", "container-1-request-1")]
    raw = pod("p", {"main": []}, init={"setup": []}, extended=("ext", pairs))
    assert uses(raw) == {
        "setup": (Use("ext", "container-1-request-0"),),
        "main": (Use("ext", "container-1-request-0"), Use("ext", "container-1-request-1")),
    }


def test_a_container_gets_the_requests_that_it_names_as_the_kubelet_matches_them() -> None:
    raw = pod("p", {"one": ["a/x"], "all": ["a"], "both": ["a/x", "a/y"], "sub": ["a/x/small"], "none": []})
    got = {container.name: container.gets("a", {"x", "y"}) for container in read(raw).containers}
    assert got == {"one": {"x"}, "all": {"x", "y"}, "both": {"x", "y"}, "sub": set(), "none": set()}


def test_a_claim_whose_name_the_status_lacks_is_waited_for() -> None:
    raw = pod("p", {"main": ["a"]}, own=["a"])
    raw["status"]["resourceClaimStatuses"] = []
    with pytest.raises(Refusal, match="'as-a'") as caught:
        read(raw)
    assert caught.value.reason is Reason.POD_INCOMPLETE
    assert caught.value.reason.retryable


def test_an_entry_for_which_no_claim_was_needed_is_none() -> None:
    raw = pod("p", {"main": ["a", "b"]}, own=["a"])
    raw["status"]["resourceClaimStatuses"] = [{"name": "as-a"}]
    assert uses(raw) == {"main": (Use("b", None),)}


def test_bc132_null_is_empty_everywhere() -> None:
    raw = pod("p", {"main": []})
    raw["status"] = {"resourceClaimStatuses": None, "extendedResourceClaimStatus": None}
    raw["spec"] |= {"initContainers": None, "resourceClaims": None}
    raw["spec"]["containers"][0]["resources"] = {"claims": None}
    assert uses(raw) == {"main": ()}
    raw["status"] = {"extendedResourceClaimStatus": {"resourceClaimName": "ext", "requestMappings": None}}
    raw["spec"]["containers"][0]["resources"] = None
    assert uses(raw) == {"main": ()}
    raw["status"] = None
    assert uses(raw) == {"main": ()}


def test_another_pod_of_the_same_name_decides_nothing() -> None:
    with pytest.raises(Refusal, match="UID new now") as caught:
        read(pod("p", {"main": []}, uid="new"))
    assert caught.value.reason is Reason.POD_REPLACED


def test_a_pod_that_is_none_says_which_field() -> None:
    raw = pod("p", {"main": []})
    raw["spec"]["containers"] = [{"image": "x"}]
    with pytest.raises(Refusal, match=r"spec\.containers\.0\.name") as caught:
        read(raw)
    assert caught.value.reason is Reason.POD_MALFORMED
