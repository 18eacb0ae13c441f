"""What the server does to ResourceSlices: gates drop fields before validation, minors decide the layout."""

import copy
from typing import Any

import pytest

from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import Client, Obj

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
SETS = [{"name": "chips", "counters": {"chip-0": {"value": "2"}}}]
DRAWS = [{"counterSet": "chips", "counters": {"chip-0": {"value": "1"}}}]
CORES = [{"name": f"core-{i}", "consumesCounters": DRAWS} for i in range(2)]


def slice_of(name: str = "s", **spec: Any) -> Obj:
    pool = {"name": "d/n", "generation": 1, "resourceSliceCount": 1}
    whole = {"driver": "d", "nodeName": "n", "pool": pool, **copy.deepcopy(spec)}
    return {"metadata": {"name": name}, "spec": {key: value for key, value in whole.items() if value is not None}}


@pytest.mark.parametrize("spec", [{"devices": CORES}, {"sharedCounters": SETS}, {"devices": []}, {}])
def test_split_layout_is_stored_as_sent(call: Client, spec: Obj) -> None:
    code, got = call("POST", SLICES, slice_of(**spec))
    assert (code, got["spec"]) == (201, slice_of(**spec)["spec"])


@pytest.mark.parametrize("devices", [[], CORES])
def test_devices_beside_counters_are_refused_from_35_on(call: Client, devices: list[Obj]) -> None:
    code, answer = call("POST", SLICES, slice_of(devices=devices, sharedCounters=SETS))
    assert (code, answer["reason"]) == (422, "Invalid")
    assert "only one of devices and sharedCounters" in answer["message"]


def test_up_to_34_both_belong_into_one_slice(call: Client, server: ApiServer) -> None:
    server.store.minor = 34
    assert call("POST", SLICES, slice_of("a", devices=CORES, sharedCounters=SETS))[0] == 201
    code, answer = call("POST", SLICES, slice_of("b", devices=CORES))
    assert (code, "no counter set 'chips' in this slice" in answer["message"]) == (422, True)


def test_with_the_gate_off_counters_go_without_a_word(call: Client, server: ApiServer) -> None:
    server.store.partitionable = False
    code, got = call("POST", SLICES, slice_of("a", devices=CORES))
    assert (code, got["spec"]["devices"]) == (201, [{"name": "core-0"}, {"name": "core-1"}])
    code, got = call("POST", SLICES, slice_of("b", sharedCounters=SETS))
    assert (code, "sharedCounters" in got["spec"]) == (201, False)
    assert call("POST", SLICES, slice_of("c", devices=CORES, sharedCounters=SETS))[0] == 201
    code, got = call("POST", f"{SLICES}?dryRun=All", slice_of("d", sharedCounters=SETS))
    assert (code, "sharedCounters" in got["spec"]) == (201, False)


def test_with_the_gate_off_an_update_keeps_what_the_stored_object_uses(call: Client, server: ApiServer) -> None:
    call("POST", SLICES, slice_of("used", devices=CORES))
    server.store.partitionable = False
    call("POST", SLICES, slice_of("unused", devices=CORES))
    for name, keeps in (("used", True), ("unused", False)):
        got = call("PUT", f"{SLICES}/{name}", slice_of(name, devices=CORES[:1]))[1]
        assert ("consumesCounters" in got["spec"]["devices"][0]) is keeps


def test_with_the_gate_off_per_device_selection_leaves_no_selection(call: Client, server: ApiServer) -> None:
    server.store.partitionable = False
    code, answer = call("POST", SLICES, slice_of(nodeName=None, perDeviceNodeSelection=True))
    assert (code, "exactly one of" in answer["message"]) == (422, True)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"nodeName": None}, "exactly one of"),
        ({"allNodes": True}, "exactly one of"),
        ({"driver": None}, "spec.driver: Required"),
        ({"pool": {"generation": 1, "resourceSliceCount": 1}}, "spec.pool.name: Required"),
        ({"pool": {"name": "p", "resourceSliceCount": 0}}, "resourceSliceCount"),
        ({"pool": {"name": "p", "generation": -1, "resourceSliceCount": 1}}, "generation"),
        ({"devices": [{"name": "a"}, {"name": "a"}]}, "Duplicate"),
        ({"devices": [{"name": f"d{i}"} for i in range(129)]}, "at most 128"),
        ({"devices": [{"name": f"d{i}", "consumesCounters": DRAWS} for i in range(65)]}, "at most 64"),
        ({"sharedCounters": [{"name": f"s{i}", "counters": {}} for i in range(9)]}, "at most 8"),
        ({"sharedCounters": [{"name": "s", "counters": {f"c{i}": {} for i in range(33)}}]}, "at most 32"),
    ],
)
def test_what_the_api_refuses_is_refused(call: Client, spec: Obj, text: str) -> None:
    code, answer = call("POST", SLICES, slice_of(**spec))
    assert code == 422
    assert text in answer["message"]


def test_the_largest_slices_are_taken(call: Client) -> None:
    assert call("POST", SLICES, slice_of("a", devices=[{"name": f"d{i}"} for i in range(128)]))[0] == 201
    rows = [{"name": f"d{i}", "consumesCounters": DRAWS} for i in range(64)]
    assert call("POST", SLICES, slice_of("b", devices=rows))[0] == 201
    sets = [{"name": f"s{k}", "counters": {f"c{i}": {"value": "1"} for i in range(32)}} for k in range(8)]
    assert call("POST", SLICES, slice_of("c", sharedCounters=sets))[0] == 201


def test_driver_pool_and_node_of_a_slice_are_fixed(call: Client) -> None:
    call("POST", SLICES, slice_of())
    pool = {"name": "other", "generation": 2, "resourceSliceCount": 1}
    for change, text in (
        ({"driver": "e"}, "spec.driver"),
        ({"nodeName": "m"}, "spec.nodeName"),
        ({"pool": pool}, "pool.name"),
    ):
        code, answer = call("PUT", f"{SLICES}/s", slice_of(**change))
        assert (code, text in answer["message"]) == (422, True)
    newer = {"name": "d/n", "generation": 2, "resourceSliceCount": 3}
    assert call("PUT", f"{SLICES}/s", slice_of(pool=newer))[1]["metadata"]["generation"] == 2
