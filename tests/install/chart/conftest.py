"""Fixtures: the chart, a node, and API servers with the chart's policies in force."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from testbed import binaries, charts, settings, stack
from testbed.charts import Chart, Server
from testbed.node import Node, lone_node


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: no test's timeout allows a cold build."""
    if session.items and not session.config.option.collectonly:
        binaries.build(binaries.helm())


@pytest.fixture(scope="session")
def helm() -> Path:
    """The helm program."""
    return binaries.build(binaries.helm())["helm"]


@pytest.fixture(scope="session")
def chart(helm: Path) -> Chart:
    """The chart."""
    return Chart(helm)


@pytest.fixture(scope="session")
def chart_node() -> Iterator[Node]:
    """A real node for the tests of this folder; nothing may be left of it."""
    with lone_node() as node:
        yield node


@pytest.fixture(scope="session", params=["1.37", "1.34"])
def server(request: pytest.FixtureRequest, chart: Chart, chart_node: Node) -> Iterator[Server]:
    """A server with the chart's policies in force."""
    old = request.param == "1.34"
    program = charts.old_server(chart_node) if old else None
    sandbox, paths = chart_node.stack.sandbox, chart_node.paths
    port = charts.OLD_PORT if old else stack.PORTS["apiserver"]
    ca = (paths.pki / "apiserver.crt").read_text()
    kubeconfig = paths.scratch / f"chart-{request.param}.kubeconfig"
    url = f"https://{sandbox.address}:{port}"
    kubeconfig.write_text(settings.kubeconfig(server=url, ca=ca, user="admin"))
    kubectl = chart_node.stack.binaries["kubectl"]
    server = Server(request.param, kubectl, kubeconfig, (sandbox.address, port), ca)
    if program:
        program.start()
        charts.wait_for_it(server, program)
    policies = [item for item in chart.objects() if item["kind"].startswith("ValidatingAdmissionPolicy")]
    server.apply(*policies, *charts.people(server))
    charts.wait_in_force(server)
    yield server
    server.delete(*policies)
    if program:
        program.kill()


@pytest.fixture(scope="session")
def kubectl() -> Path:
    """kubectl of the node's version."""
    return binaries.build(binaries.kubernetes())["kubectl"]
