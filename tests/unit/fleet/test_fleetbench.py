"""What the fleet bench publishes, holds and asks for, without a scheduler: is what it measures what it says?"""

from collections.abc import Sequence
from itertools import chain

import pytest
from fleetbench import load, report
from fleetbench.__main__ import FULL, SHORT
from fleetbench.fleet import CHIP_RESOURCE, CHIPS, CORES, LAYOUTS, MAIN, Variant, few_attributes, node_names
from fleetbench.load import SIZES, STATES, WORKLOADS, Workload
from fleetbench.measure import Result, medians
from testbed.published import Published

from dra_driver.inventory.devices import DeviceType

VARIANTS = (*MAIN, *LAYOUTS)
DEVICES = tuple(each for each in VARIANTS if each.style != "extended")
NODES = node_names(20)


def listed(variant: Variant) -> list[str]:
    slices = sorted(variant.slices("node-000"), key=lambda each: str(each["metadata"]["name"]))
    return [device["name"] for each in slices for device in each["spec"].get("devices") or ()]


@pytest.mark.parametrize("variant", DEVICES, ids=lambda each: each.name)
def test_a_variant_lists_its_devices_once(variant: Variant) -> None:
    names = listed(variant)
    assert len(names) == len(set(names)) == len(variant.devices())


ORDERS = ("cores first", "cores first, all up", "cores first, all down", "all up")


def test_the_order_is_all_that_an_order_changes() -> None:
    orders = [each for each in LAYOUTS if each.name in ORDERS]
    assert len(orders) == len(ORDERS)
    assert {frozenset(listed(each)) for each in orders} == {frozenset(listed(MAIN[0]))}
    assert len({tuple(listed(each)) for each in (*orders, MAIN[0])}) == len(ORDERS) + 1


def test_orders_begin_and_end_where_their_names_say() -> None:
    by_name = {each.name: listed(each) for each in (*MAIN, *LAYOUTS) if each.style == "ours"}
    ends = {name: (names[0], names[-1]) for name, names in by_name.items()}
    assert ends["everything"] == ("chips-0-16-lnc2", "core-15-3-lnc2")
    assert ends["cores first"] == ends["cores first, all up"] == ("core-0-0-lnc2", "chips-0-16-lnc2")
    assert ends["cores first, all down"][0] == "core-15-3-lnc2"
    assert by_name["all up"].index("chips-0-2-lnc2") < by_name["all up"].index("chips-2-2-lnc2")


@pytest.mark.parametrize(("name", "count"), [("few attributes", 3), ("eight attributes more", 18)])
def test_attributes_of_a_core(name: str, count: int) -> None:
    [variant] = [each for each in LAYOUTS if each.name == name]
    cores = [
        d for each in variant.slices("n") for d in each["spec"].get("devices") or () if d["name"] == "core-0-0-lnc2"
    ]
    assert [len(each["attributes"]) for each in cores] == [count]


def test_selectors_without_the_driver_or_without_optional_reads() -> None:
    texts = {each.name: [c["spec"]["selectors"][0]["cel"]["expression"] for c in each.classes()] for each in LAYOUTS}
    assert not any("device.driver" in text for text in texts["no driver test"])
    assert not any("?" in text or "orValue" in text for text in texts["no optional reads"])
    assert all("device.driver" in text and "?" in text for text in texts["few attributes"])


@pytest.mark.parametrize("variant", DEVICES, ids=lambda each: each.name)
@pytest.mark.parametrize("state", STATES)
def test_what_is_held_exists_and_never_overlaps(variant: Variant, state: str) -> None:
    published = Published(variant.slices("node-000")) if variant.wire is not few_attributes else None
    by_node: dict[str, list[str]] = {}
    for claim, status in load.held(variant, NODES, state):
        results = status["status"]["allocation"]["devices"]["results"]
        assert len(results) == claim["spec"]["devices"]["requests"][0]["exactly"]["count"] <= 32
        by_node.setdefault(results[0]["pool"].partition("/")[2], []).extend(each["device"] for each in results)
    assert len(by_node) == {"empty": 0, "mixed": 14, "full": 18}[state]
    for names in by_node.values():
        assert set(names) <= set(listed(variant))
        if published:
            assert published.fitting(names) == names


