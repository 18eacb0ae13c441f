"""journal → apply → verify → commit, and the way back: the one place that changes records and CDI files.

A claim is prepared when it has a record and the CDI file that the record says. The record is written first and is
the only durable write; a record whose file is missing or differs is applied again. A file that can't be written leaves
the record: the claim holds its devices in the API all the same, and Unprepare comes also for a claim that was refused.
Under the lock, directly before the journal, everything is looked at again that may have changed meanwhile.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cdi.models import Spec
from dra_driver.claims.hardware import Hardware
from dra_driver.claims.records import Damaged, HeldDevice, Record
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.sharing import Planned
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore
from dra_driver.inventory.devices import Device, physical_cores
from dra_driver.kubelet.types import ClaimRef, Prepared, PreparedDevice

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Boot:
    """This boot of the node. `started` is Unix seconds, None where /proc doesn't tell."""

    id: str
    started: float | None

    @classmethod
    def read(cls, proc_root: Path) -> "Boot":
        """From /proc; an unknown boot id is empty, and then no record is ever taken for an older boot's."""
        try:
            boot_id = (proc_root / "sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot_id = ""
        return cls(boot_id, _boot_time(proc_root))


class Ledger:
    """Records, CDI files and hardware, kept in step."""

    def __init__(self, store: RecordStore, specs: SpecDirectory, hardware: Hardware, boot: Boot) -> None:
        self._store = store
        self._specs = specs
        self._hardware = hardware
        self._boot = boot

    def commit(self, unit: Sequence[Planned], still_wanted: Callable[[ClaimRef], None]) -> dict[str, Prepared]:
        """Prepare the claims of one unit, all or none; by UID.

        `still_wanted` raises a Refusal when a claim was unprepared, or its call given up, since it was planned.

        Raises:
            Refusal: a device is held, was changed, or the disk refuses.
        """
        unit = [planned for planned in unit if planned.claim.results]
        if not unit:
            return {}
        with self._store.locked():
            for planned in unit:
                still_wanted(planned.claim.ref)
                self._check(planned)
            records = [self._record(planned) for planned in unit]
            known = self._store.records()
            self._store.save([new for new in records if not _same(known.get(new.claim.uid), new)])
            for record in records:
                self._specs.write(record.claim.uid, Spec.model_validate(record.spec))
        return {planned.claim.ref.uid: self._answer(planned) for planned in unit}

    def release(self, uid: str) -> bool:
        """Undo a claim from its UID alone, without API or hardware; False when nothing was there.

        Raises:
            Refusal: file or record can't be removed; the claim is still held.
        """
        with self._store.locked():
            self._specs.remove(uid)  # first the description, then the reservation
            return self._store.forget(uid)

    def restore(self) -> None:
        """At start: bring the CDI directory in step with the records of this boot."""
        with self._store.locked():
            records = self._store.records()
            for record in records.values():
                if record.boot_id == self._boot.id:
                    self._rewrite(record)
            for uid in self._specs.uids() - records.keys() - {bad.uid for bad in self._store.damaged()}:
                log.warning("CDI file of a claim without a record removed", extra={"claim_uid": uid})
                self._remove_orphan_file(uid)
            for bad in self._store.damaged():
                log.error("record %s can't be read: %s", bad.path, bad.reason, extra={"claim_uid": bad.uid})

    def records(self) -> list[Record]:
        """Every readable record."""
        with self._store.locked():
            return list(self._store.records().values())

    def user_made(self) -> list[Record]:
        """Records of claims that no pod owns."""
        return [record for record in self.records() if record.owner is None]

    def of_earlier_boot(self) -> list[Record]:
        """Records that a reboot has outdated: nothing of them runs, but their claims may still be allocated."""
        return [record for record in self.records() if self._boot.id and record.boot_id != self._boot.id]

    def held(self) -> dict[str, Mapping[str, Any]]:
        """Devices that records hold, by name, as they were published."""
        return {
            str(held.wire["name"]): held.wire for record in self.records() for held in record.devices if not held.admin
        }

    def _check(self, planned: Planned) -> None:
        known = self._store.records()
        self._check_own(planned, known.get(planned.claim.ref.uid))
        for result in planned.claim.results:
            device = self._device(result.device)
            if not result.admin:
                self._check_free(planned, device, known)
                self._check_damaged(planned, device)
            for index in device.chips:
                self._check_chip(planned, index)

    def _check_own(self, planned: Planned, old: Record | None) -> None:
        """The same UID may come back with another allocation: the old one is undone unless it is in use."""
        if old is None:
            return
        kept = {result.device for result in planned.claim.results}
        for held in old.devices:
            name = str(held.wire["name"])
            if name not in kept and old.boot_id == self._boot.id and (busy := self._hardware.busy(held.device)):
                raise Refusal(
                    Reason.STILL_IN_USE,
                    f"claim {planned.claim.ref} was allocated anew while its old device {name} is in use: {busy}",
                )
            if name in kept and old.boot_id == self._boot.id:
                self._check_serials(planned, held)

    def _check_serials(self, planned: Planned, held: HeldDevice) -> None:
        now = self._serials(held.device)
        if any(old and new and old != new for old, new in zip(held.serials, now, strict=False)):
            raise Refusal(
                Reason.CHIP_CHANGED,
                f"claim {planned.claim.ref}: device {held.wire['name']} had the serial {', '.join(held.serials)}"
                f" when it was prepared and has {', '.join(now)} now, within one boot",
            )

    def _check_free(self, planned: Planned, device: Device, known: Mapping[str, Record]) -> None:
        """The last line of defence: whatever the scheduler says, a held core isn't given again."""
        wanted = physical_cores(device)
        for uid, record in known.items():
            for held in record.devices:
                if uid != planned.claim.ref.uid and not held.admin and wanted & physical_cores(held.device):
                    raise Refusal(
                        Reason.DEVICE_HELD,
                        f"claim {planned.claim.ref} wants {device.name}, but {record.holders()}"
                        f" holds {held.wire['name']}; waited for its pod to end",
                    )

    def _check_damaged(self, planned: Planned, device: Device) -> None:
        for bad in self._store.damaged():
            if bad.uid == planned.claim.ref.uid or self._outdated(bad):
                continue
            held = self._cores_of_damaged(bad)
            if held is None or held & physical_cores(device):
                what = "and nobody knows what it holds" if held is None else f"and it may hold {device.name}"
                raise Refusal(
                    Reason.RECORD_UNREADABLE,
                    f"claim {planned.claim.ref}: the record {bad.path} of another claim can't be read"
                    f" ({bad.reason}) {what}; delete that claim's pod, or remove the file once nothing runs",
                )

    def _cores_of_damaged(self, bad: Damaged) -> set[tuple[int, int]] | None:
        """What a damaged record holds, from its claim's CDI file; None when that can't be told."""
        names = self._specs.device_names(bad.uid)
        offered = self._hardware.devices()
        if names is None or any(name not in offered for name in names):
            return None
        return {core for name in names for core in physical_cores(offered[name])}

    def _outdated(self, bad: Damaged) -> bool:
        """Written before this boot: nothing of it can run."""
        try:
            return self._boot.started is not None and bad.path.stat().st_mtime < self._boot.started
        except OSError:
            return False

    def _check_chip(self, planned: Planned, index: int) -> None:
        chip = self._hardware.machine().chip(index)
        if chip is not None and (change := self._hardware.changed(chip)):
            raise Refusal(Reason.CHIP_CHANGED, f"claim {planned.claim.ref}: chip {index}: {change}")

    def _record(self, planned: Planned) -> Record:
        claim = planned.claim
        uid = claim.ref.uid
        devices = tuple(
            HeldDevice(
                result.request,
                result.pool,
                result.admin,
                self._serials(self._device(result.device)),
                self._device(result.device).wire,
            )
            for result in claim.results
        )
        spec = self._specs.spec(uid, planned.edits).model_dump(exclude_defaults=True, mode="json")
        unit = tuple(sorted(planned.unit))
        return Record(claim.ref, claim.owner, claim.users, devices, unit, self._boot.id, spec)

    def _answer(self, planned: Planned) -> Prepared:
        uid = planned.claim.ref.uid
        return Prepared(
            tuple(
                PreparedDevice(
                    (result.base_request,),
                    result.pool,
                    result.device,
                    (self._specs.device_id(uid, result.device),),
                )
                for result in planned.claim.results
            )
        )

    def _device(self, name: str) -> Device:
        return self._hardware.devices()[name]  # the plan has looked it up before

    def _serials(self, device: Device) -> tuple[str, ...]:
        machine = self._hardware.machine()
        return tuple(chip.serial if (chip := machine.chip(index)) else "" for index in device.chips)

    def _rewrite(self, record: Record) -> None:
        try:
            self._specs.write(record.claim.uid, Spec.model_validate(record.spec))
        except Refusal as refusal:
            log.error("can't restore a CDI file: %s", refusal, extra={"claim_uid": record.claim.uid})  # noqa: TRY400

    def _remove_orphan_file(self, uid: str) -> None:
        try:
            self._specs.remove(uid)
        except Refusal as refusal:
            log.error("can't remove a CDI file: %s", refusal, extra={"claim_uid": uid})  # noqa: TRY400


def _same(old: Record | None, new: Record) -> bool:
    """Whether a durable write can be spared: who has the claim reserved is for messages only."""
    return old is not None and _plain(replace(old, users=new.users)) == _plain(new)


def _plain(record: Record) -> Any:
    return (
        record.claim,
        record.owner,
        record.unit,
        record.boot_id,
        dict(record.spec),
        [*map(_held, record.devices)],
    )


def _held(held: HeldDevice) -> Any:
    return held.request, held.pool, held.admin, held.serials, dict(held.wire)


def _boot_time(proc_root: Path) -> float | None:
    try:
        lines = (proc_root / "stat").read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
