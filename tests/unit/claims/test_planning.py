"""Who shares a container: a call shows claims only, the pod says the rest, and shared claims stand alone.

Long, since it is one table: who meets whom in a container.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.claims.hardware import Snapshot
from dra_driver.claims.planning import Outcome, units
from dra_driver.claims.records import Record
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.sharing import Planned
from dra_driver.cluster.errors import ApiError, Forbidden, ServerError, Unavailable
from dra_driver.inventory.devices import physical_cores
from dra_driver.simulator.samples import DRIVER, Objects, claim, pod, ref, result

Plan = Callable[..., dict[str, Outcome]]
Granted = Callable[[Outcome], dict[str, tuple[str, ...]]]
Refused = Callable[[Outcome], str]
MakeRecord = Callable[..., Record]
MakeSnapshot = Callable[..., Snapshot]

HOST0 = "/dev/neuron0"
AWAY = Unavailable("get: no answer")


def run(cores: str) -> str:
    return f"NEURON_RT_VISIBLE_CORES={cores}"


# The usual case


def test_one_claim_with_one_request_reads_no_pod(plan: Plan, granted: Granted) -> None:
    one = claim("a", "core-0-1", owner="p")
    api = Objects(one)
    assert granted(plan(api, [one])["a"]) == {"core-0-1": (HOST0, run("1"))}
    assert api.reads == ["claim a"]


def test_several_devices_of_one_request_are_one_grant(plan: Plan, granted: Granted) -> None:
    one = claim("a", "core-0-0", "core-0-1", owner="p")
    assert granted(plan(Objects(one), [one])["a"]) == dict.fromkeys(["core-0-0", "core-0-1"], (HOST0, run("0-1")))


def test_a_claim_without_devices_of_ours_is_prepared_with_none(plan: Plan, granted: Granted) -> None:
    one = claim("a", result("nic-0", driver="nic.example.com"), owner="p")
    assert granted(plan(Objects(one), [one])["a"]) == {}


def test_a_refusal_knows_the_pods_that_wait_for_the_claim(plan: Plan) -> None:
    one = claim("a", "core-9-0", users=["p", "q"])
    outcome = plan(Objects(one), [one])["a"]
    assert isinstance(outcome, Refusal)
    assert [pod.name for pod in outcome.pods] == ["p", "q"]


def test_a_device_that_the_node_does_not_have(plan: Plan, refused: Refused) -> None:
    one = claim("a", "core-9-0", owner="p")
    assert refused(plan(Objects(one), [one])["a"]) == Reason.UNKNOWN_DEVICE.code


# A pod's own claims


def test_two_template_claims_in_one_container_are_one_grant_and_one_unit(plan: Plan, granted: Granted) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")
    api = Objects(one, two, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    outcomes = plan(api, [one, two])
    assert granted(outcomes["a"]) == {"core-0-0": (HOST0, run("0-1"))}
    assert granted(outcomes["b"]) == {"core-0-1": (HOST0, run("0-1"))}
    assert [len(unit) for unit in units(outcomes)] == [2]


def test_two_containers_with_claims_of_their_own_are_two_units(plan: Plan, granted: Granted) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")
    api = Objects(one, two, pod("p", {"first": ["a"], "second": ["b"]}, own=["a", "b"]))
    outcomes = plan(api, [one, two])
    assert granted(outcomes["a"]) == {"core-0-0": (HOST0, run("0"))}
    assert granted(outcomes["b"]) == {"core-0-1": (HOST0, run("1"))}
    assert [len(unit) for unit in units(outcomes)] == [1, 1]


def test_two_containers_with_requests_of_their_own_in_one_claim(plan: Plan, granted: Granted) -> None:
    one = claim("a", result("core-0-0", "x"), result("core-0-1", "y"), owner="p")
    api = Objects(one, pod("p", {"first": ["a/x"], "second": ["a/y"]}, own=["a"]))
    assert granted(plan(api, [one])["a"]) == {"core-0-0": (HOST0, run("0")), "core-0-1": (HOST0, run("1"))}


def test_a_container_that_names_no_request_gets_all_of_them(plan: Plan, granted: Granted) -> None:
    one = claim("a", result("core-0-0", "x"), result("core-0-1", "y/big"), owner="p")
    api = Objects(one, pod("p", {"main": ["a"]}, own=["a"]))
    assert granted(plan(api, [one])["a"]) == dict.fromkeys(["core-0-0", "core-0-1"], (HOST0, run("0-1")))


def test_a_device_in_two_containers_with_different_company_is_refused(plan: Plan, refused: Refused) -> None:
    """Its CDI edits are the same wherever it is used: one of the containers would see what isn't its own."""
    one = claim("a", result("core-0-0", "x"), result("core-0-1", "y"), owner="p")
    api = Objects(one, pod("p", {"both": ["a"], "second": ["a/y"]}, own=["a"]))
    assert refused(plan(api, [one])["a"]) == Reason.DIFFERENT_GRANTS.code


