"""The publisher against an API server: what is published, restored, left alone, and told.

Long, since the publisher is one state machine, and its states are read best in one place.
"""

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cluster.client import Api
from dra_driver.cluster.slices import Phase, SlicePublisher
from dra_driver.errors import CoresliceError
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import DRIVER, NODE, SLICES, Model, Rig, eventually

WIPE = f"spec.nodeName={NODE}"


def wipe(rig: Rig) -> None:
    """As a kubelet does when it starts."""
    for row in rig.slices():
        rig.server.store.delete("resourceslices", row["metadata"]["name"])


def generations(rig: Rig) -> set[int]:
    return {row["spec"]["pool"]["generation"] for row in rig.slices()}


def settled(rig: Rig) -> int:
    """Number of writes so far, once no request came for a while."""

    def quiet() -> bool:
        before = len(rig.server.audit.rows())
        threading.Event().wait(0.3)
        return before == len(rig.server.audit.rows())

    eventually(quiet)
    return len(rig.server.audit.writes())


def test_all_slices_are_published_and_read_back(rig: Rig) -> None:
    state = rig.start().published(slices=3, generation=1, counters=True)
    assert (state.phase, state.why_no_counters, state.left_out) == (Phase.PUBLISHED, "", ())
    assert [len(row["spec"].get("devices", [])) for row in rig.slices()] == [0, 3, 3]
    assert rig.server.audit.rows()[-1].verb in ("list", "watch")
    assert rig.witness.in_api == []


def test_devices_are_written_before_their_counters(rig: Rig) -> None:
    rig.start().published()
    added = [
        change.obj["metadata"]["name"][:5] for change in rig.server.store.history if change.plural == "resourceslices"
    ]
    assert added == ["00001", "00002", "00000"]


def test_slices_belong_to_the_node_object(rig: Rig, server: ApiServer) -> None:
    rig.start().published()
    uid = server.store.get("nodes", NODE)["metadata"]["uid"]
    owners = [row["metadata"]["ownerReferences"] for row in rig.slices()]
    assert owners == [[{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}]] * 3


def test_publishing_is_quick(rig: Rig) -> None:
    start = time.monotonic()
    rig.start().published()
    assert time.monotonic() - start < 0.8


def test_no_idle_writes_and_no_idle_reads(rig: Rig) -> None:
    rig.start().published()
    writes = settled(rig)
    assert writes == 3
    rig.publisher.poke()
    rig.publisher.poke()
    assert settled(rig) == writes


def test_a_second_instance_finds_its_slices_and_writes_nothing(rig: Rig, kubeconfig: Path) -> None:
    rig.start().published()
    writes = settled(rig)
    rig.publisher.stop()
    with Api(kubeconfig=kubeconfig) as api:
        second = SlicePublisher(api, driver=DRIVER, node_name=NODE, build=Model().build)
        second.start()
        eventually(lambda: second.state.ready)
        assert second.state.generation == 1
        second.stop()
    assert len(rig.server.audit.writes()) == writes


def test_bc028_a_wipe_is_undone_within_a_second_at_the_same_generation(rig: Rig, api: Api) -> None:
    rig.start().published()
    settled(rig)
    before = [row["metadata"]["uid"] for row in rig.slices()]
    api._request("delete", SLICES, query={"fieldSelector": WIPE})  # deletecollection: nobody else sends it
    took = eventually(
        lambda: len(rig.slices()) == 3 and not {row["metadata"]["uid"] for row in rig.slices()} & set(before)
    )
    assert took < 1.0
    rig.published(generation=1, slices=3)
    assert generations(rig) == {1}
    assert len(rig.server.audit.rows("deletecollection")) == 1


def test_wipe_after_wipe_is_undone(rig: Rig) -> None:
    rig.start().published()
    for _ in range(4):
        wipe(rig)
        assert eventually(lambda: len(rig.slices()) == 3) < 1.5
    rig.published(generation=1)
    assert rig.witness.in_api == []


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_single_deleted_slice_comes_back_alone(rig: Rig, gone: int) -> None:
    rig.start().published()
    writes = settled(rig)
    rows = rig.slices()
    rig.server.store.delete("resourceslices", rows[gone]["metadata"]["name"])
    assert eventually(lambda: len(rig.slices()) == 3) < 1.0
    assert settled(rig) == writes + 1
    assert generations(rig) == {1}


