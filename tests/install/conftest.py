"""Fixtures of the install rung: one real node that has the driver's image."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import binaries, driver_image, images, leftovers, packages
from testbed.node import Node
from testbed.pod_driver import PodDriver
from testbed.stack import AUDIT_METADATA, Options

HERE = Path(__file__).parent
NEXT = "localhost/coreslice:b"

pytest.register_assert_rewrite("testbed.outcomes")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a cold build takes minutes, which no test's timeout allows."""
    wanted = any("installed_node" in getattr(item, "fixturenames", ()) for item in session.items)
    if not wanted or session.config.option.collectonly:
        return
    if reason := packages.obstacle():
        raise pytest.UsageError(f"no real node here: {reason}")
    if names := packages.missing():
        raise pytest.UsageError(f"missing packages: {' '.join(names)}; run: python tests/cluster/node.py packages")
    binaries.build_all()
    binaries.build(binaries.helm())
    images.build_images()
    driver_image.build()


@pytest.fixture(scope="session")
def installed_node() -> Iterator[Node]:
    """One node for every test, with an audit log and the driver's image under two tags."""
    before = leftovers.snapshot()
    node = Node(Options(audit=AUDIT_METADATA))
    try:
        node.load_image(driver_image.build(), also=[NEXT])
        yield node
    finally:
        node.close()
    leftovers.assert_nothing_left(before, node.stack.sandbox.name)


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