def test_an_init_container_and_a_main_container_with_the_same_claim(plan: Plan, granted: Granted) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")
    api = Objects(one, two, pod("p", {"main": ["a", "b"]}, init={"setup": ["a", "b"]}, own=["a", "b"]))
    assert granted(plan(api, [one, two])["a"]) == {"core-0-0": (HOST0, run("0-1"))}


def test_a_sidecar_counts_as_a_container(plan: Plan, granted: Granted, refused: Refused) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")
    apart = pod("p", {"main": ["a"]}, init={"sidecar": ["b"]}, own=["a", "b"])
    assert granted(plan(Objects(one, two, apart), [one, two])["b"]) == {"core-0-1": (HOST0, run("1"))}
    meets = pod("p", {"main": ["a"]}, init={"sidecar": ["a", "b"]}, own=["a", "b"])
    outcomes = plan(Objects(one, two, meets), [one, two])
    assert {refused(outcome) for outcome in outcomes.values()} == {Reason.DIFFERENT_GRANTS.code}


def test_an_init_container_reuses_a_request_under_one_extended_name(plan: Plan, granted: Granted) -> None:
    """The request is named after the later container; only the pod's status says who gets it."""
    one = claim("ext", result("core-0-0", "container-1-request-0"), owner="p")
    mapped = [("setup", "container-1-request-0"), ("main", "container-1-request-0")]
    api = Objects(one, pod("p", {"main": []}, init={"setup": []}, extended=("ext", mapped)))
    assert granted(plan(api, [one])["ext"]) == {"core-0-0": (HOST0, run("0"))}


def test_two_containers_with_one_extended_name_each(plan: Plan, granted: Granted) -> None:
    results = [result("core-0-0", "container-0-request-0"), result("core-0-1", "container-1-request-0")]
    one = claim("ext", *results, owner="p")
    mapped = [("first", "container-0-request-0"), ("second", "container-1-request-0")]
    api = Objects(one, pod("p", {"first": [], "second": []}, extended=("ext", mapped)))
    assert granted(plan(api, [one])["ext"]) == {"core-0-0": (HOST0, run("0")), "core-0-1": (HOST0, run("1"))}


def test_an_extended_resource_and_a_claim_meet_in_a_container(plan: Plan, granted: Granted) -> None:
    one = claim("ext", result("core-0-0", "container-0-request-0"), owner="p")
    two = claim("b", "core-0-1", owner="p")
    mapped = [("main", "container-0-request-0")]
    api = Objects(one, two, pod("p", {"main": ["b"]}, own=["b"], extended=("ext", mapped)))
    outcomes = plan(api, [one, two])
    assert granted(outcomes["ext"]) == {"core-0-0": (HOST0, run("0-1"))}
    assert [len(unit) for unit in units(outcomes)] == [2]