def test_a_slice_that_somebody_edits_is_put_right_in_a_new_generation(rig: Rig) -> None:
    rig.start().published()
    name = rig.slices()[1]["metadata"]["name"]
    rig.server.store.patch("resourceslices", name, {"spec": {"devices": [{"name": "core-0-0"}]}})
    eventually(lambda: generations(rig) == {2})
    rig.published(generation=2)
    assert len(rig.slices()[1]["spec"]["devices"]) == 3


def test_a_foreign_label_on_a_slice_is_no_reason_to_write(rig: Rig) -> None:
    rig.start().published()
    writes = settled(rig)
    rig.server.store.patch("resourceslices", rig.slices()[0]["metadata"]["name"], {"metadata": {"labels": {"a": "b"}}})
    assert settled(rig) == writes


def test_changed_devices_get_a_new_generation_once(rig: Rig) -> None:
    rig.start().published()
    writes = settled(rig)
    rig.model.chips = 3
    rig.publisher.poke()
    rig.published(generation=2, slices=4)
    assert generations(rig) == {2}
    assert settled(rig) == writes + 4
    assert rig.witness.in_api == []


def test_fewer_devices_leave_no_slice_behind(rig: Rig) -> None:
    rig.start().published()
    rig.model.chips = 1
    rig.publisher.poke()
    rig.published(generation=2, slices=2)
    assert [len(row["spec"].get("devices", [])) for row in rig.slices()] == [0, 3]


def test_nothing_to_publish_is_a_good_state_and_deletes_what_was_there(rig: Rig) -> None:
    rig.start().published()
    rig.model.nothing = True
    rig.publisher.poke()
    state = rig.published(slices=0, generation=None)
    assert (state.reason, rig.slices()) == ("nothing to publish", [])
    rig.model.nothing = False
    rig.publisher.poke()
    rig.published(slices=3)


def test_other_drivers_and_nodes_are_left_alone(rig: Rig) -> None:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    for name, driver, node in (("a", "other.dev", NODE), ("b", DRIVER, "node-b")):
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": []}
        rig.server.store.create("resourceslices", {"metadata": {"name": name}, "spec": spec})
    rig.start().published()
    rig.model.nothing = True
    rig.publisher.poke()
    rig.published(slices=0)
    assert [row["metadata"]["name"] for row in rig.slices()] == ["a", "b"]


def test_slices_of_an_older_naming_are_replaced(rig: Rig, server: ApiServer) -> None:
    uid = server.store.get("nodes", NODE)["metadata"]["uid"]
    pool = {"name": f"{DRIVER}/{NODE}", "generation": 5, "resourceSliceCount": 1}
    old = {
        "metadata": {"name": "node-a-x7k2p", "ownerReferences": [{"kind": "Node", "name": NODE, "uid": uid}]},
        "spec": {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": []},
    }
    server.store.create("resourceslices", old)
    rig.start().published(generation=6, slices=3)
    assert [row["metadata"]["name"][:5] for row in rig.slices()] == ["00000", "00001", "00002"]


def test_a_name_that_somebody_else_holds_is_told_and_not_touched(rig: Rig) -> None:
    name = f"00001-{DRIVER}-{NODE}"
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "other.dev", "nodeName": NODE, "pool": pool, "devices": []}
    rig.server.store.create("resourceslices", {"metadata": {"name": name}, "spec": spec})
    rig.start()
    eventually(lambda: rig.state.phase is Phase.FAILED)
    assert f"{name} is taken by a slice of driver 'other.dev'" in rig.state.text
    assert rig.server.store.get("resourceslices", name)["spec"]["driver"] == "other.dev"
    rig.server.store.delete("resourceslices", name)
    rig.published()


# the gate


def test_nothing_is_created_before_the_kubelet_has_confirmed(rig: Rig) -> None:
    rig.gate.clear()
    rig.start()
    eventually(lambda: rig.state.phase is Phase.BLOCKED)
    assert "the kubelet hasn't confirmed" in rig.state.text
    assert settled(rig) == 0
    rig.gate.set()
    rig.publisher.poke()
    rig.published()


def test_the_gate_is_looked_at_again_without_a_poke(rig: Rig) -> None:
    rig.gate.clear()
    rig.start()
    eventually(lambda: rig.state.phase is Phase.BLOCKED)
    rig.gate.set()
    rig.published()


