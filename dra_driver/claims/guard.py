"""What is looked at again under the lock, directly before the journal: the last line of defence against a wrong grant.

Whatever scheduler and plan say: a core that a record holds isn't given again, a chip is the one that was scanned, and
what a damaged record may hold stays blocked until nothing of it can run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_driver.claims.hardware import Hardware, Snapshot
from dra_driver.claims.records import HeldDevice, Record
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.settling import settle
from dra_driver.claims.sharing import Planned
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore
from dra_driver.inventory.devices import Device, physical_cores

Core = tuple[int, int]  # host index of the chip, physical core


@dataclass(frozen=True)
class Boot:
    """This boot of the node. `started` is Unix seconds, None where /proc doesn't tell."""

    id: str
    started: float | None

    @classmethod
    def read(cls, proc_root: Path) -> "Boot":
        """From /proc; an unknown boot id is empty."""
        try:
            boot_id = (proc_root / "sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            boot_id = ""
        return cls(boot_id, _boot_time(proc_root))

    def wrote(self, record: Record) -> bool:
        """Whether something may run on the record's devices: it is of this boot, or nobody knows of which."""
        return not self.id or record.boot_id in ("", self.id)

    def before(self, path: Path) -> bool:
        """Whether a file was surely written before this boot."""
        try:
            return self.started is not None and path.stat().st_mtime < self.started
        except OSError:
            return False


@dataclass(frozen=True)
class Guard:
    """The checks of one unit; `check` is called inside the store's lock."""

    store: RecordStore
    specs: SpecDirectory
    hardware: Hardware
    boot: Boot

    def check(self, unit: Sequence[Planned]) -> None:
        """Pass, or raise why these claims can't be prepared now.

        Raises:
            Refusal: a device is held, overlaps, or its chip isn't the one that was planned with.
        """
        _check_apart(unit)
        self._check_lnc(unit)
        known = self.store.records()
        for planned in unit:
            own = known.get(planned.claim.ref.uid)
            running = own if own and self.boot.wrote(own) else None
            self._check_chips(planned)
            if running:
                self._check_running(planned, running)
            for device in _exclusive(planned):
                self._check_free(planned, device, known)
                if running is None or device.name not in _names(running):
                    self._check_damaged(planned, device)

    def _check_lnc(self, unit: Sequence[Planned]) -> None:
        """Another instance may have changed it since this was planned; the next plan knows."""
        snapshot = unit[0].snapshot
        if snapshot.machine.max_lnc == 1:
            return
        known = self.store.lnc() or settle(self.store, snapshot.lnc, 0)
        if known.value != snapshot.lnc:
            text = f"claim {unit[0].claim.ref} was planned at LNC {snapshot.lnc}, the node is at LNC {known.value} now"
            raise Refusal(Reason.SCAN_OUTDATED, text)

    def _check_chips(self, planned: Planned) -> None:
        machine = planned.snapshot.machine
        for index in sorted({index for result in planned.claim.results for index in planned.device(result).chips}):
            chip = machine.chip(index)
            if chip is not None and (change := self.hardware.changed(chip)):
                text = f"claim {planned.claim.ref}: chip {index}: {change}; waiting for the next scan"
                raise Refusal(Reason.SCAN_OUTDATED, text)

    def _check_running(self, planned: Planned, old: Record) -> None:
        """The same UID may come back with another allocation: the old one is undone unless it is in use."""
        kept = {result.device for result in planned.claim.results}
        for held in old.devices:
            if held.device.name in kept:
                _check_serials(planned, held)
            elif not held.admin and (busy := self.hardware.busy(held.device)):
                raise Refusal(
                    Reason.STILL_IN_USE,
                    f"claim {planned.claim.ref} was allocated anew while its old device {held.device.name} is in"
                    f" use: {busy}; waiting for that to end",
                )

    def _check_free(self, planned: Planned, device: Device, known: Mapping[str, Record]) -> None:
        wanted = physical_cores(device)
        for uid, record in known.items():
            for held in record.devices:
                if uid != planned.claim.ref.uid and wanted & held.cores:
                    raise Refusal(
                        Reason.DEVICE_HELD,
                        f"claim {planned.claim.ref} wants {device.name}, but {record.holders()} holds"
                        f" {held.device.name}; waiting for its pod to end",
                    )

    def _check_damaged(self, planned: Planned, device: Device) -> None:
        """Its CDI file tells what it holds. Only without one may its age clear it: clocks can be set while pods run."""
        for bad in self.store.damaged():
            names = self.specs.device_names(bad.uid) or []
            if bad.uid == planned.claim.ref.uid or (not names and self.boot.before(bad.path)):
                continue
            held = _cores_of(names, planned.snapshot)
            if held is None or held & physical_cores(device):
                what = "nobody knows what it holds" if held is None else f"it may hold {device.name}"
                raise Refusal(
                    Reason.RECORD_UNREADABLE,
                    f"claim {planned.claim.ref}: the record {bad.path} of another claim can't be read"
                    f" ({bad.reason}) and {what}; delete that claim's pod, or remove the file once nothing runs",
                )


def serials(device: Device, snapshot: Snapshot) -> tuple[str, ...]:
    """Of the device's chips, ascending; empty text where unknown."""
    return tuple(chip.serial if (chip := snapshot.machine.chip(index)) else "" for index in device.chips)


def _cores_of(names: Sequence[str], snapshot: Snapshot) -> set[Core] | None:
    """What these devices cover; None when there are none, or one isn't known."""
    if not names or any(name not in snapshot.devices for name in names):
        return None
    return {core for name in names for core in physical_cores(snapshot.devices[name])}


def _check_apart(unit: Sequence[Planned]) -> None:
    """Within the unit no core is given twice, whatever became of the counters."""
    taken: dict[Core, str] = {}
    for planned in unit:
        for device in _exclusive(planned):
            for core in physical_cores(device):
                if core in taken:
                    raise Refusal(
                        Reason.OVERLAP,
                        f"claim {planned.claim.ref}: {device.name} overlaps {taken[core]}, which the same pod got too",
                    )
            taken |= dict.fromkeys(physical_cores(device), device.name)


def _check_serials(planned: Planned, held: HeldDevice) -> None:
    """Under a name that is held, the chip stays the same chip for as long as the node runs (BC-096)."""
    now = serials(held.device, planned.snapshot)
    if any(old and new and old != new for old, new in zip(held.serials, now, strict=False)):
        raise Refusal(
            Reason.CHIP_CHANGED,
            f"claim {planned.claim.ref}: device {held.device.name} had the serial {', '.join(held.serials)}"
            f" when it was prepared and has {', '.join(now)} now, within one boot",
        )


def _exclusive(planned: Planned) -> list[Device]:
    """Devices that nobody else may have; monitoring access is beside whoever has them."""
    return [planned.device(result) for result in planned.claim.results if not result.admin]


def _names(record: Record) -> set[str]:
    return {held.device.name for held in record.devices if not held.admin}


def _boot_time(proc_root: Path) -> float | None:
    try:
        lines = (proc_root / "stat").read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return None
