"""On every size: what a record holds excludes by physical cores, whatever type, name and LNC either device has."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from testbed.published import Shape, shapes

from dra_driver.claims.allocation import decode
from dra_driver.claims.hardware import Snapshot
from dra_driver.claims.ledger import Boot, Ledger
from dra_driver.claims.lnc import InForce
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.sharing import Planned, Planner
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore
from dra_driver.inventory.devices import Device, devices
from dra_driver.kubelet.types import ClaimRef
from dra_driver.neuron.machine import Chip
from dra_driver.simulator.samples import DRIVER, POOL, claim, ref, result

SIZES = sorted({shape.size for shape in shapes()})


class Unchanged:
    """Hardware that is as it was planned with, and idle."""

    def snapshot(self) -> Snapshot:
        raise AssertionError("plans bring their own")

    def changed(self, chip: Chip) -> str | None:
        return None if chip.serial else "blank"

    def busy(self, device: Device) -> str | None:
        raise AssertionError(f"asked about {device.name}: no claim is allocated anew here")


@cache
def snapshot(size: str, lnc: int) -> Snapshot:
    machine = Shape(size, lnc).machine()
    return Snapshot(machine, {device.name: device for device in devices(machine, lnc=lnc)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def store(folder: Path) -> Iterator[RecordStore]:
    store = RecordStore(folder / "state")
    yield store
    store.close()


@pytest.fixture(scope="module")
def ledger(folder: Path, store: RecordStore) -> Ledger:
    """On real files; each test gives back what it holds."""
    return Ledger(store, SpecDirectory(folder / "cdi", driver=DRIVER), Unchanged(), Boot("boot", None))


@contextmanager
def given_back(ledger: Ledger) -> Iterator[None]:
    try:
        yield
    finally:
        for name in ("first", "second"):
            ledger.release(f"uid-{name}")
        assert not ledger.records()


def planned(name: str, device: str, now: Snapshot, *, admin: bool = False) -> Planned:
    raw = claim(name, result(device, admin=admin), owner=f"pod-of-{name}")
    return Planner(now).alone(decode(raw, asked=ref(raw), driver=DRIVER, pool=POOL))


def set_lnc(store: RecordStore, value: int) -> None:
    """As if by hand: the driver itself changes it only while nothing is prepared."""
    with store.locked():
        store.save_lnc(InForce(value))


def wanted(claim_ref: ClaimRef) -> None:
    assert claim_ref.uid


def cores_by_wire(device: Device) -> set[tuple[int, int]]:
    """As the published attributes say it, apart from the code that compares."""
    said = {key: value.get("int") for key, value in device.wire["attributes"].items()}
    each = said["cores"] // said["chips"]
    first, lnc = said["firstCore"], said["logicalNeuronCore"]
    logical = {(said["index"] + at, first + core) for at in range(said["chips"]) for core in range(each)}
    return {(chip, core * lnc + half) for chip, core in logical for half in range(lnc)}


@pytest.mark.parametrize("size", SIZES)
@given(data=st.data())
@settings(max_examples=15)
def test_a_record_blocks_what_overlaps_and_nothing_else(
    size: str, store: RecordStore, ledger: Ledger, data: st.DataObject
) -> None:
    then, now = (snapshot(size, data.draw(st.sampled_from(lncs(size)))) for _ in range(2))
    held = data.draw(st.sampled_from(sorted(then.devices)))
    chips = then.devices[held].chips
    near = [name for name, device in now.devices.items() if set(device.chips) & {*chips, chips[0] - 1, chips[-1] + 1}]
    name = data.draw(st.sampled_from(near))
    admin = data.draw(st.sampled_from([(False, False)] * 6 + [(True, False), (False, True)]))
    overlap = not any(admin) and cores_by_wire(then.devices[held]) & cores_by_wire(now.devices[name])
    set_lnc(store, then.lnc)
    with given_back(ledger):
        ledger.commit([planned("first", held, then, admin=admin[0])], wanted)
        second = planned("second", name, now, admin=admin[1])
        if now.lnc != then.lnc:
            assert refused(ledger, second).reason is Reason.SCAN_OUTDATED
            set_lnc(store, now.lnc)
        if not overlap:
            assert ledger.commit([second], wanted).keys() == {"uid-second"}
            return
        refusal = refused(ledger, second)
        assert refusal.reason is Reason.DEVICE_HELD
        assert held in refusal.detail
        assert name in refusal.detail


@pytest.mark.parametrize("size", SIZES)
def test_a_held_core_blocks_its_run_chip_and_every_group_of_either_lnc(
    size: str, store: RecordStore, ledger: Ledger
) -> None:
    now = snapshot(size, lncs(size)[-1])
    core = (now.machine.chips[-1].index, 0)
    held = next(name for name, device in now.devices.items() if core in cores_by_wire(device))
    set_lnc(store, now.lnc)
    with given_back(ledger):
        ledger.commit([planned("first", held, now)], wanted)
        for lnc in lncs(size):
            set_lnc(store, lnc)
            other = snapshot(size, lnc)
            over = [name for name, device in other.devices.items() if core in cores_by_wire(device)]
            assert len(over) > 1
            for name in over:
                assert refused(ledger, planned("second", name, other)).reason is Reason.DEVICE_HELD


def refused(ledger: Ledger, one: Planned) -> Refusal:
    with pytest.raises(Refusal) as caught:
        ledger.commit([one], wanted)
    return caught.value


def lncs(size: str) -> range:
    return range(1, snapshot(size, 1).machine.max_lnc + 1)