def test_with_the_gate_closed_slices_stay_and_deleted_ones_do_not_come_back(rig: Rig) -> None:
    rig.start().published()
    writes = settled(rig)
    rig.gate.clear()
    rig.publisher.poke()
    eventually(lambda: rig.state.phase is Phase.BLOCKED)
    assert len(rig.slices()) == 3
    rig.server.store.delete("resourceslices", rig.slices()[2]["metadata"]["name"])
    settled_writes = settled(rig)
    assert (settled_writes, len(rig.slices())) == (writes, 2)
    rig.gate.set()
    rig.publisher.poke()
    eventually(lambda: len(rig.slices()) == 3)


def test_a_gate_that_closes_between_two_writes_stops_the_second(rig: Rig) -> None:
    rig.server.faults.plant(Fault(before=rig.gate.clear), verb="list", times=None)
    rig.start()
    eventually(lambda: rig.state.phase is Phase.BLOCKED)
    assert settled(rig) == 0
    rig.server.faults.clear()
    rig.gate.set()
    rig.published()


# the node


def test_bc024_a_node_that_does_not_exist_yet_is_waited_for(rig: Rig, server: ApiServer) -> None:
    server.store.delete("nodes", NODE)
    rig.start()
    eventually(lambda: rig.state.phase is Phase.BLOCKED)
    assert f"no Node object named '{NODE}'" in rig.state.text
    server.store.create("nodes", {"metadata": {"name": NODE}})
    rig.published()


def test_bc024_a_new_node_of_the_same_name_gets_new_slices(rig: Rig, server: ApiServer) -> None:
    rig.start().published()
    server.store.delete("nodes", NODE)  # its slices go with it
    new = server.store.create("nodes", {"metadata": {"name": NODE}})["metadata"]["uid"]

    def all_new() -> bool:
        rows = rig.slices()
        return len(rows) == 3 and {row["metadata"]["ownerReferences"][0]["uid"] for row in rows} == {new}

    eventually(all_new)
    assert rig.published(slices=3).ready


def test_bc024_slices_of_the_old_node_that_are_still_there_are_recreated(rig: Rig, server: ApiServer) -> None:
    rig.start().published()
    old = [row["metadata"]["uid"] for row in rig.slices()]
    rig.publisher.stop()
    store = server.store
    store._objects["nodes", "", NODE]["metadata"]["uid"] = "new"  # the collector hasn't come by yet
    with_new = SlicePublisher(rig.publisher._api, driver=DRIVER, node_name=NODE, build=Model().build)
    with_new.start()
    eventually(lambda: with_new.state.ready)
    with_new.stop()
    assert {row["metadata"]["ownerReferences"][0]["uid"] for row in rig.slices()} == {"new"}
    assert not {row["metadata"]["uid"] for row in rig.slices()} & set(old)


# faults


@pytest.mark.parametrize("verb", ["get", "list", "create"])
@pytest.mark.parametrize("code", [401, 403, 409, 429, 500, 503])
def test_a_fault_of_the_api_is_told_and_overcome(rig: Rig, verb: str, code: int) -> None:
    rig.server.faults.plant(Fault(code=code, message="planted text"), verb=verb, prefix="/a", times=3)
    rig.start().published(slices=3)
    assert rig.witness.in_api == []


def test_a_missing_right_is_named_in_the_state(rig: Rig) -> None:
    rig.server.faults.plant(Fault(code=403), verb="create", times=None)
    rig.start()
    eventually(lambda: rig.state.phase is Phase.FAILED)
    assert 'verb "create" on "resourceslices" in API group "resource.k8s.io"' in rig.state.text
    rig.server.faults.clear()
    rig.published()


def test_a_missing_right_to_watch_is_named_and_slices_are_published_all_the_same(rig: Rig) -> None:
    rig.server.faults.plant(Fault(code=403), verb="watch", times=None)
    rig.start()
    eventually(lambda: rig.state.ready and rig.state.watch)
    assert "changes can't be followed" in rig.state.text
    assert 'verb "watch"' in rig.state.text
    wipe(rig)
    eventually(lambda: len(rig.slices()) == 3)  # by the lists of the watch that is tried again
    rig.server.faults.clear()
    eventually(lambda: not rig.state.watch)


def test_tries_are_spaced_while_a_write_is_refused(rig: Rig) -> None:
    met = rig.server.faults.plant(Fault(code=422), verb="create", prefix=SLICES, times=None)
    rig.server.faults.plant(Fault(), verb="create")
    start = time.monotonic()
    rig.start()
    eventually(lambda: met() >= 5)
    assert time.monotonic() - start > 0.2 * (1 + 2 + 4) / 2