def test_claims_that_meet_through_a_third_are_one_unit(plan: Plan, refused: Refused, granted: Granted) -> None:
    claims = [claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p"), claim("c", "core-1-0", owner="p")]
    chained = pod("p", {"x": ["a", "b"], "y": ["b", "c"]}, own=["a", "b", "c"])
    outcomes = plan(Objects(*claims, chained), claims)
    assert {refused(outcome) for outcome in outcomes.values()} == {Reason.DIFFERENT_GRANTS.code}
    together = pod("p", {"x": ["a", "b", "c"]}, own=["a", "b", "c"])
    assert granted(plan(Objects(*claims, together), claims)["c"]) == {"core-1-0": (HOST0, "/dev/neuron1", run("0-2"))}


def test_two_claims_with_a_gap_in_one_container_are_both_refused(plan: Plan, refused: Refused) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-1-0", owner="p")
    api = Objects(one, two, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    assert {refused(outcome) for outcome in plan(api, [one, two]).values()} == {Reason.NOT_CONTIGUOUS.code}


def test_a_claim_that_no_container_names_is_prepared_with_its_own(plan: Plan, granted: Granted) -> None:
    """The kubelet asks for it all the same."""
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "chip-1", owner="p")
    api = Objects(one, two, pod("p", {"main": ["a"]}, own=["a"]))
    assert granted(plan(api, [one, two])["b"]) == {"chip-1": ("/dev/neuron1",)}


def test_watching_beside_an_own_device_adds_no_core(plan: Plan, granted: Granted) -> None:
    one = claim("a", result("core-0-0", "own"), result("chip-0", "watch", admin=True), owner="p")
    api = Objects(one, pod("p", {"main": ["a"]}, own=["a"]))
    assert granted(plan(api, [one])["a"]) == dict.fromkeys(["core-0-0", "chip-0"], (HOST0, run("0")))


# One claim of several can't be had


def test_one_that_fails_holds_back_those_it_meets_and_no_other(plan: Plan, granted: Granted, refused: Refused) -> None:
    claims = [claim(name, f"core-{i}-0", owner="p") for i, name in enumerate("abc")]
    bad = claim("d", "core-3-0", owner="p", uid="new")
    api = Objects(*claims, bad, pod("p", {"x": ["a", "d"], "y": ["b"], "z": ["c"]}, own=["a", "b", "c", "d"]))
    asked = [*claims, claim("d", "core-3-0", owner="p")]
    outcomes = plan(api, asked)
    assert refused(outcomes["d"]) == Reason.CLAIM_REPLACED.code
    assert refused(outcomes["a"]) == Reason.SIBLING.code
    assert granted(outcomes["b"]) == {"core-1-0": ("/dev/neuron1", run("0"))}
    assert granted(outcomes["c"]) == {"core-2-0": ("/dev/neuron2", run("0"))}


@pytest.mark.parametrize("error", [AWAY, ServerError("500", status=500)])
def test_one_that_the_api_withholds_may_come_so_its_company_may_wait(plan: Plan, error: ApiError) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")
    api = Objects(one, two, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    api.fail(two, error)
    outcomes = plan(api, [one, two])
    assert all(isinstance(outcome, Refusal) and outcome.reason.retryable for outcome in outcomes.values())


def test_a_claim_that_is_gone_from_the_api(plan: Plan, refused: Refused) -> None:
    one = claim("a", "core-0-0", owner="p")
    assert refused(plan(Objects(), [one])["a"]) == Reason.CLAIM_REPLACED.code


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ([], Reason.POD_REPLACED),
        ([pod("p", {"main": ["a/x"]}, uid="new")], Reason.POD_REPLACED),
        ([pod("p", {"main": ["a/x"]}, own=["a"]) | {"status": {}}], Reason.POD_INCOMPLETE),
        ([pod("p", {"main": ["a/x"]}) | {"spec": None}], Reason.POD_MALFORMED),
    ],
)
def test_a_pod_that_cannot_decide(plan: Plan, refused: Refused, there: list[dict[str, Any]], reason: Reason) -> None:
    one = claim("a", result("core-0-0", "x"), result("core-0-1", "y"), owner="p")
    assert refused(plan(Objects(one, *there), [one])["a"]) == reason.code


