"""journal → apply → verify → commit, and the way back: the one place that changes records and CDI files.

A claim is prepared when it has a record and the CDI file that the record says. The record is written first and is
the only durable write; a record whose file is missing or differs is applied again. A file that can't be written leaves
the record: the claim holds its devices in the API all the same, and Unprepare comes also for a claim that was refused.
Under the lock, directly before the journal, everything is looked at again that may have changed meanwhile.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dra_driver.claims.allocation import Result
from dra_driver.claims.guard import Boot, Guard, serials
from dra_driver.claims.hardware import Hardware
from dra_driver.claims.records import HeldDevice, Record, is_uid
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.sharing import Planned
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore
from dra_driver.kubelet.types import ClaimRef, Prepared, PreparedDevice

__all__ = ["Boot", "Ledger"]

log = logging.getLogger(__name__)

_UID_SHOWN = 80  # characters of something that is none


class Ledger:
    """Records, CDI files and hardware, kept in step."""

    def __init__(
        self,
        store: RecordStore,
        specs: SpecDirectory,
        hardware: Hardware,
        boot: Boot,
        *,
        elsewhere: Callable[[], str] = lambda: "",
    ) -> None:
        """`elsewhere` tells in words who holds chips of this node beside the records; empty: nobody."""
        self._elsewhere = elsewhere
        self._store = store
        self._specs = specs
        self._boot = boot
        self._guard = Guard(store, specs, hardware, boot)

    def commit(self, unit: Sequence[Planned], still_wanted: Callable[[ClaimRef], None]) -> dict[str, Prepared]:
        """Prepare the claims of one unit, all or none; by UID, without those that hold nothing of ours.

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
            self._guard.check(unit)
            records = [self._record(planned) for planned in unit]
            known = self._store.records()
            self._check_elsewhere([new for new in records if new.claim.uid not in known])
            self._store.save([new for new in records if not _same(known.get(new.claim.uid), new)])
            for record in records:
                self._specs.write(record.claim.uid, record.spec)
        return {planned.claim.ref.uid: self._answer(planned) for planned in unit}

    def release(self, uid: str) -> bool:
        """Undo a claim from its UID alone, without API or hardware; False when it had no record.

        Raises:
            Refusal: file or record can't be removed; the claim is still held.
        """
        if not is_uid(uid):  # nothing is ever written under it, and no path is made of it
            log.warning("claim UID %r can't be one, so nothing was prepared for it", uid[:_UID_SHOWN])
            return False
        with self._store.locked():
            return self._release(uid)

    def release_outdated(self, uid: str) -> bool:
        """Undo a claim if its record still is of an earlier boot: it may have been prepared since it was looked at.

        Raises:
            Refusal: file or record can't be removed; the claim is still held.
        """
        with self._store.locked():
            record = self._store.records().get(uid)
            return record is not None and not self._boot.wrote(record) and self._release(uid)

    def restore(self) -> None:
        """At start: bring the CDI directory in step with the records of this boot. What can't be done is logged.

        Raises:
            Refusal: the records can't be read.
        """
        with self._store.locked():
            _try("clear up the records' directory", "", self._store.sweep)
            _try("clear up the CDI directory", "", self._specs.sweep)
            for record in self._store.records().values():
                if self._boot.wrote(record):
                    self._rewrite(record)
            for bad in self._store.damaged():
                log.error("record %s can't be read: %s", bad.path, bad.reason, extra={"claim_uid": bad.uid})
            self._remove_stray_files()

    def records(self) -> list[Record]:
        """Every readable record."""
        with self._store.locked():
            return list(self._store.records().values())

    def of_this_boot(self) -> list[Record]:
        """Records of claims whose containers may run."""
        return [record for record in self.records() if self._boot.wrote(record)]

    def of_earlier_boot(self) -> list[Record]:
        """Records that a reboot has outdated: nothing of them runs, but their claims may still be allocated."""
        return [record for record in self.records() if not self._boot.wrote(record)]

    def held(self) -> dict[str, Mapping[str, Any]]:
        """Devices that records hold, by name, as they were published."""
        return _wires(self.records())

    def held_here(self) -> dict[str, Mapping[str, Any]]:
        """The same without lock and disk: what this instance saw last, its own changes included."""
        return _wires(self._store.records().values())

    def any_here(self) -> bool:
        """Whether a claim is prepared, or may be, as this instance saw last; without lock and disk."""
        return bool(self._store.records() or self._store.damaged())

    def _check_elsewhere(self, new: Sequence[Record]) -> None:
        """A claim may have been allocated before their containers were seen; which chips those have, nobody says."""
        if new and (held := self._elsewhere()):
            raise Refusal(Reason.HELD_ELSEWHERE, f"claim {new[0].claim}: {held}")

    def _release(self, uid: str) -> bool:
        self._specs.remove(uid)  # first the description, then the reservation
        return self._store.forget(uid)

    def _record(self, planned: Planned) -> Record:
        claim = planned.claim
        devices = tuple(_held(planned, result) for result in claim.results)
        spec = self._specs.spec(claim.ref.uid, planned.edits)
        return Record(claim.ref, claim.owner, claim.users, devices, tuple(sorted(planned.unit)), self._boot.id, spec)

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

    def _rewrite(self, record: Record) -> None:
        uid = record.claim.uid
        _try("restore the CDI file", uid, lambda: self._specs.write(uid, record.spec))

    def _remove_stray_files(self) -> None:
        """CDI files that no record of this boot stands behind: unknown, or with another boot's device numbers."""
        kept = {uid for uid, record in self._store.records().items() if self._boot.wrote(record)}
        kept |= {bad.uid for bad in self._store.damaged()}
        for uid in sorted(self._specs.uids() - kept):
            log.warning("CDI file of a claim without a record of this boot removed", extra={"claim_uid": uid})
            _try("remove the CDI file", uid, lambda uid=uid: self._specs.remove(uid))  # type: ignore[misc]


def _held(planned: Planned, result: Result) -> HeldDevice:
    device = planned.device(result)
    return HeldDevice(result.request, result.pool, result.admin, serials(device, planned.snapshot), device)


def _wires(records: Iterable[Record]) -> dict[str, Mapping[str, Any]]:
    return {held.device.name: held.wire for record in records for held in record.devices if not held.admin}


def _same(old: Record | None, new: Record) -> bool:
    """Whether a durable write can be spared: who has the claim reserved is for messages only."""
    return old is not None and replace(old, users=new.users) == new


def _try(what: str, uid: str, action: Callable[[], None]) -> None:
    """One claim that can't be put right doesn't keep the others from it."""
    try:
        action()
    except Refusal as refusal:
        log.error("can't %s: %s", what, refusal.detail, extra={"claim_uid": uid})  # noqa: TRY400
