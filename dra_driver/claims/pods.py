"""Which container of a pod uses which claims and requests: the pod alone says that.

The kubelet tells neither pod nor container. Ordinary claims stand in `resources.claims` of each container; a claim made
for extended resources stands in `status.extendedResourceClaimStatus.requestMappings`, whose request names do not name
the container (an init container reuses a later one's request).
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dra_driver.claims.allocation import Items
from dra_driver.claims.refusals import PodRef, Reason, Refusal


@dataclass(frozen=True)
class Use:
    """A claim that a container uses; `request` None is all of its requests."""

    claim: str  # the ResourceClaim's name, unique in the namespace
    request: str | None


@dataclass(frozen=True)
class Container:
    """An init, sidecar or normal container and the claims it names."""

    name: str
    uses: tuple[Use, ...]

    @property
    def claims(self) -> frozenset[str]:
        """Names of the claims that it uses, in whole or in part."""
        return frozenset(use.claim for use in self.uses)

    def gets(self, claim: str, requests: AbstractSet[str]) -> AbstractSet[str]:
        """Those of the claim's requests (base names) whose devices this container gets, as the kubelet matches them."""
        named = {use.request for use in self.uses if use.claim == claim}
        return requests if None in named else requests & named


@dataclass(frozen=True)
class Pod:
    """A pod as far as claims are concerned."""

    ref: PodRef
    containers: tuple[Container, ...]


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Entry(_Read):
    """In the spec: a claim, or a template; in the status: the claim that was made of it, or None was needed."""

    name: str
    resourceClaimName: str | None = None  # noqa: N815


class _Use(_Read):
    name: str
    request: str | None = None


class _Resources(_Read):
    claims: Items[_Use] = []


class _Container(_Read):
    name: str
    resources: _Resources | None = None


class _Spec(_Read):
    resourceClaims: Items[_Entry] = []  # noqa: N815
    initContainers: Items[_Container] = []  # noqa: N815
    containers: Items[_Container] = []


class _Mapping(_Read):
    containerName: str  # noqa: N815
    requestName: str  # noqa: N815


class _Extended(_Read):
    resourceClaimName: str  # noqa: N815
    requestMappings: Items[_Mapping] = []  # noqa: N815


class _Status(_Read):
    resourceClaimStatuses: Items[_Entry] = []  # noqa: N815
    extendedResourceClaimStatus: _Extended | None = None  # noqa: N815


class _Meta(_Read):
    uid: str


class _Pod(_Read):
    metadata: _Meta
    spec: _Spec
    status: _Status | None = None


def read_pod(raw: Mapping[str, Any], *, expected: PodRef) -> Pod:
    """Decode a v1 Pod.

    Raises:
        Refusal: another pod of the same name, or a claim whose generated name isn't in the status yet.
    """
    pod = _parse(raw, expected)
    if pod.metadata.uid != expected.uid:
        text = f"pod {expected.name} has the UID {pod.metadata.uid} now, the claim names {expected.uid}"
        raise Refusal(Reason.POD_REPLACED, text)
    status = pod.status or _Status()
    names = _claim_names(pod.spec, status)
    containers = [
        Container(one.name, (*_named(one, names, expected), *_extended(one.name, status.extendedResourceClaimStatus)))
        for one in [*pod.spec.initContainers, *pod.spec.containers]
    ]
    return Pod(expected, tuple(containers))


def _parse(raw: Mapping[str, Any], expected: PodRef) -> _Pod:
    try:
        return _Pod.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise Refusal(Reason.POD_MALFORMED, f"pod {expected.name}, field {field}: {first['msg']}") from error


def _claim_names(spec: _Spec, status: _Status) -> dict[str, str | None]:
    """Pod-level entry → ResourceClaim name, None where no claim was needed; entries not known yet are left out."""
    made = {entry.name: entry.resourceClaimName for entry in status.resourceClaimStatuses}
    return made | {entry.name: entry.resourceClaimName for entry in spec.resourceClaims if entry.resourceClaimName}


def _named(container: _Container, names: Mapping[str, str | None], pod: PodRef) -> list[Use]:
    uses = []
    for entry in container.resources.claims if container.resources else []:
        if entry.name not in names:
            text = f"pod {pod.name}: its status doesn't say yet which claim '{entry.name}' is"
            raise Refusal(Reason.POD_INCOMPLETE, text)
        if claim := names[entry.name]:
            uses.append(Use(claim, entry.request or None))
    return uses


def _extended(container: str, status: _Extended | None) -> list[Use]:
    """What the container gets of the pod's extended-resource claim."""
    if status is None:
        return []
    mine = [mapping for mapping in status.requestMappings if mapping.containerName == container]
    return [Use(status.resourceClaimName, mapping.requestName) for mapping in mine]
