"""The library's errors: one tree, and the one shape in which a fault of a spec is told.

CdiError
├── InvalidNameError   a qualified device name or a kind that the grammar doesn't allow
├── InvalidSpecError   a spec that can't be read, or that runtimes would refuse; carries every fault
├── WriteError         the file system refused; carries path and reason
├── UnresolvableError  requested devices that no readable spec defines; carries the reason for each
└── ApplyError         a resolved device that can't be put into a container
"""

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


class CdiError(Exception):
    """Base of all errors this library raises on purpose; the text is meant for a user."""


class InvalidNameError(CdiError, ValueError):
    """A name that the grammar doesn't allow; the text names the part and what is allowed."""


class ApplyError(CdiError):
    """A resolved device that can't be put into a container; the text names device and path."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a spec: where (`devices[0].containerEdits.env[1]`, or empty) and what."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidSpecError(CdiError):
    """A spec with faults. `faults` holds all of them, `source` is a path or what the caller said."""

    def __init__(self, source: str, faults: Sequence[Fault]) -> None:
        self.source = source
        self.faults = tuple(faults)
        super().__init__(f"CDI spec {source} is not valid: " + "; ".join(map(str, self.faults)))


class UnresolvableError(CdiError):
    """Devices that can't be resolved. `reasons` maps each name, in request order, to its reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        self.reasons = dict(reasons)
        texts = (f"{name} ({reason})" for name, reason in self.reasons.items())
        super().__init__("unresolvable CDI devices: " + "; ".join(texts))


_REMEDIES = {
    errno.ENOSPC: "no bytes or no inodes are left there: free some, or enlarge the (tmpfs) mount",
    errno.EDQUOT: "the quota is used up: free some or raise it",
    errno.EROFS: "the file system is mounted read-only: mount it writable for this process",
    errno.EACCES: "this process may not write there: run it as root or change the directory's mode",
    errno.EPERM: "this process may not write there: run it as root, look for an immutable flag",
    errno.ENOTDIR: "something on the way is not a directory: remove or rename it",
    errno.ENAMETOOLONG: "the file name is too long: use a shorter vendor, class or id",
}


class WriteError(CdiError):
    """The file system refused. `path` is the spec file, `errno` and `reason` are the system's."""

    def __init__(self, action: str, path: Path, error: OSError) -> None:
        self.path = path
        self.errno = error.errno or 0
        self.reason = os.strerror(self.errno) if self.errno else str(error)
        remedy = _REMEDIES.get(self.errno)
        super().__init__(f"can't {action} CDI spec {path}: {self.reason}" + (f"; {remedy}" if remedy else ""))
