"""The search takes the first fit, never the same thing twice, and says what is short."""

import copy
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.simulator.allocator import MAX_DEVICES, Unallocatable, allocate, held
from dra_driver.simulator.pools import DeviceId
from dra_driver.simulator.requests import AllocationError

Wire = dict[str, Any]
MakeClaim = Callable[..., Wire]
ONE = DeviceId("neuron.test", "neuron.test/n1", "core-0-0")
CHIP = ONE._replace(device="chip-0")


@pytest.fixture
def run(trn1: list[Wire], classes: dict[str, Wire]) -> Callable[..., list[Wire]]:
    def run(*claims: Wire, in_use: set[DeviceId] | None = None, slices: list[Wire] | None = None) -> list[Wire]:
        pool = trn1 if slices is None else slices
        return allocate(claims, slices=pool, classes=classes, in_use=dict.fromkeys(in_use or (), "x"), node="n1")

    return run


@pytest.fixture
def devices(run: Callable[..., list[Wire]]) -> Callable[..., list[str]]:
    def devices(*claims: Wire, **more: Any) -> list[str]:
        return [result["device"] for each in run(*claims, **more) for result in each["devices"]["results"]]

    return devices


Run = Callable[..., list[Wire]]
Devices = Callable[..., list[str]]


def test_the_result_is_the_apis(run: Run, make_claim: MakeClaim) -> None:
    assert run(make_claim("a", "core")) == [
        {
            "devices": {
                "results": [{"request": "r0", "driver": "neuron.test", "pool": "neuron.test/n1", "device": "core-0-0"}]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
            },
        }
    ]


def test_first_fit_in_listed_order(devices: Devices, make_claim: MakeClaim) -> None:
    assert devices(make_claim("a", "core")) == ["core-0-0"]
    assert devices(make_claim("a", "core"), in_use={ONE}) == ["core-0-1"]
    assert devices(make_claim("a", "chip")) == ["chip-0"]


def test_requests_and_claims_of_one_pod_never_share(devices: Devices, make_claim: MakeClaim) -> None:
    assert devices(make_claim("a", "core", "core")) == ["core-0-0", "core-0-1"]
    assert devices(make_claim("a", "core"), make_claim("b", "core")) == ["core-0-0", "core-0-1"]


def test_count(devices: Devices, make_claim: MakeClaim) -> None:
    two = {"name": "both", "exactly": {"deviceClassName": "core", "count": 2}}
    assert devices(make_claim("a", two)) == ["core-0-0", "core-0-1"]


def test_a_chip_in_use_blocks_its_cores_by_the_counter(run: Run, make_claim: MakeClaim) -> None:
    with pytest.raises(Unallocatable) as caught:
        run(make_claim("a", "core"), in_use={CHIP})
    assert str(caught.value) == (
        "cannot allocate all claims: claim a, request r0: 1 of class core wanted, 0 free "
        "(core-0-0: counter chip-0 has 0 of 2 left, needs 1; "
        "core-0-1: counter chip-0 has 0 of 2 left, needs 1)"
    )


def test_a_core_in_use_blocks_the_chip_by_the_counter(run: Run, make_claim: MakeClaim) -> None:
    with pytest.raises(Unallocatable, match=r"\(chip-0: counter chip-0 has 1 of 2 left, needs 2\)"):
        run(make_claim("a", "chip"), in_use={ONE})


def test_a_device_in_use_is_said_to_be(run: Run, make_claim: MakeClaim) -> None:
    with pytest.raises(Unallocatable, match=r"0 free \(chip-0: in use by x\)"):
        run(make_claim("a", "chip"), in_use={CHIP})


def test_what_one_pod_asks_together_must_fit_together(run: Run, make_claim: MakeClaim) -> None:
    with pytest.raises(Unallocatable, match="fits, but not together with the rest"):
        run(make_claim("a", "core", "chip"))


def test_no_matching_device(run: Run, make_claim: MakeClaim) -> None:
    with pytest.raises(Unallocatable, match="no device on this node matches class core"):
        run(make_claim("a", "core"), slices=[])


