"""Which container of a pod uses which claims and requests: the pod alone says that.

The kubelet tells neither pod nor container. Ordinary claims stand in `resources.claims` of each container; a claim made
for extended resources stands in `status.extendedResourceClaimStatus.requestMappings`, whose request names do not name
the container (an init container reuses a later one's request).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.claims.allocation import Claim, PodRef
from dra_driver.claims.refusals import Reason, Refusal


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

    def requests_of(self, claim: Claim) -> frozenset[str]:
        """Base names of the claim's requests whose devices this container gets."""
        named = {use.request for use in self.uses if use.claim == claim.ref.name}
        return claim.requests if None in named else claim.requests & {name for name in named if name}


@dataclass(frozen=True)
class Pod:
    """A pod as far as claims are concerned."""

    ref: PodRef
    containers: tuple[Container, ...]


def read_pod(raw: Mapping[str, Any], *, expected: PodRef) -> Pod:
    """Decode a v1 Pod.

    Raises:
        Refusal: another pod of the same name, or a claim whose generated name isn't in the status yet.
    """
    uid = raw.get("metadata", {}).get("uid", "")
    if uid != expected.uid:
        raise Refusal(Reason.POD_REPLACED, f"pod {expected.name} has the UID {uid} now, the claim names {expected.uid}")
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    names = _claim_names(spec, status)
    extended = _extended_uses(status)
    containers = [
        Container(entry["name"], (*_named_uses(entry, names, expected), *extended.get(entry["name"], ())))
        for entry in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    ]
    return Pod(expected, tuple(containers))


def _claim_names(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, str]:
    """Pod-level claim entry → ResourceClaim name."""
    generated = {entry["name"]: entry.get("resourceClaimName") for entry in status.get("resourceClaimStatuses") or []}
    given = {entry["name"]: entry.get("resourceClaimName") for entry in spec.get("resourceClaims") or []}
    return {name: claim for name, value in given.items() if (claim := value or generated.get(name))}


def _named_uses(container: Mapping[str, Any], names: Mapping[str, str], pod: PodRef) -> list[Use]:
    uses = []
    for entry in (container.get("resources") or {}).get("claims") or []:
        claim = names.get(entry["name"])
        if claim is None:
            raise Refusal(
                Reason.POD_INCOMPLETE,
                f"pod {pod.name}: its status doesn't say yet which claim '{entry['name']}' is",
            )
        uses.append(Use(claim, entry.get("request") or None))
    return uses


def _extended_uses(status: Mapping[str, Any]) -> dict[str, Sequence[Use]]:
    """Container name → requests of the pod's extended-resource claim."""
    extended = status.get("extendedResourceClaimStatus") or {}
    uses: dict[str, list[Use]] = {}
    for mapping in extended.get("requestMappings") or []:
        use = Use(extended.get("resourceClaimName", ""), mapping["requestName"])
        uses.setdefault(mapping["containerName"], []).append(use)
    return dict(uses)
