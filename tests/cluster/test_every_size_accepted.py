"""What `coreslice slices` prints for each size at each LNC is stored by the real API server as it was sent.

Really created, not tried: what a dry run takes may still be dropped or changed on its way to storage. The nodes needn't
exist. And the numbers that the command's table tells are those of what is stored.
"""

import json
import re
from collections.abc import Iterator

import pytest
from testbed.api import Object
from testbed.node import Node
from testbed.published import DRIVER, Shape, shapes

from dra_driver.cli.main import main
from dra_driver.inventory.devices import DeviceType
from dra_driver.inventory.summary import summarise

pytestmark = pytest.mark.cluster

SHAPES = shapes()
SELECTOR = f"spec.driver={DRIVER}"
_ROW = re.compile(r"^ *([0-9]+)  (.+)$", re.MULTILINE)


def command(shape: Shape, output: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What it prints for a node of that size."""
    where = ("--machine", shape.size, "--lnc", str(shape.lnc), "--node-name", str(shape), "--driver-name", DRIVER)
    assert main(["slices", *where, "--server-version", "1.37", "-o", output]) == 0
    return capsys.readouterr().out


@pytest.fixture
def emptied(node: Node) -> Iterator[Node]:
    """Without slices of ours before, and after."""
    assert node.slices(DRIVER) == []
    yield node
    path = f"/apis/resource.k8s.io/v1/resourceslices?fieldSelector={SELECTOR}"
    node.api.request("DELETE", path)
    assert node.slices(DRIVER) == []


def test_every_size_is_stored_as_it_is_sent(emptied: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """All at once in one cluster, so that no name and no pool is another node's."""
    sent: dict[str, Object] = {}
    for shape in SHAPES:
        found = json.loads(command(shape, "json", capsys))["items"]
        assert found
        emptied.apply(*found)
        sent |= {item["metadata"]["name"]: item for item in found}
    stored = {item["metadata"]["name"]: item for item in emptied.slices(DRIVER)}
    assert stored.keys() == sent.keys()
    assert [name for name, item in sent.items() if stored[name]["spec"] != item["spec"]] == []
    lines = [told(shape, list(stored.values()), capsys) for shape in SHAPES]
    with capsys.disabled():
        print(f"\n{len(SHAPES)} shapes, {len(sent)} slices stored as sent", *lines, sep="\n", flush=True)


def told(shape: Shape, stored: list[Object], capsys: pytest.CaptureFixture[str]) -> str:
    """A line of numbers of what is stored, once they are the ones of the command's table."""
    of_it = [item for item in stored if item["spec"]["nodeName"] == str(shape)]
    summary = summarise(of_it)
    table = {text: int(number) for number, text in _ROW.findall(command(shape, "table", capsys))}
    counted = {kind.value: summary.by_type[kind] for kind in DeviceType}
    counted |= {"devices in all": summary.devices, "slices": len(of_it)}
    counted[f"counters in {summary.counter_sets} sets"] = summary.counters
    assert table == counted
    return f"{shape!s:<26} " + ", ".join(f"{number} {text}" for text, number in counted.items())