def test_a_pod_that_the_api_withholds_is_asked_for_again(plan: Plan, refused: Refused) -> None:
    one = claim("a", result("core-0-0", "x"), result("core-0-1", "y"), owner="p")
    who = pod("p", {"main": ["a"]}, own=["a"])
    api = Objects(one, who)
    api.fail(who, Forbidden("get pods: 403"))
    assert refused(plan(api, [one])["a"]) == Reason.POD_UNREADABLE.code
    assert Reason.POD_UNREADABLE.retryable


# Without the right to read pods


def test_pods_unreadable_one_claim_with_one_request_goes(plan: Plan, granted: Granted) -> None:
    one = claim("a", "core-0-0", owner="p")
    assert granted(plan(Objects(one), [one], read_pods=False)["a"]) == {"core-0-0": (HOST0, run("0"))}


def test_pods_unreadable_the_rest_is_refused_and_no_pod_is_asked_for(plan: Plan, refused: Refused) -> None:
    one = claim("a", result("core-0-0", "x"), result("core-0-1", "y"), owner="p")
    two, three = claim("b", "core-0-0", owner="p"), claim("c", "core-0-1", owner="p")
    for asked in ([one], [two, three]):
        api = Objects(*asked)
        outcomes = plan(api, asked, read_pods=False)
        assert {refused(outcome) for outcome in outcomes.values()} == {Reason.PODS_UNREADABLE.code}
        assert not any(read.startswith("pod") for read in api.reads)


def test_pods_unreadable_a_failed_companion_is_what_is_told(plan: Plan, refused: Refused) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", users=["p"])
    api = Objects(one, two)
    api.fail(two, AWAY)
    assert refused(plan(api, [one, two], read_pods=False)["a"]) == Reason.CLAIM_UNREADABLE.code


def test_pods_unreadable_two_user_made_claims_cannot_be_told_apart_so_they_go(plan: Plan, granted: Granted) -> None:
    one, two = claim("s", "core-0-0", users=["p"]), claim("t", "core-0-1", users=["p"])
    outcomes = plan(Objects(one, two), [one, two], read_pods=False)
    assert granted(outcomes["s"]) == {"core-0-0": (HOST0, run("0"))}
    assert granted(outcomes["t"]) == {"core-0-1": (HOST0, run("1"))}


# User-made claims


def test_a_shared_claim_stands_alone_and_reads_no_pod(plan: Plan, granted: Granted) -> None:
    one = claim("s", "core-0-0", users=["p", "q", "r"])
    api = Objects(one)
    assert granted(plan(api, [one])["s"]) == {"core-0-0": (HOST0, run("0"))}
    assert api.reads == ["claim s"]


def test_a_shared_claim_with_several_requests_is_refused(plan: Plan, refused: Refused) -> None:
    """A second pod that names one of them only would never be shown to the driver."""
    one = claim("s", result("core-0-0", "x"), result("core-0-1", "y"), users=["p"])
    assert refused(plan(Objects(one), [one])["s"]) == Reason.SEVERAL_REQUESTS.code


def test_a_shared_claim_with_several_devices_of_one_request_goes(plan: Plan, granted: Granted) -> None:
    one = claim("s", "core-0-0", "core-0-1", users=["p"])
    assert granted(plan(Objects(one), [one])["s"]) == dict.fromkeys(["core-0-0", "core-0-1"], (HOST0, run("0-1")))


def test_a_claim_reserved_for_a_pod_group_is_refused(plan: Plan, refused: Refused) -> None:
    one = claim("s", "core-0-0")
    one["status"]["reservedFor"] = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g"}]
    assert refused(plan(Objects(one), [one])["s"]) == Reason.NOT_A_POD.code


SHARED = claim("s", "core-0-0", users=["p", "q"])
OWN = claim("a", "core-0-1", owner="p")
COMBINED = pod("p", {"main": ["s", "a"]}, own=["a"])
SEPARATE = pod("p", {"first": ["s"], "second": ["a"]}, own=["a"])


