"""Orphans: what the kubelet forgot is freed after a reboot, and only reported before one."""

import logging
from typing import Any

import pytest

from dra_driver.claims.reconcile import free_orphans, report_orphans
from dra_driver.cluster.errors import Forbidden, Unavailable
from dra_driver.simulator.samples import DRIVER, Objects, claim, result

Obj = dict[str, Any]
Node = Any  # as conftest.py makes it

ONE = claim("a", "core-0-0", owner="p")
TWO = claim("b", "core-0-1", owner="q")


@pytest.fixture
def held(node: Node) -> Node:
    node.api.put(ONE, TWO)
    node.prepared(ONE)
    node.prepared(TWO)
    return node


@pytest.fixture
def rebooted(held: Node) -> Node:
    held.reboot()
    held.start()
    return held


def free(node: Node) -> list[str]:
    return free_orphans(node.ledger, node.api, driver=DRIVER)


def report(node: Node) -> list[str]:
    return report_orphans(node.ledger, node.api, driver=DRIVER)


def gone() -> list[Any]:
    unallocated = claim("a", "core-0-0", owner="p")
    unallocated["status"] = {}
    return [
        pytest.param(None, id="gone"),
        pytest.param(claim("a", "core-0-0", owner="p", uid="new"), id="made anew"),
        pytest.param(unallocated, id="no allocation"),
        pytest.param(claim("a", "core-3-0", owner="p"), id="another device"),
        pytest.param(claim("a", result("core-0-0", driver="nic.example.com"), owner="p"), id="another driver"),
    ]


@pytest.mark.parametrize("now", gone())
def test_after_a_reboot_an_orphan_is_freed_and_no_other(rebooted: Node, now: Obj | None) -> None:
    rebooted.api.remove(ONE)
    if now:
        rebooted.api.put(now)
    assert free(rebooted) == ["uid-a"]
    assert list(rebooted.ledger.held()) == ["core-0-1"]
    assert free(rebooted) == []
    rebooted.api.put(again := claim("x", "core-0-0", owner="y"))
    rebooted.prepared(again)


@pytest.mark.parametrize("error", [Unavailable("no answer"), Forbidden("403", status=403)])
def test_when_the_api_does_not_answer_nothing_is_freed_until_it_does(rebooted: Node, error: Exception) -> None:
    rebooted.api.remove(ONE)
    rebooted.api.away(error)
    assert free(rebooted) == []
    assert sorted(rebooted.ledger.held()) == ["core-0-0", "core-0-1"]
    rebooted.api.away(None)
    assert free(rebooted) == ["uid-a"]


def test_a_claim_that_cannot_be_read_is_not_taken_for_gone(rebooted: Node) -> None:
    broken = claim("a", "core-0-0", owner="p")
    broken["status"]["allocation"]["devices"]["results"] = [{"driver": DRIVER}]
    rebooted.api.put(broken)
    assert free(rebooted) == []


def test_within_the_boot_an_orphan_is_reported_and_kept(held: Node, caplog: pytest.LogCaptureFixture) -> None:
    held.api.remove(ONE)
    assert free(held) == []
    with caplog.at_level(logging.WARNING):
        assert report(held) == ["uid-a"]
    assert "default/a (uid-a)" in caplog.text
    assert sorted(held.ledger.held()) == ["core-0-0", "core-0-1"]


def test_what_is_prepared_again_while_it_is_looked_at_is_kept(rebooted: Node) -> None:
    """The claim vanished from one answer and was back for the next."""

    class Vanishing(Objects):
        def get_claim(self, namespace: str, name: str) -> Obj:
            rebooted.prepared(ONE)
            rebooted.prepared(TWO)
            return super().get_claim(namespace, name)

    assert free_orphans(rebooted.ledger, Vanishing(), driver=DRIVER) == []
    assert sorted(rebooted.ledger.held()) == ["core-0-0", "core-0-1"]


def test_an_orphan_whose_record_cannot_be_removed_is_tried_again(rebooted: Node, read_only: Any) -> None:
    rebooted.api.remove(ONE)
    with read_only(rebooted.state):
        assert free(rebooted) == []
    assert free(rebooted) == ["uid-a"]


def test_records_that_cannot_be_read_are_logged(rebooted: Node, caplog: pytest.LogCaptureFixture) -> None:
    rebooted.state.rename(rebooted.state.with_name("moved"))
    assert free(rebooted) == []
    assert report(rebooted) == []
    assert "can't look for orphans" in caplog.text
