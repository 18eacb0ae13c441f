"""Fixtures of the install rung: one real node that has the driver's image."""

import shutil
from collections.abc import Iterator

import pytest
from testbed import driver_image, prepared
from testbed.node import Node, lone_node
from testbed.pod_driver import PodDriver
from testbed.stack import AUDIT_METADATA, Options

NEXT = "localhost/coreslice:b"

pytest.register_assert_rewrite("testbed.outcomes")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test."""
    wanted = any(
        item.get_closest_marker("cluster") or "installed_node" in getattr(item, "fixturenames", ())
        for item in session.items
    )
    if wanted and not session.config.option.collectonly:
        prepared.build(image=True)


@pytest.fixture(scope="session")
def installed_node() -> Iterator[Node]:
    """One node for every test, with an audit log and the driver's image under two tags."""
    with lone_node(Options(audit=AUDIT_METADATA)) as node:
        node.load_image(driver_image.build(), also=[NEXT])
        yield node


@pytest.fixture
def node(installed_node: Node) -> Iterator[Node]:
    """The node without pods, claims, templates and classes of other tests."""
    yield installed_node
    installed_node.clean()


@pytest.fixture
def pod_driver(node: Node) -> Iterator[PodDriver]:
    """The driver as a bare pod on a simulated trn1.2xlarge, ready. It goes after the pods that have claims."""
    driver = PodDriver(node, image=driver_image.REFERENCE)
    try:
        driver.start()
        yield driver
        node.clean(but=[driver.pod])
    finally:
        driver.close()
        shutil.rmtree(driver.machine.sysfs.parent)