def test_shared_and_own_in_one_container_in_one_call_the_own_one_is_refused(
    plan: Plan, granted: Granted, refused: Refused
) -> None:
    outcomes = plan(Objects(SHARED, OWN, COMBINED), [SHARED, OWN])
    assert granted(outcomes["s"]) == {"core-0-0": (HOST0, run("0"))}
    assert refused(outcomes["a"]) == Reason.MIXED_WITH_SHARED.code


def test_shared_first_and_own_in_the_same_container_later_the_own_one_is_refused(
    plan: Plan, refused: Refused, recorded: MakeRecord
) -> None:
    """The other pod brought the shared claim in: this pod's call doesn't name it."""
    shared_for_q = claim("s", "core-0-0", users=["q"])
    outcomes = plan(Objects(SHARED, OWN, COMBINED), [OWN], records=[recorded(shared_for_q)])
    assert refused(outcomes["a"]) == Reason.MIXED_WITH_SHARED.code


def test_own_first_and_shared_in_the_same_container_the_other_pod_runs(
    plan: Plan, granted: Granted, recorded: MakeRecord
) -> None:
    """The own claim was refused before, so has no record; the other pod's call names the shared one alone."""
    outcomes = plan(Objects(SHARED, OWN, COMBINED), [SHARED])
    assert granted(outcomes["s"]) == {"core-0-0": (HOST0, run("0"))}


@pytest.mark.parametrize("order", ["shared first", "one call"])
def test_shared_and_own_in_two_containers_of_a_pod_run(
    plan: Plan, granted: Granted, recorded: MakeRecord, order: str
) -> None:
    api = Objects(SHARED, OWN, SEPARATE)
    outcomes = plan(api, [OWN], records=[recorded(SHARED)]) if order == "shared first" else plan(api, [SHARED, OWN])
    assert granted(outcomes["a"]) == {"core-0-1": (HOST0, run("1"))}


def test_a_shared_record_that_the_pod_has_not_reserved_reads_no_pod(
    plan: Plan, granted: Granted, recorded: MakeRecord
) -> None:
    others = claim("s", "core-0-0", users=["q"])
    api = Objects(others, OWN)
    assert granted(plan(api, [OWN], records=[recorded(others)])["a"]) == {"core-0-1": (HOST0, run("1"))}
    assert api.reads == ["claim a", "claim s"]


def test_records_of_other_pods_and_other_namespaces_are_not_read(
    plan: Plan, granted: Granted, recorded: MakeRecord
) -> None:
    owned = recorded(claim("b", "core-1-0", owner="q"))
    elsewhere = recorded(claim("s", "core-2-0", users=["p"]))
    moved = Record(**{**vars(elsewhere), "claim": type(elsewhere.claim)("other", "s", "uid-s")})
    api = Objects(OWN)
    assert granted(plan(api, [OWN], records=[owned, moved])["a"]) == {"core-0-1": (HOST0, run("1"))}
    assert api.reads == ["claim a"]


def test_a_recorded_claim_that_was_made_anew_or_is_gone_concerns_nobody(
    plan: Plan, granted: Granted, recorded: MakeRecord
) -> None:
    anew = claim("s", "core-0-0", users=["p"], uid="new")
    for api in (Objects(OWN, anew), Objects(OWN)):
        assert granted(plan(api, [OWN], records=[recorded(SHARED)])["a"]) == {"core-0-1": (HOST0, run("1"))}


def test_a_recorded_claim_reserved_for_pods_and_more_still_counts(
    plan: Plan, refused: Refused, recorded: MakeRecord
) -> None:
    """Whatever else that claim has become, the kubelet gives its old edits to this pod's container."""
    grown = claim("s", result("x", pool="elsewhere"), users=["p"])
    grown["status"]["reservedFor"].append({"apiGroup": "g", "resource": "podgroups", "name": "g", "uid": "uid-g"})
    outcomes = plan(Objects(grown, OWN, COMBINED), [OWN], records=[recorded(SHARED)])
    assert refused(outcomes["a"]) == Reason.MIXED_WITH_SHARED.code