def test_an_incomplete_pool_is_named(run: Run, make_claim: MakeClaim, trn1: list[Wire]) -> None:
    with pytest.raises(Unallocatable, match=r"pool neuron\.test/n1 is incomplete: 1 of 2 slices are there"):
        run(make_claim("a", "core"), slices=trn1[1:])


def test_nothing_is_left_taken_after_a_failure(devices: Devices, make_claim: MakeClaim) -> None:
    """The first alternative takes a chip, the second request then fails: the chip must go back."""
    first = {
        "name": "one",
        "firstAvailable": [
            {"name": "big", "deviceClassName": "chip"},
            {"name": "small", "deviceClassName": "core"},
        ],
    }
    assert devices(make_claim("a", first, "core")) == ["core-0-0", "core-0-1"]


def test_first_available_names_the_alternative(run: Run, make_claim: MakeClaim) -> None:
    alternatives = [{"name": "big", "deviceClassName": "chip"}, {"name": "small", "deviceClassName": "core"}]
    claim = make_claim("a", {"name": "one", "firstAvailable": alternatives})
    (free,) = run(claim)
    (half,) = run(claim, in_use={ONE})
    assert [result["request"] for result in free["devices"]["results"]] == ["one/big"]
    assert [result["request"] for result in half["devices"]["results"]] == ["one/small"]


def test_all_takes_every_match_or_nothing(devices: Devices, make_claim: MakeClaim) -> None:
    every = {"name": "every", "exactly": {"deviceClassName": "core", "allocationMode": "All"}}
    assert devices(make_claim("a", every)) == ["core-0-0", "core-0-1"]
    with pytest.raises(Unallocatable, match=r"all of class core wanted, 1 free \(core-0-0: in use by x\)"):
        devices(make_claim("a", every), in_use={ONE})


def test_all_of_nothing_is_nothing(devices: Devices, make_claim: MakeClaim) -> None:
    every = {"name": "every", "exactly": {"deviceClassName": "core", "allocationMode": "All"}}
    with pytest.raises(Unallocatable, match="no device on this node matches"):
        devices(make_claim("a", every), slices=[])


def test_all_fails_on_an_incomplete_pool(devices: Devices, make_claim: MakeClaim, trn1: list[Wire]) -> None:
    every = {"name": "every", "exactly": {"deviceClassName": "core", "allocationMode": "All"}}
    with pytest.raises(AllocationError, match=r"asks for all; pool neuron\.test/n1: incomplete"):
        devices(make_claim("a", every), slices=trn1[1:])


def test_admin_access_takes_what_is_in_use_and_says_so(
    run: Run, make_claim: MakeClaim, make_device: Callable[..., Wire], make_slice: Callable[..., Wire]
) -> None:
    device = make_device("core-0-0", "core", "1")
    del device["consumesCounters"]
    watch = {"name": "watch", "exactly": {"deviceClassName": "core", "adminAccess": True}}
    (allocation,) = run(make_claim("a", watch), in_use={ONE}, slices=[make_slice("a", count=1, devices=[device])])
    (result,) = allocation["devices"]["results"]
    assert (result["device"], result["adminAccess"]) == ("core-0-0", True)


