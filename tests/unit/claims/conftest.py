"""Hardware without a tree, plans without reads, and what a plan gives to each container."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdi.models import ContainerEdits
from dra_driver.claims.allocation import Claim, Result, decode
from dra_driver.claims.guard import serials
from dra_driver.claims.hardware import Snapshot
from dra_driver.claims.planning import Outcome, Planning
from dra_driver.claims.records import HeldDevice, Record
from dra_driver.claims.refusals import Refusal
from dra_driver.claims.sharing import Planned, Planner
from dra_driver.claims.specs import SpecDirectory
from dra_driver.inventory.devices import devices
from dra_driver.neuron.machine import Chip, Machine
from dra_driver.simulator.samples import DRIVER, POOL, Objects, ref

MakeSnapshot = Callable[..., Snapshot]
Decode = Callable[[dict[str, Any]], Claim]
Plan = Callable[..., dict[str, Outcome]]
MakeRecord = Callable[..., Record]
Granted = Callable[[Outcome], dict[str, tuple[str, ...]]]
Reason = Callable[[Outcome], str]


def make_snapshot(chips: int | Iterable[int] = 1, cores: int = 2, architecture: str = "NCv2", lnc: int = 1) -> Snapshot:
    indices = range(chips) if isinstance(chips, int) else chips
    family = "Trainium1" if architecture == "NCv2" else "Trainium2"
    found = tuple(
        Chip(index, 243, index, cores, frozenset(), f"{index:016x}", family, architecture) for index in indices
    )
    machine = Machine(found, "trn1.2xlarge", "2.30.2.0")
    return Snapshot(machine, {device.name: device for device in devices(machine, lnc=lnc)})


@pytest.fixture(scope="session")
def snapshot() -> MakeSnapshot:
    return make_snapshot


@pytest.fixture(scope="session")
def decoded() -> Decode:
    """A claim as the kubelet would ask for it."""
    return lambda raw: decode(raw, asked=ref(raw), driver=DRIVER, pool=POOL)


@pytest.fixture(scope="session")
def plan() -> Plan:
    """One call for these claims, against the objects of the API; outcome by claim name."""

    def run(
        api: Objects,
        claims: Sequence[dict[str, Any]],
        *,
        records: Sequence[Record] = (),
        machine: Snapshot | None = None,
        read_pods: bool = True,
    ) -> dict[str, Outcome]:
        planning = Planning(api, DRIVER, POOL, read_pods)
        refs = [ref(one) for one in claims]
        outcomes = planning.plan(refs, Planner(machine or make_snapshot(4)), records)
        assert outcomes.keys() == {one.uid for one in refs}, "every claim of the call is answered, and no other"
        return {one.name: outcomes[one.uid] for one in refs}

    return run


@pytest.fixture(scope="session")
def granted() -> Granted:
    """What each device of a planned claim carries: host nodes in the container's order, then the environment."""

    def short(edits: ContainerEdits) -> tuple[str, ...]:
        assert [node.path for node in edits.device_nodes] == [f"/dev/neuron{i}" for i in range(len(edits.device_nodes))]
        return (*(node.host_path for node in edits.device_nodes), *edits.env)

    def of(outcome: Outcome) -> dict[str, tuple[str, ...]]:
        assert isinstance(outcome, Planned), outcome
        edits: Mapping[str, ContainerEdits] = outcome.edits
        return {device: short(one) for device, one in edits.items()}

    return of


def _held(planned: Planned, found: Result, now: Snapshot) -> HeldDevice:
    device = planned.device(found)
    return HeldDevice(found.request, found.pool, found.admin, serials(device, now), device)


@pytest.fixture(scope="session")
def recorded() -> MakeRecord:
    """The record of a claim that was prepared alone."""

    def make(raw: dict[str, Any], **fields: Any) -> Record:
        now = make_snapshot(4)
        planned = Planner(now).alone(decode(raw, asked=ref(raw), driver=DRIVER, pool=POOL))
        one = planned.claim
        held = tuple(_held(planned, found, now) for found in one.results)
        spec = SpecDirectory(Path("/nowhere"), driver=DRIVER).spec(one.ref.uid, planned.edits)
        return replace(Record(one.ref, one.owner, one.users, held, (one.ref.uid,), "boot", spec), **fields)

    return make


@pytest.fixture(scope="session")
def refused() -> Reason:
    """The code of a refusal."""

    def code(outcome: Outcome) -> str:
        assert isinstance(outcome, Refusal), outcome
        return outcome.reason.code

    return code