def test_a_recorded_claim_that_the_api_withholds_holds_the_own_one_back(
    plan: Plan, refused: Refused, recorded: MakeRecord
) -> None:
    api = Objects(SHARED, OWN, SEPARATE)
    api.fail(SHARED, AWAY)
    assert refused(plan(api, [OWN], records=[recorded(SHARED)])["a"]) == Reason.CLAIM_UNREADABLE.code


def test_only_containers_that_get_a_device_of_the_own_claim_combine(plan: Plan, granted: Granted) -> None:
    """The container uses another driver's request of the own claim beside the shared one."""
    own = claim("a", result("core-0-1", "core"), result("nic-0", "nic", driver="nic.example.com"), owner="p")
    api = Objects(SHARED, own, pod("p", {"first": ["s", "a/nic"], "second": ["a/core"]}, own=["a"]))
    assert granted(plan(api, [SHARED, own])["a"]) == {"core-0-1": (HOST0, run("1"))}


def test_two_user_made_claims_that_meet_are_refused_where_every_pod_that_may_be_meant_combines_them(
    plan: Plan, refused: Refused
) -> None:
    one, two = claim("s", "core-0-0", users=["p"]), claim("t", "core-0-1", users=["p"])
    api = Objects(one, two, pod("p", {"main": ["s", "t"]}))
    outcomes = plan(api, [one, two])
    assert {refused(outcome) for outcome in outcomes.values()} == {Reason.SHARED_TOGETHER.code}
    assert api.reads.count("pod p") == 1


def test_two_user_made_claims_that_meet_one_of_them_brought_in_before(
    plan: Plan, refused: Refused, recorded: MakeRecord
) -> None:
    one, two = claim("s", "core-0-0", users=["p"]), claim("t", "core-0-1", users=["p"])
    api = Objects(one, two, pod("p", {"main": ["s", "t"]}))
    assert refused(plan(api, [two], records=[recorded(one)])["t"]) == Reason.SHARED_TOGETHER.code


def test_two_user_made_claims_go_where_another_pod_may_be_meant(plan: Plan, granted: Granted) -> None:
    one, two = claim("s", "core-0-0", users=["p", "q"]), claim("t", "core-0-1", users=["p", "q"])
    api = Objects(one, two, pod("p", {"main": ["s", "t"]}), pod("q", {"first": ["s"], "second": ["t"]}))
    outcomes = plan(api, [one, two])
    assert granted(outcomes["s"]) == {"core-0-0": (HOST0, run("0"))}
    assert granted(outcomes["t"]) == {"core-0-1": (HOST0, run("1"))}


def test_a_reservation_that_outlives_its_pod_decides_nothing(plan: Plan, granted: Granted, refused: Refused) -> None:
    one, two = claim("s", "core-0-0", users=["gone", "p"]), claim("t", "core-0-1", users=["gone", "p"])
    apart = Objects(one, two, pod("p", {"first": ["s"], "second": ["t"]}))
    assert granted(plan(apart, [one, two])["s"]) == {"core-0-0": (HOST0, run("0"))}
    met = Objects(one, two, pod("p", {"main": ["s", "t"]}))
    assert refused(plan(met, [one, two])["s"]) == Reason.SHARED_TOGETHER.code


# Generated claims in the wrong hands


def test_another_pods_generated_claim_beside_an_own_one_is_refused(
    plan: Plan, granted: Granted, refused: Refused
) -> None:
    """Pod q names the claim that was generated for p: it stands as it is for p, and q combines nothing with it."""
    theirs, own = claim("a", "core-0-0", owner="p", users=["q"]), claim("b", "core-0-1", owner="q")
    api = Objects(theirs, own, pod("q", {"main": ["a", "b"]}, own=["b"]), pod("p", {"main": ["a"]}, own=["a"]))
    outcomes = plan(api, [theirs, own])
    assert granted(outcomes["a"]) == {"core-0-0": (HOST0, run("0"))}
    assert refused(outcomes["b"]) == Reason.MIXED_WITH_SHARED.code


