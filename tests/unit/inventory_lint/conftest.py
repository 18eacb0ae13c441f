"""A good slice to break, and what the linter says of it."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.inventory.lint.findings import Finding, Severity
from dra_driver.inventory.lint.linter import lint

Wire = dict[str, Any]
Judge = Callable[..., set[tuple[str, str]]]
MakeSlice = Callable[..., Wire]

ALL = {
    "DRAPartitionableDevices": True,
    "DRAConsumableCapacity": True,
    "DRADeviceTaints": True,
    "DRADeviceBindingConditions": True,
}
ALPHA_36 = ALL | {"DRAListTypeAttributes": True, "DRANodeAllocatableResources": True}
ALPHA_37 = ALPHA_36 | {
    "DRAPartitionableDevicesType": True,
    "DRAOptionalNodeOperations": True,
    "DRADeviceCompatibilityGroups": True,
}
EVERYTHING = {34: ALL, 35: ALL, 36: ALPHA_36, 37: ALPHA_37}


def make_slice(*devices: Wire, name: str = "slice-0", **spec: Any) -> Wire:
    pool = {"name": "example.com/node-1", "generation": 1, "resourceSliceCount": 1}
    fields: Wire = {"driver": "neuron.example.com", "pool": pool, "nodeName": "node-1", **spec}
    if devices:
        fields["devices"] = list(devices)
    fields = {key: value for key, value in fields.items() if value is not ...}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": copy.deepcopy(fields),
    }


def judged(severity: Severity, *slices: Wire, minor: int = 37, features: Wire | None = None) -> set[tuple[str, str]]:
    """Field and rule of each finding; everything the minor knows is switched on unless `features` says otherwise."""
    found = lint(slices, minor=minor, features=EVERYTHING[minor] if features is None else features)
    return {(finding.field, finding.rule) for finding in found if finding.severity is severity}


@pytest.fixture(name="make_slice")
def make_slice_fixture() -> MakeSlice:
    """A v1 ResourceSlice; keywords replace fields of its spec, `...` takes one away."""
    return make_slice


@pytest.fixture
def refused() -> Judge:
    """What the server refuses in slices."""
    return lambda *slices, **how: judged(Severity.REFUSED, *slices, **how)


@pytest.fixture
def dropped() -> Judge:
    """What the server leaves out of slices."""
    return lambda *slices, **how: judged(Severity.DROPPED, *slices, **how)


@pytest.fixture
def harmful() -> Judge:
    """What the server takes though it does harm."""
    return lambda *slices, **how: judged(Severity.HARMFUL, *slices, **how)


@pytest.fixture
def finding(make_slice: MakeSlice) -> Finding:
    """One finding, on a version that isn't one."""
    device = {"name": "d", "attributes": {"v": {"version": "2.30.2.0"}}}
    (found,) = lint([make_slice(device)], minor=37)
    return found
