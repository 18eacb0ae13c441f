"""One table of rights: the driver's own, the chart's ClusterRole and the chart's README say the same."""

from collections.abc import Iterator
from typing import Any

import pytest
from testbed import binaries
from testbed.charts import CHART, Chart
from testbed.settings import DRIVER_RULES

from dra_driver.cluster.rights import needed

Grant = tuple[str, str, str]  # group, resource, verb


@pytest.fixture(scope="module")
def chart() -> Chart:
    """The chart."""
    return Chart(binaries.build(binaries.helm())["helm"])


def role(chart: Chart, **values: Any) -> list[Grant]:
    """What the ClusterRole of the driver's account grants."""
    made = [item for item in chart.objects("--no-hooks", **values) if item["kind"] == "ClusterRole"]
    (own,) = (item for item in made if item["metadata"]["name"] == "coreslice")
    return [
        (group, resource, verb)
        for rule in own["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def names(chart: Chart, **values: Any) -> set[str]:
    """All its ClusterRoles that stay."""
    made = chart.objects("--no-hooks", **values)
    return {item["metadata"]["name"] for item in made if item["kind"] == "ClusterRole"}


def table(*, read_pods: bool = True) -> list[Grant]:
    """What the driver asks for at its start."""
    return [(right.group, right.resource, right.verb) for right in needed(read_pods=read_pods)]


def rows(heading: str) -> Iterator[list[str]]:
    """Cells of the README's table below that line."""
    below = (CHART / "README.md").read_text().partition(heading)[2]
    lines = below.partition("| --- ")[2].splitlines()[1:]
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("read_pods", [True, False])
def test_the_account_gets_what_the_driver_asks_for_and_nothing_else(chart: Chart, *, read_pods: bool) -> None:
    granted = role(chart, rbac={"readPods": read_pods})
    assert sorted(granted) == sorted(table(read_pods=read_pods))
    assert [grant for grant in granted if "*" in grant or "/" in grant[1]] == []


def test_the_readme_lists_them() -> None:
    listed = [
        (group, resource, verb) for group, resource, verbs, _ in rows("## What it may do") for verb in verbs.split(", ")
    ]
    assert sorted(listed) == sorted(table())


def test_the_readme_says_what_does_not_work_without() -> None:
    listed = [tuple(row) for row in rows("| without the right to")]
    assert listed == [(f"{right.verb} {right.resource}", right.without) for right in needed(read_pods=True)]


def test_the_test_bed_gives_its_driver_the_same() -> None:
    given = [
        (group, resource, verb) for group, resources, verbs in DRIVER_RULES for resource in resources for verb in verbs
    ]
    assert sorted(given) == sorted(table())


def test_aggregated_roles_are_made_on_demand_and_grant_no_driver_anything(chart: Chart) -> None:
    assert names(chart) == {"coreslice"}
    assert names(chart, rbac={"aggregate": True}) == {"coreslice", "coreslice-edit", "coreslice-view"}
    made = chart.objects("--no-hooks", rbac={"aggregate": True})
    bindings = [item for item in made if item["kind"] == "ClusterRoleBinding"]
    assert [item["roleRef"]["name"] for item in bindings] == ["coreslice"]
    assert sorted(role(chart, rbac={"aggregate": True})) == sorted(table())
    assert "aggregate" in chart.refusal(rbac={"aggregate": "yes"})
