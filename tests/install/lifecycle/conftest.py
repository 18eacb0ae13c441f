"""Fixtures: for each mode of the chart a node of its own, whose audit log is that of one driver's whole life."""

from collections.abc import Callable, Iterator

import pytest
from testbed import binaries, driver_image
from testbed.charts import Chart
from testbed.examples import Examples
from testbed.node import lone_node
from testbed.release import USER, Site
from testbed.stack import Options

A, B = driver_image.REFERENCE, "localhost/coreslice:b"
ONLY_THE_DRIVER = (
    {"level": "Metadata", "users": [USER], "omitStages": ["RequestReceived"]},
    {"level": "None"},
)

Measured = Callable[[str, object], None]


@pytest.fixture(scope="module")
def chart() -> Chart:
    """The chart."""
    return Chart(binaries.build(binaries.helm())["helm"])


MODES = [pytest.param(True, id="reads-pods"), pytest.param(False, id="reads-no-pods", marks=pytest.mark.full)]


@pytest.fixture(scope="module", params=MODES)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A labelled node with a trn1.2xlarge and the driver's image under two tags, nothing installed."""
    settings = {"rescanInterval": 1}  # a machine that changes is seen soon
    with lone_node(Options(audit=ONLY_THE_DRIVER)) as node:
        node.load_image(driver_image.build(), also=[B])
        with Site.prepared(node, folder="m", rbac={"readPods": request.param}, settings=settings) as site:
            site.label("coreslice.dev/neuron=true")
            yield site


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
