"""The linter's verdicts over the wire: slices good and bad, tried on the real API server without storing them."""

import os
from typing import Any

import pytest
from testbed.api import ApiStatusError, Object
from testbed.node import Node
from testbed.slicefuzz import Fuzz

from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import devices, totals
from dra_driver.inventory.lint.findings import Finding, Severity
from dra_driver.inventory.lint.linter import lint
from dra_driver.inventory.lint.repair import repair
from dra_driver.inventory.slices import Layout, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.simulator.nominal import nominal

pytestmark = pytest.mark.cluster

COUNT = 200
SEED = int(os.environ.get("FUZZ_SEED", "1"))
MINOR = 37
PATH = "/apis/resource.k8s.io/v1/resourceslices?dryRun=All"


def answer(node: Node, sent: Object) -> Object | None:
    """What the server would store; None when it refuses."""
    try:
        return node.api.request("POST", PATH, sent)
    except ApiStatusError as error:
        if error.code in (400, 422):
            return None
        raise


def of(severity: Severity, found: list[Finding]) -> list[Finding]:
    return [finding for finding in found if finding.severity is severity]


def there(stored: Any, path: tuple[str | int, ...]) -> bool:
    """Whether a path still leads somewhere."""
    for step in path:
        try:
            stored = stored[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def test_linter_and_server_agree_over_the_wire(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    fuzz, bad, accepted = Fuzz(SEED), [], 0
    for number in range(COUNT):
        sent = fuzz.slice(number)
        found, stored = lint([sent], minor=MINOR), answer(node, sent)
        accepted += stored is not None
        if bool(of(Severity.REFUSED, found)) == (stored is not None):
            bad.append((number, "verdict", found))
        elif stored and (kept := [each for each in of(Severity.DROPPED, found) if there(stored, each.path)]):
            bad.append((number, "not left out", kept))
    with capsys.disabled():
        print(f"\nseed {SEED}: {COUNT} slices, {accepted} accepted, {len(bad)} disagreements", flush=True)
    assert bad == []
    assert COUNT // 5 < accepted < COUNT * 4 // 5
    assert node.api.list("resourceslices") == []


def pool_of(size: str) -> list[Object]:
    machine = nominal(SIZES[size])
    pool, found = Pool("neuron.example.com", "node-1"), devices(machine)
    return build(pool, found, totals(machine), layout=Layout(MINOR), generation=1)


@pytest.mark.parametrize("size", ["trn1.2xlarge", "trn2.48xlarge"])
def test_slices_of_a_size_are_stored_as_they_are_sent(node: Node, size: str) -> None:
    for sent in pool_of(size):
        stored = answer(node, sent)
        assert stored is not None
        assert stored["spec"] == sent["spec"]


def test_bc014_one_bad_version_costs_one_device_and_not_the_slice(node: Node) -> None:
    before = pool_of("trn1.2xlarge")
    first, second, *_ = before[-1]["spec"]["devices"]
    first["attributes"] = {**first["attributes"], "driverVersion": {"version": "2.29.0.0"}}
    second["attributes"] = {**second["attributes"], "core-3": {"int": 1}}
    assert answer(node, before[-1]) is None
    repaired, notes = repair(before, MINOR, common=COMMON)
    assert {(note.device, note.attribute) for note in notes} == {(first["name"], ""), (second["name"], "core-3")}
    for sent in repaired:
        stored = answer(node, sent)
        assert stored is not None
        assert stored["spec"] == sent["spec"]
    left = [device["name"] for device in repaired[-1]["spec"]["devices"]]
    assert left == [device["name"] for device in before[-1]["spec"]["devices"][1:]]
