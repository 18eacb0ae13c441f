"""Fixtures of the cluster rung: one real node for the whole run, the driver on it."""

import shutil
from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from testbed import prepared
from testbed.api import Object
from testbed.driver import Driver
from testbed.grants import wait_nothing_held
from testbed.node import Node, lone_node
from testbed.program import Program

from dra_driver.inventory.classes import device_classes

LAST_LINES = 25


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test."""
    wanted = any(item.get_closest_marker("cluster") for item in session.items)
    if wanted and not session.config.option.collectonly:
        prepared.build()


@pytest.fixture(scope="session")
def shared_node() -> Iterator[Node]:
    """One node for every test; nothing may be left of it afterwards."""
    with lone_node() as node:
        yield node


@pytest.fixture
def node(shared_node: Node) -> Iterator[Node]:
    """The node without pods, claims, templates and classes of other tests."""
    yield shared_node
    for name, program in shared_node.stack.programs.items():
        if not program.alive():
            shared_node.start(name)
    shared_node.clean()


@pytest.fixture
def driver_kubeconfig() -> Path | None:
    """Credentials for the driver; None for those of its own user. A module may say otherwise."""
    return None


@pytest.fixture
def driver_arguments() -> Mapping[str, Any]:
    """More of what `Driver` is made with. A module may say otherwise."""
    return {}


@pytest.fixture
def driver(node: Node, driver_kubeconfig: Path | None, driver_arguments: Mapping[str, Any]) -> Iterator[Driver]:
    """The driver, on a trn1.2xlarge unless a module says otherwise, ready. It goes after the pods do."""
    driver = Driver(node, kubeconfig=driver_kubeconfig, **driver_arguments)
    try:
        driver.start()
        yield driver
        node.clean()
    finally:
        driver.close()
        for item in driver.slices():
            node.api.delete("resourceslices", item["metadata"]["name"])
        shutil.rmtree(driver.machine.sysfs.parent)


@pytest.fixture
def nothing_held_after(driver: Driver) -> Iterator[None]:
    """When the test's pods and claims are gone, the driver holds nothing any more."""
    yield
    driver.node.clean()
    wait_nothing_held(driver)


@pytest.fixture
def classes(driver: Driver) -> list[Object]:
    """The device classes of the driver, in the API."""
    return driver.node.apply(*device_classes(driver.name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows the last lines of what the programs said."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for program in programs_of(item.funcargs.values()):
            report.sections.append((f"log of {program.name}", program.log_text(last=LAST_LINES)))
    return report


def programs_of(fixtures: Iterable[object]) -> Iterator[Program]:
    """The programs among a test's fixtures that say most about a failure."""
    for value in fixtures:
        if isinstance(value, Driver):
            yield value.program
            yield value.node.program("kubelet")