def test_an_own_claim_that_another_pod_brought_in_before_is_not_combined_any_more(
    plan: Plan, refused: Refused, recorded: MakeRecord
) -> None:
    before, later = claim("a", "core-0-0", owner="p", users=["q"]), claim("b", "core-0-1", owner="p")
    api = Objects(before, later, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    assert refused(plan(api, [later], records=[recorded(before)])["b"]) == Reason.MIXED_WITH_SHARED.code


# Whatever pod, whatever claims


@st.composite
def pods_with_claims(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, list[str]]]:
    """Claims of one pod, own and shared, on distinct devices that don't overlap, and containers that use them."""
    names = [f"core-{chip}-{core}" for chip in range(3) for core in range(2)]
    devices = draw(st.permutations(names))
    claims, uses = [], []
    for name in draw(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)):
        size = draw(st.integers(1, 2))
        results = [result(devices.pop(), draw(st.sampled_from("xy"))) for _ in range(size)]
        shared = draw(st.booleans())
        claims.append(claim(name, *results, **({"users": ["p", "q"]} if shared else {"owner": "p"})))
        uses += [name, *(f"{name}/{one['request']}" for one in results)]
    containers = draw(
        st.dictionaries(st.sampled_from(["m", "n", "o"]), st.lists(st.sampled_from(uses), unique=True, max_size=3))
    )
    return claims, containers


@given(given_pod=pods_with_claims())
def test_whatever_a_pod_combines_each_container_has_its_devices_cores_or_a_claim_is_refused(
    plan: Plan, snapshot: MakeSnapshot, given_pod: tuple[list[dict[str, Any]], dict[str, list[str]]]
) -> None:
    claims, containers = given_pod
    own = [one["metadata"]["name"] for one in claims if one["metadata"].get("ownerReferences")]
    api = Objects(*claims, pod("p", containers, own=own), pod("q", {"main": []}))
    now = snapshot(4)
    outcomes = plan(api, claims, machine=now)
    for used in containers.values():
        _check(used, claims, outcomes, now)


def _check(used: list[str], claims: list[dict[str, Any]], outcomes: dict[str, Outcome], now: Snapshot) -> None:
    """The kubelet injects what is named; all of it says the same, and it is exactly the cores of those devices."""
    injected = [
        (one["metadata"]["name"], entry["device"])
        for one in claims
        for entry in one["status"]["allocation"]["devices"]["results"]
        if {one["metadata"]["name"], f"{one['metadata']['name']}/{entry['request']}"} & set(used)
    ]
    planned = [outcomes[name] for name, _ in injected]
    if not injected or not all(isinstance(one, Planned) for one in planned):
        return  # nothing of ours, or the pod doesn't start
    carried = {outcomes[name].edits[device] for name, device in injected}  # type: ignore[union-attr]
    names = {name for name, _ in injected}
    if len(names) > 1 and all(one.claim.owner is None for one in planned if isinstance(one, Planned)):
        return  # two user-made claims: nobody says for which pod they are asked
    assert len(carried) == 1
    (edits,) = carried
    cores = {core for _, device in injected for core in physical_cores(now.devices[device])}
    hosts = [int(node.host_path.removeprefix("/dev/neuron")) for node in edits.device_nodes]
    every = [(chip, core) for chip in hosts for core in range(2)]
    first, _, last = edits.env[0].removeprefix("NEURON_RT_VISIBLE_CORES=").partition("-")
    assert set(every[int(first) : int(last or first) + 1]) == cores


def test_a_claim_is_named_by_the_driver_it_is_for() -> None:
    assert ref(OWN).uid == "uid-a"
    assert OWN["status"]["allocation"]["devices"]["results"][0]["driver"] == DRIVER
