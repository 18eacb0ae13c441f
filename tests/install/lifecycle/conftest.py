"""Fixtures: for each mode of the chart a node of its own, whose audit log is that of one driver's whole life."""

from collections.abc import Callable, Iterator

import pytest
from testbed import binaries, driver_image, images, leftovers, packages
from testbed.charts import Chart
from testbed.examples import Examples
from testbed.node import Node
from testbed.release import USER, Site
from testbed.stack import Options

A, B = driver_image.REFERENCE, "localhost/coreslice:b"
ONLY_THE_DRIVER = (
    {"level": "Metadata", "users": [USER], "omitStages": ["RequestReceived"]},
    {"level": "None"},
)

Measured = Callable[[str, object], None]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a cold build takes minutes, which no test's timeout allows."""
    if session.config.option.collectonly:
        return
    if reason := packages.obstacle():
        raise pytest.UsageError(f"no real node here: {reason}")
    if names := packages.missing():
        raise pytest.UsageError(f"missing packages: {' '.join(names)}; run: python tests/cluster/node.py packages")
    binaries.build_all()
    binaries.build(binaries.helm())
    images.build_images()
    driver_image.build()


@pytest.fixture(scope="module")
def chart() -> Chart:
    """The chart."""
    return Chart(binaries.build(binaries.helm())["helm"])


MODES = [pytest.param(True, id="reads-pods"), pytest.param(False, id="reads-no-pods", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=MODES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A labelled node with a trn1.2xlarge and the driver's image under two tags, nothing installed."""
    before = leftovers.snapshot()
    node = Node(Options(audit=ONLY_THE_DRIVER))
    try:
        node.load_image(driver_image.build(), also=[B])
        settings = {"rescanInterval": 1}  # a machine that changes is seen soon
        with Site.prepared(node, folder="m", rbac={"readPods": request.param}, settings=settings) as site:
            site.label("coreslice.dev/neuron=true")
            yield site
    finally:
        node.close()
    leftovers.assert_nothing_left(before, node.stack.sandbox.name)


@pytest.fixture
def examples(site: Site) -> Iterator[Examples]:
    """Nothing on the node before and after."""
    found = Examples(site)
    yield found
    found.delete()


@pytest.fixture
def measured(record_property: Callable[[str, object], None], site: Site) -> Measured:
    """Notes a figure in the report, and shows it with `-s`."""

    def note(what: str, value: object) -> None:
        record_property(what, value)
        print(f"\n[rbac.readPods={str(site.reads_pods).lower()}] {what}: {value}")

    return note
