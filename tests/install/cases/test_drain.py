"""BC-095 in the installed pod: a drain by the book, and one that takes the driver before its consumers."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from testbed.charts import NAMESPACE
from testbed.waiting import until

from tests.install.cases.conftest import LABEL, SECONDS, Installed, Measured, cordoned, lines

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

BEGIN, END, STOPPED = "the node is cordoned", "serving on has ended", "stopped"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def said(log: str) -> list[str]:
    """The messages of a log, in order."""
    return [str(line["message"]) for line in lines(log)]


def position(messages: list[str], beginning: str) -> int:
    (found,) = [number for number, text in enumerate(messages) if text.startswith(beginning)]
    return found


def wait_begun(installed: Installed, pod: str) -> None:
    until(lambda: BEGIN in installed.log(pod), what="the wait", timeout=SECONDS, seen=lambda: installed.log(pod))


def wait_replaced(installed: Installed, old: str) -> None:
    until(lambda: installed.name != old, what="another pod", timeout=SECONDS, seen=installed.site.pods)
    installed.wait_ready()


def test_bc095_drain_with_claim_pods_leaves_the_driver(installed: Installed, measured: Measured) -> None:
    node, site = installed.node, installed.site
    names = [f"user-{number}" for number in range(5)]
    site.become(4)
    site.wait_cores(8)
    installed.run_claim_pods(*names)
    driver = installed.pod()["metadata"]["uid"]
    assert len(site.records()) == 5
    began = time.monotonic()
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=90s")
    try:
        node.kubectl("drain", node.name, *flags)
        measured("drain of 5 claim pods, s", round(time.monotonic() - began, 1))
        assert node.api.list("pods") == []
        assert installed.pod()["metadata"]["uid"] == driver
        assert installed.is_ready()
        assert (site.records(), site.cdi_files()) == ([], [])
    finally:
        node.kubectl("uncordon", node.name)
    site.become(1)
    site.wait_cores(2)


def test_bc095_driver_deleted_on_a_cordoned_node_unprepares_before_it_goes(
    installed: Installed, threads: ThreadPoolExecutor, measured: Measured
) -> None:
    node, site, old = installed.node, installed.site, installed.name
    installed.run_claim_pods("user")
    log: Future[str] = threads.submit(installed.follow, old)
    with cordoned(node):
        node.api.delete("pods", old, NAMESPACE)
        wait_begun(installed, old)
        assert len(site.records()) == 1
        began = time.monotonic()
        node.delete_pods("user")
        measured("pod gone while its driver is stopping, s", round(time.monotonic() - began, 1))
        messages = said(log.result(timeout=SECONDS))
        assert site.records() == []
        since = messages[position(messages, BEGIN) :]
        assert position(since, "unprepare") < position(since, END) < position(since, STOPPED)
        wait_replaced(installed, old)
        measured("next driver ready after the pod was deleted, s", round(time.monotonic() - began, 1))


def test_bc095_label_that_a_tool_takes_on_cordon(
    installed: Installed, threads: ThreadPoolExecutor, measured: Measured
) -> None:
    """The DaemonSet takes its pod then and makes no other: who isn't unprepared by then stays in Terminating."""
    node, site, old = installed.node, installed.site, installed.name
    names = ("user-0", "user-1")
    installed.run_claim_pods(*names)
    log: Future[str] = threads.submit(installed.follow, old)
    try:
        with cordoned(node):
            site.label(f"{LABEL}-")
            wait_begun(installed, old)
            began = time.monotonic()
            node.kubectl("drain", node.name, "--ignore-daemonsets", "--force", "--timeout=90s")
            measured("drain of 2 claim pods while the driver is stopping, s", round(time.monotonic() - began, 1))
            messages = said(log.result(timeout=SECONDS))
            until(lambda: not site.pods(), what="no driver", timeout=SECONDS, seen=site.pods)
            measured("driver gone after the drain began, s", round(time.monotonic() - began, 1))
        since = messages[position(messages, BEGIN) :]
        assert len([text for text in since[: position(since, END)] if text.startswith("unprepare")]) == 2
        assert position(since, END) < position(since, STOPPED)
        assert (node.api.list("pods"), site.records(), site.cdi_files()) == ([], [], [])
    finally:
        site.label(f"{LABEL}=true")
    installed.wait_ready()
    site.wait_cores(2)


def test_driver_deleted_on_a_node_that_is_not_cordoned_does_not_wait(
    installed: Installed, threads: ThreadPoolExecutor, measured: Measured
) -> None:
    node, site, old = installed.node, installed.site, installed.name
    installed.run_claim_pods("user")
    log: Future[str] = threads.submit(installed.follow, old)
    began = time.monotonic()
    node.api.delete("pods", old, NAMESPACE)
    messages = said(log.result(timeout=SECONDS))
    measured("stop with a claim prepared, s", round(time.monotonic() - began, 1))
    assert STOPPED in messages
    assert not [text for text in messages if text.startswith(BEGIN)]
    wait_replaced(installed, old)
    assert len(site.records()) == 1
    node.delete_pods("user")
    assert site.records() == []


def test_rolling_update_of_a_cordoned_node_does_not_wait(
    installed: Installed, threads: ThreadPoolExecutor, measured: Measured
) -> None:
    node, site, old = installed.node, installed.site, installed.name
    installed.run_claim_pods("user")
    log: Future[str] = threads.submit(installed.follow, old)
    with cordoned(node):
        began = time.monotonic()
        node.kubectl("rollout", "restart", "-n", NAMESPACE, "daemonset/coreslice")
        node.kubectl("rollout", "status", "-n", NAMESPACE, "daemonset/coreslice", "--timeout=90s")
        measured("rolling update of a cordoned node, s", round(time.monotonic() - began, 1))
        messages = said(log.result(timeout=SECONDS))
        assert STOPPED in messages
        assert not [text for text in messages if text.startswith(BEGIN)]
        wait_replaced(installed, old)
        node.delete_pods("user")
        assert site.records() == []