def test_a_full_node_has_nothing_left() -> None:
    for variant in MAIN[:3]:
        published = Published(variant.slices("node-000"))
        for node in (0, 17):
            pool = f"/{NODES[node]}"
            held = [
                result["device"]
                for _, status in load.held(variant, NODES, "full")
                for result in status["status"]["allocation"]["devices"]["results"]
                if result["pool"].endswith(pool)
            ]
            taken = set(chain.from_iterable(published.cores(name) for name in held))
            assert taken == set(chain.from_iterable(published.cores(name) for name in published.devices))


@pytest.mark.parametrize("state", STATES)
def test_a_device_plugin_has_as_much_free(state: str) -> None:
    free = load.free_chips(NODES, state)
    assert sum(free.values()) == {"empty": 20 * 16, "mixed": 14 * 8 + 6 * 16, "full": 2 * 16}[state]


def suited(variant: Variant) -> set[str]:
    return {each.name for each in WORKLOADS if each.suits(variant)}


def test_workloads_that_a_variant_is_measured_with() -> None:
    everything, chips, cores, aws, extended = MAIN
    assert suited(everything) == suited(extended) == {each.name for each in WORKLOADS}
    assert suited(chips) == suited(aws) == {"one chip", "four chips", "whole node"}
    assert suited(cores) == {"one core"}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda each: each.name)
@pytest.mark.parametrize("state", STATES)
def test_pods_leave_room(workload: Workload, state: str) -> None:
    count = workload.fitting(100, state, 10_000)
    chips = sum(SIZES[workload.kinds[at % len(workload.kinds)]] or CHIPS / CORES for at in range(count))
    room = {"empty": 1600, "mixed": 480 + 560 * (workload.name != "whole node"), "full": 160}[state]
    assert 0.5 * room < chips <= 0.75 * room


def test_pods_of_a_device_plugin_have_limits_and_others_claims() -> None:
    plain, claimed = (load.pod(each, "four chips", "load-1")["spec"] for each in (MAIN[4], MAIN[0]))
    assert plain["containers"][0]["resources"]["limits"] == {CHIP_RESOURCE: "4"}
    assert "resourceClaims" not in plain
    assert claimed["resourceClaims"] == [{"name": "d", "resourceClaimName": "load-1"}]


def test_aws_style_counts_chips_of_one_group() -> None:
    devices = load.request(MAIN[3], "four chips")
    assert devices is not None
    assert devices["requests"][0]["exactly"]["count"] == 4
    key = devices["constraints"][0]["matchAttribute"]
    chips = [d for each in MAIN[3].slices("n") for d in each["spec"]["devices"]]
    assert len({chip["attributes"][key]["string"] for chip in chips}) == 4
    assert len(chips) == CHIPS


def test_every_variant_is_measured_in_each_pass() -> None:
    assert {variant.name for variant, _, _ in FULL.cells()} == {each.name for each in VARIANTS}
    assert {variant.name for variant, _, _ in SHORT.cells()} == {each.name for each in MAIN}
    assert DeviceType.CORE_RUN not in MAIN[0].types


def passes() -> Sequence[Result]:
    return [
        Result("v", "empty", "one core", 10, bound, seconds, 0.5, 0.2, 10)
        for bound, seconds in ((10, 1), (10, 4), (8, 2))
    ]


def test_medians_and_what_was_not_bound() -> None:
    [row] = medians(passes())
    assert (row["passes"], row["pods"], row["bound"]) == (3, 10, 8)
    assert row["pods_per_second"] == 4
    assert row["pods_per_second_range"] == [2.5, 10]
    assert row["filter_ms_per_attempt"] == pytest.approx(20)


@pytest.mark.parametrize("smoke", [True, False])
def test_the_report_says_when_it_is_none(smoke: bool) -> None:  # noqa: FBT001
    setup = {"kubernetes": "v1", "nodes": 1, "size": "s", "lnc": 2, "passes": 3, "smoke": smoke}
    text = report.markdown(medians(passes()), [{"variant": "v", "scoring": "x", "free": 3, "possible": 4}], setup)
    assert ("smoke test" in text) is smoke
    assert "| v | 3 | 4 (2.5-10) | 50 (50-62.5) | 20 (20-20) | 8/10 |" in text
    assert "| v | x | 3 | 4 |" in text