@pytest.mark.parametrize("cut", ["before", "after", "half"])
@pytest.mark.parametrize("verb", ["create", "list", "get"])
def test_lost_requests_and_lost_answers_are_overcome(rig: Rig, cut: str, verb: str) -> None:
    rig.server.faults.plant(Fault(cut=cut), verb=verb, times=2)
    rig.start().published(slices=3)
    assert rig.witness.in_api == []


def test_a_write_whose_answer_is_lost_is_found_and_not_repeated(rig: Rig) -> None:
    rig.server.faults.plant(Fault(), verb="create")  # the trial
    rig.server.faults.plant(Fault(cut="after"), verb="create")
    rig.start().published(generation=1)
    assert len([row for row in rig.server.audit.writes() if row.verb == "create"]) == 3


def test_bc021_a_slow_server_shows_an_incomplete_pool_and_then_a_whole_one(rig: Rig) -> None:
    hold = threading.Event()
    rig.start().published()
    rig.server.faults.plant(Fault(), verb="update")
    rig.server.faults.plant(Fault(hold=hold), verb="update")
    rig.model.chips = 1
    rig.model.extra = {"attributes": {"x": {"int": 1}}}
    rig.publisher.poke()
    eventually(lambda: generations(rig) == {1, 2})
    assert rig.state.generation == 1  # what was read back, until the new one is
    hold.set()
    rig.published(generation=2, slices=2)


def test_an_api_server_that_restarts_is_nothing_to_worry_about(rig: Rig) -> None:
    rig.start().published()
    writes = settled(rig)
    rig.server.stop()
    eventually(lambda: rig.state.watch)
    assert rig.state.ready  # what was published is still in the API, as far as anybody knows
    rig.server.start()
    rig.published(watch="")
    assert settled(rig) == writes


def test_slices_that_went_during_an_outage_come_back(rig: Rig) -> None:
    rig.start().published()
    rig.server.stop()
    wipe(rig)
    rig.server.store.compact()
    rig.server.start()
    eventually(lambda: len(rig.slices()) == 3)
    rig.published(generation=1)


def test_an_api_that_is_down_at_the_start_is_waited_for(rig: Rig) -> None:
    rig.server.stop()
    rig.start()
    eventually(lambda: rig.state.phase is Phase.FAILED)
    assert "no answer from the API server" in rig.state.text
    rig.server.start()
    rig.published()


def test_bc132_nulls_from_the_server_are_no_error(rig: Rig) -> None:
    nulls = Fault(nulls=frozenset({"items", "devices", "sharedCounters", "ownerReferences"}))
    rig.server.faults.plant(nulls, verb="list", times=2)
    rig.start().published(slices=3)
    assert "unexpected" not in " ".join(state.text for state in rig.states)


@pytest.mark.parametrize(
    ("error", "text"),
    [(CoresliceError("no such device"), "no such device"), (ValueError("bug"), "unexpected ValueError: bug")],
)
def test_a_builder_that_fails_is_told_and_asked_again(rig: Rig, error: Exception, text: str) -> None:
    rig.start().published()
    rig.model.fails = error
    rig.publisher.poke()
    eventually(lambda: rig.state.phase is Phase.FAILED)
    assert text in rig.state.text
    assert len(rig.slices()) == 3
    rig.model.fails = None
    rig.published()


def test_other_fields_that_the_server_drops_are_named_and_cause_no_endless_writes(rig: Rig) -> None:
    def drop(change: Any) -> None:
        for device in change.obj.get("spec", {}).get("devices") or []:
            device.pop("taints", None)

    rig.server.store.observers.append(drop)  # under the store's lock, before anybody reads
    rig.model.extra = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    rig.start()
    writes = settled(rig)
    state = rig.published()
    assert state.left_out == tuple(f"spec.devices[{index}].taints" for index in (0, 1, 2, 0, 1, 2))
    assert "dropped by the API server: spec.devices[0].taints" in state.text
    rig.publisher.poke()
    assert (writes, settled(rig)) == (3, 3)


