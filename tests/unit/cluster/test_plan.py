"""What is deleted and written, in which order, from every state in which the API may be found."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cluster.compare import same
from dra_driver.cluster.plan import Plan, lacks_counters, plan, withdrawal

Obj = dict[str, Any]


def made(contents: Sequence[Obj], generation: int, *, uid: str = "u1", pool: str = "p") -> list[Obj]:
    state = {"name": pool, "generation": generation, "resourceSliceCount": len(contents)}
    return [
        {
            "metadata": {"name": f"{index}-n", "ownerReferences": [{"uid": uid}]},
            "spec": {"driver": "d", "nodeName": "n", "pool": dict(state), **content},
        }
        for index, content in enumerate(contents)
    ]


def devices(*names: str, counted: bool = True) -> Obj:
    draw = {"consumesCounters": [{"counterSet": "chips", "counters": {"chip-0": {"value": "1"}}}]}
    return {"devices": [{"name": name, **(draw if counted else {})} for name in names]}


SETS = {"sharedCounters": [{"name": "chips", "counters": {"chip-0": {"value": "2"}}}]}
COUNTED = [SETS, devices("core-0", "core-1"), devices("chip-0")]
COMBINED = [SETS | devices("core-0", "core-1", "chip-0")]  # as 1.34 takes it
CHIPS = [devices("chip-0", counted=False)]
STRIPPED = [{}, devices("core-0", "core-1", counted=False), devices("chip-0", counted=False)]


def planned(wanted: Sequence[Obj], stored: Sequence[Obj], **more: Any) -> Plan:
    return plan(
        lambda generation: made(wanted, generation, uid=more.get("uid", "u1"), pool=more.get("pool", "p")),
        stored,
        same=lambda one, other: same(one["spec"], other["spec"]),
        last_generation=more.get("last"),
    )


def names(rows: Sequence[Obj]) -> list[str]:
    return [row["metadata"]["name"] for row in rows]


def written(todo: Plan) -> list[tuple[str, bool]]:
    return [(write.wanted["metadata"]["name"], write.stored is None) for write in todo.writes]


def test_an_empty_api_gets_devices_first_and_counters_last() -> None:
    todo = planned(COUNTED, [])
    assert (written(todo), todo.generation) == ([("1-n", True), ("2-n", True), ("0-n", True)], 1)


def test_nothing_changed_is_nothing_to_do() -> None:
    todo = planned(COUNTED, made(COUNTED, 7))
    assert todo.settled
    assert (todo.generation, todo.slices) == (7, 3)


def test_generation_0_is_a_generation() -> None:
    todo = planned(COUNTED, made(COUNTED, 0))
    assert todo.settled
    assert todo.generation == 0


def test_missing_slices_come_back_at_their_generation() -> None:
    for left in ([0], [1], [2], [0, 2], [1, 2]):
        stored = [row for index, row in enumerate(made(COUNTED, 7)) if index in left]
        todo = planned(COUNTED, stored)
        assert (todo.generation, todo.first, todo.last) == (7, (), ())
        assert {name for name, new in written(todo) if new} == {"0-n", "1-n", "2-n"} - set(names(stored))


def test_a_whole_wipe_keeps_the_generation_that_was_published() -> None:
    assert planned(COUNTED, [], last=7).generation == 7


def test_a_change_gives_every_slice_a_new_generation() -> None:
    """BC-021: two generations are never mixed for longer than the writes take."""
    changed = [SETS, devices("core-0", "core-1"), devices("chip-1")]
    todo = planned(changed, made(COUNTED, 7))
    assert written(todo) == [("1-n", False), ("2-n", False), ("0-n", False)]
    assert {write.wanted["spec"]["pool"]["generation"] for write in todo.writes} == {8}


def test_a_half_written_generation_is_replaced_as_a_whole() -> None:
    """BC-021: a publisher that died between two writes leaves both generations."""
    todo = planned(COUNTED, [*made(COUNTED, 1)[:1], *made(COUNTED, 2)[1:]])
    assert todo.generation == 3
    assert len(todo.writes) == 3


def test_slices_of_other_names_go_after_the_new_ones_are_there() -> None:
    stray = made([devices("core-0")], 3)[0]
    stray["metadata"]["name"] = "n-d-x7k2p"
    todo = planned(COUNTED, [stray])
    assert (names(todo.first), len(todo.writes), names(todo.last)) == ([], 3, ["n-d-x7k2p"])
    assert todo.generation == 4


def test_a_stray_slice_alone_is_deleted_and_nothing_written() -> None:
    stray = made([devices("core-0")], 7)[0]
    stray["metadata"]["name"] = "stray"
    todo = planned(COUNTED, [*made(COUNTED, 7), stray])
    assert (todo.writes, names(todo.last)) == ((), ["stray"])


def test_bc024_another_node_uid_recreates_all() -> None:
    todo = planned(COUNTED, made(COUNTED, 7, uid="old"))
    assert names(todo.first) == ["1-n", "2-n", "0-n"]
    assert [new for _, new in written(todo)] == [True, True, True]
    assert todo.generation == 8


def test_another_pool_of_ours_goes_first_since_two_pools_are_two_ledgers() -> None:
    todo = planned(COUNTED, made(COUNTED, 7, pool="old"))
    assert len(todo.first) == 3


def test_without_counters_all_that_relied_on_them_goes_first_devices_before_counters() -> None:
    todo = planned(CHIPS, made(COUNTED, 7))
    assert names(todo.first) == ["1-n", "2-n", "0-n"]
    assert (written(todo), todo.generation) == ([("0-n", True)], 8)


def test_unprotected_devices_go_before_counters_come() -> None:
    todo = planned(COUNTED, made(CHIPS, 7))
    assert names(todo.first) == ["0-n"]
    assert len(todo.writes) == 3


def test_stripped_slices_go_first_whichever_layout_is_wanted() -> None:
    assert {"1-n", "2-n"} <= set(names(planned(COUNTED, made(STRIPPED, 7)).first))
    assert "1-n" in names(planned(CHIPS, made(STRIPPED, 7)).first)


def test_bc032_from_1_34_to_1_35_the_one_slice_becomes_that_of_the_counters_last() -> None:
    """Its devices are ignored from then on, and the pool is incomplete until it is written."""
    todo = planned(COUNTED, made(COMBINED, 7))
    assert (todo.first, todo.last) == ((), ())
    assert written(todo) == [("1-n", True), ("2-n", True), ("0-n", False)]
    assert todo.generation == 8


def test_bc032_back_to_1_34_devices_go_before_anything_is_written() -> None:
    """To a scheduler of 1.34 a counter in another slice is no limit at all."""
    todo = planned(COMBINED, made(COUNTED, 7))
    assert names(todo.first) == ["1-n", "2-n"]
    assert (written(todo), todo.generation) == ([("0-n", False)], 8)


def test_bc032_on_1_34_a_change_is_one_write() -> None:
    changed = [SETS | devices("core-0", "core-1", "chip-1")]
    todo = planned(changed, made(COMBINED, 7))
    assert (todo.first, written(todo), todo.generation) == ((), [("0-n", False)], 8)
    assert planned(COMBINED, made(COMBINED, 7)).settled


@pytest.mark.parametrize(("before", "after"), [(CHIPS, COMBINED), (COMBINED, CHIPS), (STRIPPED, COMBINED)])
def test_on_1_34_too_what_is_unprotected_goes_first(before: list[Obj], after: list[Obj]) -> None:
    todo = planned(after, made(before, 7))
    assert {row["metadata"]["name"] for row in todo.first} >= {
        row["metadata"]["name"] for row in made(before, 7) if row["spec"].get("devices")
    }


def test_nothing_wanted_deletes_all() -> None:
    todo = planned([], made(COUNTED, 7))
    assert (names(todo.first), todo.writes) == (["1-n", "2-n", "0-n"], ())
    assert planned([], []).settled


def test_withdrawal_takes_unprotected_devices_before_protected_ones_and_counters_last() -> None:
    rows = [*made([SETS, devices("core-0")], 1), *made(CHIPS, 1)]
    rows[2]["metadata"]["name"] = "unprotected"
    assert names(withdrawal(rows).first) == ["unprotected", "1-n", "0-n"]


@pytest.mark.parametrize(
    ("sent", "got", "lacks"),
    [
        (SETS, SETS, False),
        (SETS, {}, True),
        (SETS, {"sharedCounters": [{"name": "chips", "counters": {"chip-0": {"value": "3"}}}]}, True),
        (devices("a"), devices("a"), False),
        (devices("a"), devices("a", counted=False), True),
        (devices("a", "b"), devices("b"), True),
        (devices("a", counted=False), devices("a", counted=False), False),
        (devices("a"), {"devices": None}, True),
    ],
)
def test_counters_that_did_not_survive_are_noticed(sent: Obj, got: Obj, lacks: bool) -> None:  # noqa: FBT001
    assert lacks_counters(made([sent], 1)[0], made([got], 1)[0]) is lacks


LAYOUTS = st.sampled_from(
    [COUNTED, COMBINED, CHIPS, STRIPPED, [SETS, devices("core-0")], [devices("core-0", counted=False)]]
)
ROWS = st.lists(st.tuples(LAYOUTS, st.integers(0, 3), st.sampled_from(["u1", "u0"]), st.sets(st.integers(0, 2))))


@given(ROWS, st.sampled_from([COUNTED, COMBINED, CHIPS, []]))
def test_from_any_state_the_plan_leads_to_what_is_wanted_and_overlap_never_appears(
    found: list[tuple[list[Obj], int, str, set[int]]], wanted: list[Obj]
) -> None:
    api = _found(found)
    for _ in range(3):
        todo = planned(wanted, list(api.values()))
        for row in todo.first:
            del api[row["metadata"]["name"]]
        for write in todo.writes:
            assert not _unprotected_overlap(list(api.values()))
            assert wanted is not COMBINED or not _overlap_to_1_34(list(api.values()))
            api[write.wanted["metadata"]["name"]] = write.wanted
        for row in todo.last:
            del api[row["metadata"]["name"]]
        assert not _unprotected_overlap(list(api.values()))
        if todo.settled:
            break
    assert todo.settled
    final = sorted(api.values(), key=lambda row: row["metadata"]["name"])
    assert [{**row["spec"], "pool": 0} for row in final] == [{**row["spec"], "pool": 0} for row in made(wanted, 0)]


def _unprotected_overlap(rows: Sequence[Obj]) -> bool:
    found = [device for row in rows for device in row["spec"].get("devices") or []]
    kinds = {device["name"].split("-")[0] for device in found}
    return len(kinds) > 1 and any(not device.get("consumesCounters") for device in found)


def _overlap_to_1_34(rows: Sequence[Obj]) -> bool:
    """Overlapping devices of which one draws on nothing, or on counters that aren't in its slice."""
    found = [
        (device, bool(row["spec"].get("sharedCounters"))) for row in rows for device in row["spec"].get("devices") or []
    ]
    kinds = {device["name"].split("-")[0] for device, _ in found}
    return len(kinds) > 1 and any(not (device.get("consumesCounters") and beside) for device, beside in found)


def _found(found: list[tuple[list[Obj], int, str, set[int]]]) -> dict[str, Obj]:
    api: dict[str, Obj] = {}
    for number, (contents, generation, uid, kept) in enumerate(found):
        for index, row in enumerate(made(contents, generation, uid=uid)):
            if index in kept:
                row["metadata"]["name"] = f"{index}-n" if number == 0 else f"{index}-n-{number}"
                api[row["metadata"]["name"]] = row
    return api
