"""The look at the account's own rights, against an API server: what is asked, told, and asked again."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from dra_driver.cluster.client import Api
from dra_driver.cluster.rights import CREATE_EVENTS, GET_PODS, REVIEWS, RIGHTS, Right, RightsCheck, needed, told
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.resources import RESOURCES
from dra_driver.simulator.apiserver.server import ApiServer

from .conftest import eventually

Told = list[Sequence[Right]]


@pytest.fixture
def changes() -> Told:
    return []


@pytest.fixture
def check(api: Api, changes: Told) -> Iterator[RightsCheck]:
    check = RightsCheck(api, RIGHTS, changed=changes.append, spacing=0.01)
    yield check
    check.stop(timeout=5)


def take(server: ApiServer, right: Right) -> None:
    fault = Fault(code=403, message="RBAC says no")
    server.faults.plant(fault, verb=right.verb, prefix=RESOURCES[right.resource].path(), times=None)


def asked(server: ApiServer) -> int:
    return len(server.audit.rows("create", REVIEWS))


def running() -> bool:
    return "rights" in [thread.name for thread in threading.enumerate()]


def test_rights_are_different_and_say_what_they_are_for() -> None:
    assert len({(right.verb, right.resource, right.group) for right in RIGHTS}) == len(RIGHTS)
    assert all(right.without for right in RIGHTS)
    assert all(right.group == RESOURCES[right.resource].group for right in RIGHTS)


def test_settings_that_do_without_pods_need_one_right_less() -> None:
    assert needed(read_pods=True) == RIGHTS
    assert set(RIGHTS) - set(needed(read_pods=False)) == {GET_PODS}


def test_several_are_told_in_one_line() -> None:
    text = told([GET_PODS, CREATE_EVENTS])
    assert text == f"can't get pods: {GET_PODS.without}; can't create events: {CREATE_EVENTS.without}"
    assert told([]) == ""


def test_one_pass_over_one_connection_and_the_thread_ends(check: RightsCheck, server: ApiServer, changes: Told) -> None:
    check.start()
    check.start()
    eventually(lambda: asked(server) == len(RIGHTS) and not running(), "all asked")
    check.look_again()
    assert server.connections == 1
    assert changes == []
    assert check.missing == ()
    assert server.audit.writes() == []


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_bc099_each_missing_right_is_found(check: RightsCheck, server: ApiServer, changes: Told, right: Right) -> None:
    take(server, right)
    check.start()
    eventually(lambda: changes, "told")
    assert changes == [(right,)]
    assert check.missing == (right,)


def test_only_what_is_missing_is_asked_again_and_only_for_a_reason(
    check: RightsCheck, server: ApiServer, changes: Told, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    take(server, GET_PODS)
    take(server, CREATE_EVENTS)
    check.start()
    eventually(lambda: changes, "told")
    assert asked(server) == len(RIGHTS)
    check.look_again()
    eventually(lambda: asked(server) == len(RIGHTS) + 2, "asked again")
    assert len(changes) == 1, "nothing new"
    server.faults.clear()
    check.look_again()
    eventually(lambda: len(changes) == 2, "granted")
    assert changes == [(GET_PODS, CREATE_EVENTS), ()]
    eventually(lambda: not running(), "the end")
    assert asked(server) == len(RIGHTS) + 4
    said = [row.getMessage() for row in caplog.records if row.name.endswith("rights")]
    assert said == [
        *(f"{right} (the account needs {right.rule})" for right in (GET_PODS, CREATE_EVENTS)),
        *(f"the account can {right.verb} {right.resource} now" for right in (GET_PODS, CREATE_EVENTS)),
    ]


@pytest.mark.parametrize("code", [403, 404, 405, 422])
def test_refused_question_is_told_once_and_nothing_else(
    check: RightsCheck, server: ApiServer, changes: Told, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    server.faults.plant(Fault(code=code), verb="create", prefix=REVIEWS, times=None)
    check.start()
    eventually(lambda: asked(server) and not running(), "the end")
    assert asked(server) == 1
    assert changes == []
    (row,) = [row for row in caplog.records if row.name.endswith("rights")]
    assert "whether rights are missing can't be told" in row.getMessage()


@pytest.mark.parametrize("fault", [Fault(code=500), Fault(code=429), Fault(code=401), Fault(cut="before")], ids=str)
def test_question_without_an_answer_is_asked_again(
    check: RightsCheck, server: ApiServer, changes: Told, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    take(server, GET_PODS)
    server.faults.plant(fault, verb="create", prefix=REVIEWS, times=1)
    check.start()
    eventually(lambda: changes, "told")
    assert changes == [(GET_PODS,)]
    assert [row.getMessage()[:14] for row in caplog.records if row.name.endswith("rights")] == ["can't get pods"]


def test_stop_ends_a_check_that_waits(check: RightsCheck, server: ApiServer, changes: Told) -> None:
    take(server, GET_PODS)
    check.start()
    eventually(lambda: changes, "told")
    check.stop(timeout=5)
    assert not running()
    check.start()
    check.look_again()
    assert not running()


def test_answer_after_stop_is_told_to_nobody(check: RightsCheck, server: ApiServer, changes: Told) -> None:
    take(server, GET_PODS)
    held = threading.Event()
    met = server.faults.plant(Fault(hold=held), verb="create", prefix=REVIEWS, times=1)
    check.start()
    eventually(met, "asked")
    check.stop(timeout=0)
    held.set()
    eventually(lambda: not running(), "the end")
    assert changes == []
