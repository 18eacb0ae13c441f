"""A hand-written pool of one trn1.2xlarge, independent of the driver's own builder."""

from collections.abc import Callable
from typing import Any

import pytest

DRIVER = "neuron.test"
Wire = dict[str, Any]


def _device(name: str, kind: str, cost: str, **attributes: Any) -> Wire:
    return {
        "name": name,
        "attributes": {"type": {"string": kind}, **attributes},
        "capacity": {"memory": {"value": "16Gi"}},
        "consumesCounters": [{"counterSet": "chips", "counters": {"chip-0": {"value": cost}}}],
    }


def _slice(name: str, *, count: int = 2, generation: int = 1, node: str = "n1", **spec: Any) -> Wire:
    pool = {"name": f"{DRIVER}/{node}", "generation": generation, "resourceSliceCount": count}
    return {"metadata": {"name": name}, "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **spec}}


@pytest.fixture
def make_device() -> Callable[..., Wire]:
    return _device


@pytest.fixture
def make_slice() -> Callable[..., Wire]:
    return _slice


@pytest.fixture
def trn1() -> list[Wire]:
    """Two cores and their chip on one counter, which stands in a slice of its own."""
    devices = [
        _device("core-0-0", "core", "1", index={"int": 0}),
        _device("core-0-1", "core", "1", index={"int": 0}),
        _device("chip-0", "chip", "2", index={"int": 0}),
    ]
    sets = [{"name": "chips", "counters": {"chip-0": {"value": "2"}}}]
    return [_slice("00000-a", sharedCounters=sets), _slice("00001-a", devices=devices)]


@pytest.fixture
def classes() -> dict[str, Wire]:
    def by_type(kind: str) -> Wire:
        expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].?type.orValue("") == "{kind}"'
        return {"metadata": {"name": kind}, "spec": {"selectors": [{"cel": {"expression": expression}}]}}

    return {"core": by_type("core"), "chip": by_type("chip")}


@pytest.fixture
def make_claim() -> Callable[..., Wire]:
    """A claim called `name` with one request per class given, or with the requests given."""

    def make(name: str, *wanted: str | Wire, **devices: Any) -> Wire:
        requests = [
            {"name": f"r{at}", "exactly": {"deviceClassName": each}} if isinstance(each, str) else each
            for at, each in enumerate(wanted)
        ]
        return {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"devices": {"requests": requests, **devices}},
        }

    return make
