"""A record: what is remembered of one prepared claim, and the file it is kept in.

A file is one line of JSON and one line `sha256:<hex>` over the bytes of the first: the checksum is over what is on
disk, so a release that adds a field still reads it (BC-089). A record whose devices can't be placed, or whose CDI spec
no runtime would take, counts as damaged: it may hold something.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from cdi.errors import InvalidSpecError
from cdi.models import Spec
from cdi.read import from_document
from cdi.validate import check
from dra_driver.claims.allocation import base_name
from dra_driver.claims.refusals import PodRef, Reason, Refusal
from dra_driver.errors import CoresliceError
from dra_driver.inventory.devices import Device, InventoryError, from_wire, physical_cores
from dra_driver.kubelet.types import ClaimRef

API_VERSION = "state.coreslice.dev/v1"
KIND = "ClaimRecord"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,62}")  # it becomes a file name


class RecordError(CoresliceError):
    """The state directory can't be used; the text names the path."""


@dataclass(frozen=True)
class HeldDevice:
    """One allocated device, as it was published when the claim was prepared."""

    request: str
    pool: str
    admin: bool  # monitoring access never holds a device
    serials: tuple[str, ...]  # of its chips, ascending; empty text where unknown
    device: Device

    @property
    def wire(self) -> Mapping[str, Any]:
        """The published form."""
        return self.device.wire

    @cached_property
    def cores(self) -> frozenset[tuple[int, int]]:
        """The physical cores that nobody else may get; none for monitoring access."""
        return frozenset() if self.admin else physical_cores(self.device)


@dataclass(frozen=True)
class Record:
    """What the driver remembers of one prepared claim; enough to undo it without API and hardware."""

    claim: ClaimRef
    owner: PodRef | None  # None: user-made
    users: tuple[PodRef, ...]  # reservedFor at the time
    devices: tuple[HeldDevice, ...]
    unit: tuple[str, ...]  # UIDs of the claims it was planned with, itself included
    boot_id: str
    spec: Spec  # to write the CDI file again within the boot

    @property
    def requests(self) -> frozenset[str]:
        """Base names of the requests that got its devices."""
        return frozenset(base_name(held.request) for held in self.devices)

    def holders(self) -> str:
        """Who has it, for messages."""
        pods = ", ".join(pod.name for pod in ((self.owner,) if self.owner else self.users)) or "no pod"
        return f"claim {self.claim} (pod {pods})"


@dataclass(frozen=True)
class Damaged:
    """A record that can't be read."""

    uid: str
    path: Path
    reason: str


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Pod(_Read):
    name: str
    uid: str


class _ClaimRef(_Read):
    namespace: str
    name: str
    uid: str


class _Device(_Read):
    request: str
    pool: str
    admin: bool = False
    serials: tuple[str, ...] = ()
    published: dict[str, Any]


class _File(_Read):
    apiVersion: str  # noqa: N815
    kind: str
    claim: _ClaimRef
    owner: _Pod | None = None
    users: tuple[_Pod, ...] = ()
    devices: tuple[_Device, ...]
    unit: tuple[str, ...] = ()
    bootID: str  # noqa: N815
    spec: dict[str, Any]


def encode(record: Record) -> bytes:
    """The file's content; the same record gives the same bytes."""
    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "claim": vars(record.claim),
        "owner": vars(record.owner) if record.owner else None,
        "users": [vars(pod) for pod in record.users],
        "devices": [
            {
                "request": held.request,
                "pool": held.pool,
                "admin": held.admin,
                "serials": held.serials,
                "published": held.wire,
            }
            for held in record.devices
        ],
        "unit": record.unit,
        "bootID": record.boot_id,
        "spec": record.spec.model_dump(exclude_defaults=True),
    }
    line = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
    return sealed(line)


def decode(content: bytes, *, uid: str) -> Record:
    """The record in the file of that claim UID.

    Raises:
        RecordError: cut off, altered, of another kind, version or claim.
    """
    line = unsealed(content)
    try:
        return _record(_File.model_validate_json(line), uid)
    except (ValidationError, InventoryError, InvalidSpecError) as error:
        raise RecordError(f"not a record this release reads: {error}") from error


def _record(file: _File, uid: str) -> Record:
    if (file.apiVersion, file.kind) != (API_VERSION, KIND):
        raise RecordError(f"{file.kind} of {file.apiVersion} is not {KIND} of {API_VERSION}")
    if file.claim.uid != uid:
        raise RecordError(f"it is of claim {file.claim.uid}")
    return Record(
        claim=ClaimRef(file.claim.namespace, file.claim.name, file.claim.uid),
        owner=PodRef(file.owner.name, file.owner.uid) if file.owner else None,
        users=tuple(PodRef(pod.name, pod.uid) for pod in file.users),
        devices=tuple(
            HeldDevice(held.request, held.pool, held.admin, held.serials, from_wire(held.published))
            for held in file.devices
        ),
        unit=file.unit,
        boot_id=file.bootID,
        spec=check(from_document(file.spec)),
    )


def sealed(line: bytes) -> bytes:
    """One line as a file with its checksum."""
    return line + b"\n" + _checksum(line) + b"\n"


def unsealed(content: bytes) -> bytes:
    """The line of such a file.

    Raises:
        RecordError: cut off or altered.
    """
    line, _, tail = content.partition(b"\n")
    if tail != _checksum(line) + b"\n":
        raise RecordError("the checksum doesn't match: the file is cut off or was altered")
    return line


def _checksum(line: bytes) -> bytes:
    return b"sha256:" + hashlib.sha256(line).hexdigest().encode()


def is_uid(uid: str) -> bool:
    """Whether it can be a claim's UID, and a file name."""
    return bool(_UID.fullmatch(uid))


def checked_uid(uid: str) -> str:
    """The UID, if it can be a file name.

    Raises:
        Refusal: it can't.
    """
    if not is_uid(uid):
        raise Refusal(Reason.CLAIM_MALFORMED, f"claim UID {uid!r} is none")
    return uid
