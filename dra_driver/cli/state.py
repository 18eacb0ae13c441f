"""`coreslice state`: what the driver keeps on this node, and how to be rid of it once the driver is gone.

`show` reads records, CDI files and sockets without a lock and changes nothing. `clean` removes them, under the lock
that every instance takes; it needs neither hardware nor API. Both take their paths as the driver does, from flags or
the same environment.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_driver import settings
from dra_driver.claims import lnc
from dra_driver.claims.ledger import Boot
from dra_driver.claims.records import Record
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore, load
from dra_driver.errors import CoresliceError
from dra_driver.kubelet import names, sockets
from dra_driver.settings import Settings

GOOD, FAILED = 0, 1
_FLAGS = ("driver_name", "kubelet_plugins_dir", "kubelet_registrar_dir", "cdi_root", "state_dir", "proc_root")


class StateError(CoresliceError):
    """The state can't be looked at or removed; the text says why."""


@dataclass(frozen=True)
class Place:
    """Where one driver's things lie on this node."""

    settings: Settings

    @property
    def folder(self) -> Path:
        """The driver's own folder beside those of other plugins."""
        return self.settings.kubelet_plugins_dir / self.settings.driver_name

    @property
    def specs(self) -> SpecDirectory:
        """Its CDI files."""
        return SpecDirectory(self.settings.cdi_root, driver=self.settings.driver_name)

    def live(self) -> list[Path]:
        """Sockets on which an instance of the driver listens."""
        registration = names.registration_pattern(self.settings.driver_name)
        return [
            *sockets.live(self.folder, names.dra_pattern()),
            *sockets.live(self.settings.kubelet_registrar_dir, registration),
        ]


def add_parser(commands: Any) -> None:
    """Adds `state` with `show` and `clean`."""
    parser = commands.add_parser("state", help="records, CDI files and sockets of the driver on this node")
    verbs = parser.add_subparsers(dest="verb", required=True)
    show = verbs.add_parser("show", help="what there is")
    clean = verbs.add_parser("clean", help="remove it, after the driver was taken away")
    clean.add_argument("--force", action="store_true", help="also while an instance of the driver serves this node")
    for verb in (show, clean):
        settings.add_arguments(verb, _FLAGS)
        verb.set_defaults(func=run)


def run(arguments: argparse.Namespace) -> int:
    """0 good; 1 with a damaged record, or where cleaning is refused or fails; 2 for wrong use."""
    place = Place(settings.load(arguments, {"NODE_NAME": "any", **os.environ}))
    try:
        return _show(place) if arguments.verb == "show" else _clean(place, force=arguments.force)
    except OSError as error:
        raise StateError(f"{error.filename}: {error.strerror}; run it as root") from error


def _show(place: Place) -> int:
    records, damaged = load(place.settings.records_dir)
    boot, uids = Boot.read(place.settings.proc_root), place.specs.uids()
    for record in records:
        print(_told(record, boot, uids, place.specs))
    for bad in damaged:
        print(f"damaged record {bad.path}: {bad.reason}")
    for uid in sorted(uids - {record.claim.uid for record in records} - {bad.uid for bad in damaged}):
        print(f"CDI file without a record: {place.specs.path(uid)}")
    if state := lnc.load(place.settings.records_dir):
        print(f"LNC {state.value} is in force")
    for path in place.live():
        print(f"an instance of the driver serves {path}")
    if not (records or damaged or uids):
        print(f"no claim is prepared by {place.settings.driver_name} here ({place.settings.records_dir})")
    return FAILED if damaged else GOOD


def _told(record: Record, boot: Boot, uids: set[str], specs: SpecDirectory) -> str:
    uid = record.claim.uid
    devices = ", ".join(held.device.name + (" (monitoring only)" if held.admin else "") for held in record.devices)
    when = "" if boot.wrote(record) else "; of an earlier boot"
    file = str(specs.path(uid)) if uid in uids else "no CDI file"
    return f"{record.holders()}: {devices}; {file}{when}"


def _clean(place: Place, *, force: bool) -> int:
    live = place.live()
    if live and not force:
        raise StateError(
            f"an instance of {place.settings.driver_name} serves this node ({', '.join(map(str, live))}): uninstall it "
            "first; with --force its records go all the same, and it gives the cores of running containers away"
        )
    removed = list(_remove(place, keep_lock=bool(live)))
    for line in removed:
        print(f"removed {line}")
    for path in live:
        print(f"left {path}: an instance of the driver serves it", file=sys.stderr)
    if not removed:
        print(f"nothing of {place.settings.driver_name} is left here")
    return GOOD


def _remove(place: Place, *, keep_lock: bool) -> Iterator[str]:
    """One line for each thing that went: first what gives devices, then what remembers them, then the rest."""
    if place.settings.records_dir.is_dir():
        store = RecordStore(place.settings.records_dir)
        try:
            with store.locked():
                yield from _remove_claims(place, store)
                if not keep_lock:
                    (place.settings.records_dir / "lock").unlink(missing_ok=True)
        finally:
            store.close()
    yield from _remove_files(place)
    yield from _remove_sockets(place)
    for folder in (place.settings.records_dir, place.folder):
        with suppress(OSError):  # not empty: something that isn't ours, or a driver that runs
            folder.rmdir()
            yield f"folder {folder}"


def _remove_claims(place: Place, store: RecordStore) -> Iterator[str]:
    for uid, record in sorted(store.records().items()):
        file = place.specs.path(uid)
        place.specs.remove(uid)
        store.forget(uid)
        devices = ", ".join(held.device.name for held in record.devices)
        yield f"record and CDI file of {record.holders()}: {devices} ({file})"
    for bad in store.damaged():
        bad.path.unlink(missing_ok=True)
        yield f"damaged record {bad.path}"
    if store.forget_lnc():
        yield f"the LNC in force ({place.settings.records_dir / lnc.FILE})"
    store.sweep()


def _remove_files(place: Place) -> Iterator[str]:
    place.specs.sweep()
    for uid in sorted(place.specs.uids()):
        place.specs.remove(uid)
        yield f"CDI file {place.specs.path(uid)}"


def _remove_sockets(place: Place) -> Iterator[str]:
    registration = names.registration_pattern(place.settings.driver_name)
    for folder, pattern in ((place.folder, names.dra_pattern()), (place.settings.kubelet_registrar_dir, registration)):
        if folder.is_dir():
            yield from (f"socket {path}" for path in sockets.remove_dead(folder, pattern))
