"""Which LNC is wished for on this node, and bringing it in force as soon as nothing is prepared.

The wish is the setting, else what the node's file says, else what the runtime takes by default. The file may be missing
and its content is the node owner's: what can't be understood is reported and wishes for nothing, so what is in force
stays. What is in force lies beside the records (`claims.lnc`). Hardware that knows one LNC only has none of this.
"""

import logging
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dra_driver.claims import lnc
from dra_driver.claims.records import Record
from dra_driver.claims.refusals import Refusal
from dra_driver.claims.settling import settle
from dra_driver.claims.store import RecordStore
from dra_driver.findings import Finding
from dra_driver.neuron import lnc as neuron_lnc
from dra_driver.neuron.machine import Machine
from dra_driver.settings import Lnc

log = logging.getLogger(__name__)

_LINE = re.compile(r"\s*NEURON_LOGICAL_NC_CONFIG\s*=\s*([12])\s*")
_READ = 4096  # bytes of something that has 26


@dataclass(frozen=True)
class Wish:
    """What is wished for, and where that is said; no value for the default, and with a `problem` for nothing."""

    value: int | None
    source: str
    problem: str = ""


class NodeLnc:
    """The node's LNC. Thread-safe."""

    def __init__(self, store: RecordStore, *, setting: Lnc, file: Path) -> None:
        self._store = store
        self._setting = setting
        self._file = file
        self._lock = threading.Lock()
        self._number = 0  # of this instance among those of the node; 0 before its first look
        self._wish = Wish(None, "")
        self._failed = ""  # why the newest wish can't be kept
        self._machine = Machine()
        self._look_at_wish(self._machine)  # so that the first scan is at it

    def in_force(self, machine: Machine) -> int:
        """As this instance saw it last; before anything is settled, the wish. Asks neither disk nor lock."""
        if machine.max_lnc == 1:
            return 1
        known = self._store.lnc()
        return known.value if known else self._wish.value or neuron_lnc.default(machine)

    def wished(self, machine: Machine) -> int:
        """What would be in force if nothing were prepared."""
        if machine.max_lnc == 1:
            return 1
        wish = self._wish
        return self.in_force(machine) if wish.problem else wish.value or neuron_lnc.default(machine)

    def look(self, machine: Machine) -> None:
        """Read the wish again and bring it in force if that may be. What the disk refuses is tried at the next look."""
        with self._lock:
            self._machine = machine
            self._look_at_wish(machine)
            if machine.max_lnc == 1:
                return
            before = self._store.lnc()
            try:
                self._settle(machine)
                self._failed = ""
            except Refusal as refusal:
                if refusal.detail != self._failed:
                    log.error("the LNC can't be settled: %s", refusal.detail)  # noqa: TRY400
                self._failed = refusal.detail
            now = self.in_force(machine)
            if before is None or before.value != now:
                log.info("LNC in force", extra={"lnc": now, "wished_by": self._wish.source})

    def pending(self) -> str:
        """What is to change and can't yet, in words that stay the same for as long as it can't; empty: nothing."""
        in_force, wished = self.in_force(self._machine), self.wished(self._machine)
        if in_force == wished:
            return ""
        return (
            f"LNC {wished} is wished for ({self._wish.source}), but LNC {in_force} stays in force until no claim is "
            "prepared on this node: drain it, or wait"
        )

    def findings(self) -> tuple[Finding, ...]:
        """What a person should know of it, as of the last look."""
        if self._machine.max_lnc == 1:
            return ()
        found = (("LNCFileUnreadable", self._wish.problem), ("LNCChangePending", self.pending()))
        return tuple(Finding(reason, text) for reason, text in found if text)

    def _settle(self, machine: Machine) -> None:
        with self._store.locked():
            known = self._store.lnc()
            self._number = self._number or (known.decider if known else 0) + 1
            settle(self._store, self.wished(machine), self._number)

    def _look_at_wish(self, machine: Machine) -> None:
        wish = _wish(self._setting, self._file)
        if wish.problem and wish != self._wish and machine.max_lnc > 1:
            log.warning("%s", wish.problem)
        self._wish = wish


def seen(machine: Machine, directory: Path, records: Iterable[Record], *, setting: Lnc, file: Path) -> int:
    """The LNC in force, for people who look: no lock, no change, no driver needed.

    What lies beside the records, else what they hold, else the wish.
    """
    if machine.max_lnc == 1:
        return 1
    if known := lnc.load(directory):
        return known.value
    return lnc.recorded(records) or _wish(setting, file).value or neuron_lnc.default(machine)


def _wish(setting: Lnc, file: Path) -> Wish:
    if setting is not Lnc.AUTO:
        return Wish(int(setting.value), "the setting --lnc")
    try:
        with file.open("rb") as opened:
            text = opened.read(_READ + 1).decode("ascii", errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        return Wish(None, f"the runtime's default, since there is no {file}")
    except OSError as error:
        return _not_understood(file, error.strerror or str(error))
    lines = [line for line in text.splitlines() if line.strip()]
    match = _LINE.fullmatch(lines[0]) if len(lines) == 1 and len(text) <= _READ else None
    return Wish(int(match[1]), f"the file {file}") if match else _not_understood(file, f"it says {text[:80]!r}")


def _not_understood(file: Path, why: str) -> Wish:
    text = (
        f"{file} can't be understood ({why}): the LNC in force stays, or without one the runtime's default; write "
        "NEURON_LOGICAL_NC_CONFIG=1 or =2 there, remove it, or set --lnc"
    )
    return Wish(None, "nothing", text)
