"""decode: a ResourceClaim as the API gives it → what it holds of ours and who uses it.

Reads what the API server wrote (resource.k8s.io/v1): unknown fields are ignored, null lists are empty. What can't be
used is a `Refusal` that names the claim.
"""

from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from dra_driver.claims.refusals import PodRef, Reason, Refusal
from dra_driver.kubelet.types import ClaimRef


@dataclass(frozen=True)
class Result:
    """One allocation result of this driver."""

    request: str  # "req", or "req/sub" when it came from firstAvailable
    pool: str
    device: str
    admin: bool  # adminAccess: monitoring beside whoever holds the device

    @property
    def base_request(self) -> str:
        """The request's own name: the kubelet matches containers by it."""
        return base_name(self.request)


@dataclass(frozen=True)
class Claim:
    """An allocated claim. `owner` is None for a user-made claim, which several pods may share."""

    ref: ClaimRef
    owner: PodRef | None
    users: tuple[PodRef, ...]
    results: tuple[Result, ...]

    @property
    def pods(self) -> tuple[PodRef, ...]:
        """Everybody who waits for it: its owner, and those that have it reserved."""
        return tuple(dict.fromkeys((*([self.owner] if self.owner else []), *self.users)))

    @property
    def requests(self) -> frozenset[str]:
        """Base names of the requests that got devices of ours."""
        return frozenset(result.base_request for result in self.results)

    def used_by(self, pod_uid: str) -> bool:
        """Whether that pod owns the claim or has it reserved."""
        return any(user.uid == pod_uid for user in (*self.users, *([self.owner] if self.owner else [])))


def base_name(request: str) -> str:
    """`req` of `req/sub`: containers name requests so."""
    return request.partition("/")[0]


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


_T = TypeVar("_T")
Items = Annotated[list[_T], BeforeValidator(lambda value: [] if value is None else value)]  # null is legal (BC-132)


class _Owner(_Read):
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Meta(_Read):
    uid: str
    ownerReferences: Items[_Owner] = []  # noqa: N815


class _Result(_Read):
    request: str
    driver: str
    pool: str
    device: str
    adminAccess: bool | None = None  # noqa: N815


class _Opaque(_Read):
    driver: str = ""


class _Config(_Read):
    source: str = ""
    opaque: _Opaque | None = None


class _Devices(_Read):
    results: Items[_Result] = []
    config: Items[_Config] = []


class _Allocation(_Read):
    devices: _Devices | None = None


class _User(_Read):
    apiGroup: str | None = None  # noqa: N815
    resource: str = ""
    name: str = ""
    uid: str = ""


class _Status(_Read):
    allocation: _Allocation | None = None
    reservedFor: Items[_User] = []  # noqa: N815


class _Claim(_Read):
    metadata: _Meta
    status: _Status | None = None


def decode(raw: dict[str, Any], *, asked: ClaimRef, driver: str, pool: str) -> Claim:
    """The claim that the kubelet asked for, with this driver's results only (claims may mix drivers).

    Raises:
        Refusal: another UID, no allocation, configuration for this driver, another pool, a user that is no pod.
    """
    parsed = _parse(raw, asked)
    if parsed.metadata.uid != asked.uid:
        raise Refusal(Reason.CLAIM_REPLACED, f"claim {asked} has the UID {parsed.metadata.uid} in the API now")
    if parsed.status is None or parsed.status.allocation is None:
        raise Refusal(Reason.CLAIM_NOT_ALLOCATED, f"claim {asked} has no allocation")
    devices = parsed.status.allocation.devices or _Devices()
    results = tuple(_result(entry, asked, pool) for entry in devices.results if entry.driver == driver)
    if results:
        _refuse_config(devices.config, asked, driver)
    users = tuple(_user(user, asked) for user in parsed.status.reservedFor) if results else ()
    return Claim(asked, _owner(parsed.metadata), users, results)


def reserved_pods(raw: dict[str, Any], *, asked: ClaimRef) -> frozenset[str]:
    """UIDs of the pods that have the claim reserved now, whatever it holds; none when it was made anew.

    Raises:
        Refusal: that can't be read from it.
    """
    parsed = _parse(raw, asked)
    if parsed.metadata.uid != asked.uid or parsed.status is None:
        return frozenset()
    return frozenset(user.uid for user in parsed.status.reservedFor)


def holds(raw: dict[str, Any], *, driver: str, claim: ClaimRef) -> frozenset[str]:
    """Names of this driver's devices that the claim of that UID holds now; empty when it holds none.

    Raises:
        Refusal: that can't be read from it.
    """
    parsed = _parse(raw, claim)
    if parsed.metadata.uid != claim.uid or parsed.status is None or parsed.status.allocation is None:
        return frozenset()
    devices = parsed.status.allocation.devices or _Devices()
    return frozenset(result.device for result in devices.results if result.driver == driver)


def _parse(raw: dict[str, Any], asked: ClaimRef) -> _Claim:
    try:
        return _Claim.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Refusal(Reason.CLAIM_MALFORMED, f"claim {asked}, field {field}: {first['msg']}") from error


def _result(entry: _Result, asked: ClaimRef, pool: str) -> Result:
    if entry.pool != pool:
        raise Refusal(
            Reason.FOREIGN_POOL,
            f"claim {asked} holds device {entry.device} of pool {entry.pool}, this node's pool is {pool}",
        )
    return Result(entry.request, entry.pool, entry.device, entry.adminAccess is True)


def _refuse_config(entries: list[_Config], asked: ClaimRef, driver: str) -> None:
    """There is no configuration for this driver yet; an accepted field without effect would be a lie."""
    for entry in entries:
        if entry.opaque is not None and entry.opaque.driver == driver:
            where = "its DeviceClass" if entry.source == "FromClass" else "the claim"
            raise Refusal(
                Reason.OPAQUE_CONFIG,
                f"claim {asked}: opaque configuration for {driver} doesn't exist, remove it from {where}",
            )


def _user(user: _User, asked: ClaimRef) -> PodRef:
    if user.resource != "pods" or user.apiGroup:
        raise Refusal(
            Reason.NOT_A_POD,
            f"claim {asked} is reserved for {user.resource}/{user.name}: only pods are supported",
        )
    return PodRef(user.name, user.uid)


def _owner(meta: _Meta) -> PodRef | None:
    for owner in meta.ownerReferences:
        if owner.controller and owner.kind == "Pod":
            return PodRef(owner.name, owner.uid)
    return None