def test_admin_access_holds_nothing(make_claim: MakeClaim) -> None:
    claim = make_claim("a", "core")
    assert held([claim]) == {}
    claim["status"] = {"allocation": {"devices": {"results": [{"request": "r", **ONE._asdict()}]}}}
    assert held([claim]) == {ONE: "a"}
    claim["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = True
    assert held([claim]) == {}


def test_request_selector_narrows_the_class(devices: Devices, make_claim: MakeClaim) -> None:
    selector = {"cel": {"expression": 'device.attributes["neuron.test"].index == 7'}}
    wanted = {"name": "far", "exactly": {"deviceClassName": "core", "selectors": [selector]}}
    with pytest.raises(Unallocatable, match="no device on this node matches class core"):
        devices(make_claim("a", wanted))


def test_a_selector_that_fails_stops_the_pod(devices: Devices, make_claim: MakeClaim) -> None:
    selector = {"cel": {"expression": 'device.attributes["neuron.test"].nope == 7'}}
    wanted = {"name": "bad", "exactly": {"deviceClassName": "core", "selectors": [selector]}}
    with pytest.raises(AllocationError, match=r"class core, request bad: .* no such key: nope"):
        devices(make_claim("a", wanted))


def test_a_selector_that_is_no_cel_stops_the_pod(devices: Devices, make_claim: MakeClaim) -> None:
    wanted = {
        "name": "bad",
        "exactly": {"deviceClassName": "core", "selectors": [{"cel": {"expression": "1 +"}}]},
    }
    with pytest.raises(AllocationError, match=r"request bad: .*can't be compiled"):
        devices(make_claim("a", wanted))


def test_a_missing_class_stops_the_pod(devices: Devices, make_claim: MakeClaim) -> None:
    with pytest.raises(AllocationError, match="request r0: device class gone does not exist"):
        devices(make_claim("a", "gone"))


@pytest.mark.parametrize("field", ["capacity", "derivedAttributes"])
def test_unknown_request_fields_are_refused(devices: Devices, make_claim: MakeClaim, field: str) -> None:
    wanted = {"name": "odd", "exactly": {"deviceClassName": "core", field: {"some": "thing"}}}
    with pytest.raises(AllocationError, match=f"request odd: the simulator doesn't know {field}"):
        devices(make_claim("a", wanted))


def test_unknown_constraints_are_refused(devices: Devices, make_claim: MakeClaim) -> None:
    claim = make_claim("a", "core", constraints=[{"requests": ["r0"], "distinctAttribute": "neuron.test/index"}])
    with pytest.raises(AllocationError, match="matchAttribute only, not distinctAttribute"):
        devices(claim)


def _two_chips(make_slice: Callable[..., Wire], make_device: Callable[..., Wire]) -> list[Wire]:
    devices = [
        make_device(f"core-{chip}-{core}", "core", "1", index={"int": chip}) for chip, core in ((0, 0), (1, 0), (1, 1))
    ]
    for device in devices:
        del device["consumesCounters"]
    return [make_slice("a", count=1, devices=devices)]


@pytest.mark.parametrize("requests", [None, ["r0", "r1"]])
def test_match_attribute_searches_on(
    devices: Devices,
    make_claim: MakeClaim,
    make_slice: Callable[..., Wire],
    make_device: Callable[..., Wire],
    requests: list[str] | None,
) -> None:
    constraint = {"matchAttribute": "neuron.test/index"} | ({"requests": requests} if requests else {})
    claim = make_claim("a", "core", "core", constraints=[constraint])
    assert devices(claim, slices=_two_chips(make_slice, make_device)) == ["core-1-0", "core-1-1"]


def test_match_attribute_of_other_requests_is_no_limit(
    devices: Devices, make_claim: MakeClaim, make_slice: Callable[..., Wire], make_device: Callable[..., Wire]
) -> None:
    claim = make_claim("a", "core", "core", constraints=[{"requests": ["r0"], "matchAttribute": "neuron.test/index"}])
    assert devices(claim, slices=_two_chips(make_slice, make_device)) == ["core-0-0", "core-1-0"]


def test_a_device_without_the_attribute_is_not_chosen(devices: Devices, make_claim: MakeClaim) -> None:
    claim = make_claim("a", "core", constraints=[{"matchAttribute": "elsewhere.test/index"}])
    with pytest.raises(Unallocatable, match=r"doesn't share elsewhere[.]test/index"):
        devices(claim)


@pytest.mark.parametrize(
    ("effect", "toleration", "fits"),
    [
        ("NoSchedule", None, False),
        ("NoExecute", None, False),
        ("None", None, True),
        ("Unheard", None, True),
        ("NoSchedule", {"operator": "Exists"}, True),
        ("NoSchedule", {"key": "sick", "operator": "Exists"}, True),
        ("NoSchedule", {"key": "sick", "value": "yes"}, True),
        ("NoSchedule", {"key": "sick", "value": "no"}, False),
        ("NoSchedule", {"key": "other", "operator": "Exists"}, False),
        ("NoSchedule", {"operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints(
    devices: Devices,
    make_claim: MakeClaim,
    trn1: list[Wire],
    effect: str,
    toleration: Wire | None,
    *,
    fits: bool,
) -> None:
    trn1[1]["spec"]["devices"][2]["taints"] = [{"key": "sick", "value": "yes", "effect": effect}]
    exactly: Wire = {"deviceClassName": "chip"} | ({"tolerations": [toleration]} if toleration else {})
    claim = make_claim("a", {"name": "r", "exactly": exactly})
    if fits:
        assert devices(claim) == ["chip-0"]
    else:
        with pytest.raises(Unallocatable, match="chip-0: tainted sick"):
            devices(claim)


def test_tolerations_are_copied_into_the_result(run: Run, make_claim: MakeClaim) -> None:
    toleration = {"key": "sick", "operator": "Exists"}
    claim = make_claim("a", {"name": "r", "exactly": {"deviceClassName": "chip", "tolerations": [toleration]}})
    assert run(claim)[0]["devices"]["results"][0]["tolerations"] == [toleration]


def test_config_has_the_class_before_the_claim(run: Run, make_claim: MakeClaim, classes: dict[str, Wire]) -> None:
    opaque = {"opaque": {"driver": "neuron.test", "parameters": {"a": 1}}}
    classes["core"]["spec"]["config"] = [opaque]
    claim = make_claim("a", "core", "core", config=[{"requests": ["r1"], **opaque}, {"requests": ["gone"], **opaque}])
    assert run(claim)[0]["devices"]["config"] == [
        {"source": "FromClass", **opaque},  # for every request, so it names none
        {"source": "FromClaim", "requests": ["r1"], **opaque},
    ]


def test_more_than_a_claim_may_hold_fails_at_once(
    devices: Devices, make_claim: MakeClaim, make_slice: Callable[..., Wire], make_device: Callable[..., Wire]
) -> None:
    many = [{**make_device(f"c{at}", "core", "0"), "consumesCounters": []} for at in range(MAX_DEVICES + 1)]
    slices = [make_slice("a", count=1, devices=many)]
    wanted = {"name": "r", "exactly": {"deviceClassName": "core", "count": MAX_DEVICES}}
    assert len(devices(make_claim("a", wanted), slices=slices)) == MAX_DEVICES
    wanted["exactly"] = {"deviceClassName": "core", "count": MAX_DEVICES + 1}
    with pytest.raises(AllocationError, match="a claim can have 32"):
        devices(make_claim("a", wanted), slices=slices)


def test_nothing_asked_is_allocated_as_nothing(run: Run, make_claim: MakeClaim) -> None:
    assert run(make_claim("a"))[0]["devices"]["results"] == []


def test_what_is_given_is_not_changed(run: Run, make_claim: MakeClaim, trn1: list[Wire]) -> None:
    claim, before = make_claim("a", "core"), copy.deepcopy(trn1)
    run(claim)
    assert trn1 == before
    assert claim == make_claim("a", "core")


def test_long_reasons_are_cut(
    run: Run, make_claim: MakeClaim, make_slice: Callable[..., Wire], make_device: Callable[..., Wire]
) -> None:
    many = [{**make_device(f"core-0-{at}", "core", "1"), "consumesCounters": []} for at in range(5)]
    used = {ONE._replace(device=device["name"]) for device in many}
    with pytest.raises(
        Unallocatable, match=r"0 free \(core-0-0: in use by x; core-0-1: in use by x; core-0-2: in use by x; 2 more\)"
    ):
        run(make_claim("a", "core"), in_use=used, slices=[make_slice("a", count=1, devices=many)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.sampled_from(["core", "chip", "free"]), max_size=12))
def test_no_sequence_of_claims_ever_draws_more_than_there_is(run: Run, make_claim: MakeClaim, steps: list[str]) -> None:
    cost = {"core-0-0": 1, "core-0-1": 1, "chip-0": 2}
    live: list[Wire] = []
    for at, step in enumerate(steps):
        if step == "free":
            live = live[1:]
            continue
        claim = make_claim(f"c{at}", step)
        try:
            (allocation,) = run(claim, in_use=set(held(live)))
        except Unallocatable as error:
            assert "cannot allocate all claims" in str(error)  # noqa: PT017  # both outcomes are right, by the rest
            assert Decimal(sum(cost[each.device] for each in held(live))) > 2 - (2 if step == "chip" else 1)
        else:
            live.append({**claim, "status": {"allocation": allocation}})
        assert sum(cost[each.device] for each in held(live)) <= 2
        assert len(held(live)) == len(live)
