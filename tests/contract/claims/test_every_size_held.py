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
        assert chip
        return None

    def busy(self, device: Device) -> str | None:
        raise AssertionError(f"asked about {device.name}: no claim is allocated anew here")


@cache
def snapshot(size: str, lnc: int) -> Snapshot:
    machine = Shape(size, lnc).machine()
    return Snapshot(machine, {device.name: device for device in devices(machine, lnc=lnc)})


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ledger]:
    """On real files; each test gives back what it holds."""
    root = tmp_path_factory.mktemp("ledger")
    store = RecordStore(root / "state")
    yield Ledger(store, SpecDirectory(root / "cdi", driver=DRIVER), Unchanged(), Boot("boot", None))
    store.close()


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
def test_a_record_blocks_what_overlaps_and_nothing_else(size: str, ledger: Ledger, data: st.DataObject) -> None:
    lncs = range(1, snapshot(size, 1).machine.chips[0].max_lnc + 1)
    then, now = (snapshot(size, data.draw(st.sampled_from(lncs))) for _ in range(2))
    held = data.draw(st.sampled_from(sorted(then.devices)))
    chips = then.devices[held].chips
    near = [name for name, device in now.devices.items() if set(device.chips) & {*chips, chips[0] - 1, chips[-1] + 1}]
    name = data.draw(st.sampled_from(near))
    admin = data.draw(st.sampled_from([(False, False)] * 6 + [(True, False), (False, True)]))
    overlap = not any(admin) and cores_by_wire(then.devices[held]) & cores_by_wire(now.devices[name])
    with given_back(ledger):
        ledger.commit([planned("first", held, then, admin=admin[0])], wanted)
        second = [planned("second", name, now, admin=admin[1])]
        if not overlap:
            assert ledger.commit(second, wanted).keys() == {"uid-second"}
            return
        with pytest.raises(Refusal) as caught:
            ledger.commit(second, wanted)
        assert caught.value.reason is Reason.DEVICE_HELD
        assert held in caught.value.detail
        assert name in caught.value.detail


@pytest.mark.parametrize("size", SIZES)
def test_a_held_core_blocks_its_run_chip_and_every_group_of_either_lnc(size: str, ledger: Ledger) -> None:
    lncs = range(1, snapshot(size, 1).machine.chips[0].max_lnc + 1)
    now = snapshot(size, lncs[-1])
    core = (now.machine.chips[-1].index, 0)
    held = next(name for name in now.devices if core in cores_by_wire(now.devices[name]))
    with given_back(ledger):
        ledger.commit([planned("first", held, now)], wanted)
        for lnc in lncs:
            other = snapshot(size, lnc)
            over = [name for name, device in other.devices.items() if core in cores_by_wire(device)]
            assert len(over) > 1, lnc
            for name in over:
                with pytest.raises(Refusal) as caught:
                    ledger.commit([planned("second", name, other)], wanted)
                assert caught.value.reason is Reason.DEVICE_HELD