def test_wipes_that_follow_one_another_are_each_made_good_within_a_second(rig: Rig) -> None:
    """A kubelet in a crash loop."""
    rig.start().published()
    for _ in range(8):
        for item in rig.slices():
            rig.server.store.delete("resourceslices", item["metadata"]["name"])
        eventually(lambda: len(rig.slices()) == 3, f"slices back; {rig.state.text}", within=1.0)


def test_two_publishers_that_disagree_do_not_race_hot(rig: Rig, kubeconfig: Path) -> None:
    rig.start().published()
    with Api(kubeconfig=kubeconfig) as api:
        other = SlicePublisher(api, driver=DRIVER, node_name=NODE, build=Model(chips=1).build)
        other.start()
        begin, start = len(rig.server.audit.writes()), time.monotonic()
        eventually(lambda: time.monotonic() - start > 2.0)
        writes = len(rig.server.audit.writes()) - begin
        other.stop()
    assert writes < 100


# life


def test_start_twice_and_stop_twice_is_once(rig: Rig) -> None:
    rig.start().start().published()
    assert sum(thread.name == "slice publisher" for thread in threading.enumerate()) == 1
    rig.publisher.stop()
    rig.publisher.stop()
    assert len(rig.slices()) == 3


def test_stop_before_start_is_no_error_and_start_after_it_does_nothing(rig: Rig) -> None:
    rig.publisher.stop()
    rig.publisher.start()
    assert settled(rig) == 0


def test_stop_is_prompt(rig: Rig) -> None:
    rig.start().published()
    start = time.monotonic()
    rig.publisher.stop()
    assert time.monotonic() - start < 1.0
    assert [t.name for t in threading.enumerate() if t.name in ("slice publisher", "watch resourceslices")] == []


def test_each_change_of_state_is_reported_once(rig: Rig) -> None:
    rig.start().published()
    settled(rig)
    assert [state.phase for state in rig.states][-1] is Phase.PUBLISHED
    assert all(one != other for one, other in zip(rig.states, rig.states[1:], strict=False))


# Nothing may be published


def test_withheld_from_the_start_asks_for_nothing_and_writes_nothing(rig: Rig) -> None:
    rig.withhold.append("another has these chips")
    state = rig.start().published(phase=Phase.WITHHELD)
    assert state.text == "withheld: another has these chips"
    assert (state.slices, state.generation, state.counters) == (0, None, None)
    assert {row.verb for row in rig.server.audit.rows()} <= {"get", "list", "watch"}, "not even a trial"
    assert rig.attempts == []


def test_withheld_later_withdraws_all_in_order_and_comes_back(rig: Rig) -> None:
    """Devices before the counters they draw on; the way back is that of a wipe."""
    rig.start().published(slices=3)
    rig.withhold.append("another has these chips")
    rig.publisher.poke()
    rig.published(phase=Phase.WITHHELD)
    assert rig.slices() == []
    told = [(state.phase, state.reason) for state in rig.states]
    assert told.index((Phase.WITHDRAWN, "another has these chips")) < told.index(
        (Phase.WITHHELD, "another has these chips")
    )
    gone = [change.obj["metadata"]["name"][:5] for change in rig.server.store.history if change.type == "DELETED"]
    assert gone == ["00001", "00002", "00000"]
    rig.withhold.clear()
    rig.publisher.poke()
    rig.published(phase=Phase.PUBLISHED, slices=3)
    assert rig.attempts == [True, True]
    assert rig.witness.in_api == []


def test_while_withheld_a_slice_that_appears_is_deleted(rig: Rig) -> None:
    rig.start().published(slices=3)
    (kept, *_) = rig.slices()
    rig.withhold.append("another has these chips")
    rig.publisher.poke()
    rig.published(phase=Phase.WITHHELD)
    kept["metadata"] = {"name": kept["metadata"]["name"]}
    rig.server.store.create("resourceslices", kept)
    eventually(lambda: rig.slices() == [], "deleted again")
    rig.published(phase=Phase.WITHHELD)


def test_withdrawal_that_fails_isnt_ready_and_is_tried_again(rig: Rig) -> None:
    rig.start().published(slices=3)
    met = rig.server.faults.plant(Fault(code=403), verb="delete", times=None)
    rig.withhold.append("another has these chips")
    rig.publisher.poke()
    eventually(lambda: met() >= 2 and rig.state.phase is Phase.FAILED, "tried again")
    assert not rig.state.ready
    assert False in rig.attempts
    rig.server.faults.clear()
    rig.published(phase=Phase.WITHHELD)
    assert rig.slices() == []
