"""plan: which claims meet in a container, and so which grant each device carries. Pure.

A claim that a pod owns is planned with the pod's other own claims; a user-made claim stands alone, so that nobody sees
through it what belongs to somebody else. Claims that meet in a container are one unit: all of it is prepared, or none.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from cdi.models import ContainerEdits
from dra_driver.claims import grant
from dra_driver.claims.allocation import Claim
from dra_driver.claims.pods import Container, Pod
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.inventory.devices import Device
from dra_driver.neuron.machine import Machine

Key = tuple[str, str]  # claim UID, device name


@dataclass(frozen=True)
class Planned:
    """One claim's devices with their complete edits, and the UIDs of all claims it was planned with."""

    claim: Claim
    edits: Mapping[str, ContainerEdits]
    unit: frozenset[str]


@dataclass(frozen=True)
class Planner:
    """What every plan needs: the hardware now, and the device behind each name."""

    machine: Machine
    devices: Mapping[str, Device]
    visible_cores_on_chips: bool = False

    def device(self, claim: Claim, name: str) -> Device:
        """The device of an allocation result.

        Raises:
            Refusal: no such device on this node.
        """
        found = self.devices.get(name)
        if found is None:
            raise Refusal(
                Reason.UNKNOWN_DEVICE,
                f"claim {claim.ref} holds device {name}, which this node doesn't have (any more)",
            )
        return found

    def edits(self, devices: Iterable[Device]) -> ContainerEdits:
        """The complete edits of a container with these devices."""
        return grant.edits(devices, self.machine, visible_cores_on_chips=self.visible_cores_on_chips)

    def alone(self, claim: Claim) -> Planned:
        """A claim whose devices all go to whoever names it.

        Raises:
            Refusal: unknown device, a gap, or a user-made claim with several requests.
        """
        if claim.owner is None and len(claim.requests) > 1:
            raise Refusal(
                Reason.SEVERAL_REQUESTS,
                f"claim {claim.ref} may be shared and has the requests {sorted(claim.requests)}: a pod that names"
                " only one of them is never shown to the driver; make a claim for each",
            )
        names = [result.device for result in claim.results]
        same = self.edits(self.device(claim, name) for name in names) if names else ContainerEdits()
        return Planned(claim, dict.fromkeys(names, same), frozenset({claim.ref.uid}))


@dataclass
class PodPlan:
    """The plan of one pod's own claims: `own` by claim name, `failed` ones too, `shared` the user-made names."""

    planner: Planner
    pod: Pod
    own: Mapping[str, Claim]
    failed: Mapping[str, Refusal] = field(default_factory=dict)
    shared: AbstractSet[str] = frozenset()

    def outcome(self) -> dict[str, Planned | Refusal]:
        """Claim name → its plan, or why not. A unit in which one fails has no plan for any."""
        results: dict[str, Planned | Refusal] = {}
        for names in self._units():
            try:
                results.update(self._unit(names))
            except Refusal as refusal:
                results.update(dict.fromkeys(names & self.own.keys(), refusal))
        return results

    def _units(self) -> list[frozenset[str]]:
        """Names of claims that meet in a container, directly or through others."""
        units = [frozenset({name}) for name in (*self.own, *self.failed)]
        for container in self.pod.containers:
            met = [unit for unit in units if unit & {use.claim for use in container.uses}]
            if met:
                units = [unit for unit in units if unit not in met] + [frozenset().union(*met)]
        return units

    def _unit(self, names: frozenset[str]) -> dict[str, Planned]:
        for name in sorted(names & self.failed.keys()):
            refusal = self.failed[name]
            raise Refusal(
                refusal.reason if refusal.reason.retryable else Reason.SIBLING,
                f"claim {name} of the same container of pod {self.pod.ref.name} can't be prepared: {refusal.detail}",
            )
        claims = [self.own[name] for name in sorted(names)]
        edits: dict[Key, ContainerEdits] = {}
        for container in self.pod.containers:
            self._refuse_shared(container, claims)
            self._add(edits, self._granted(container, claims), container)
        for claim in claims:
            self._add_unused(edits, claim)
        unit = frozenset(claim.ref.uid for claim in claims)
        return {claim.ref.name: Planned(claim, _of(claim, edits), unit) for claim in claims}

    def _refuse_shared(self, container: Container, claims: Iterable[Claim]) -> None:
        used = {use.claim for use in container.uses}
        own = [claim for claim in claims if claim.ref.name in used]
        if own and (met := sorted(used & self.shared)):
            raise Refusal(
                Reason.MIXED_WITH_SHARED,
                f"container {container.name} of pod {self.pod.ref.name} combines claim {own[0].ref} with the"
                f" user-made claim {met[0]}; a claim that others may share stands alone: use it in a container"
                " of its own, or take both from templates",
            )

    def _granted(self, container: Container, claims: Iterable[Claim]) -> dict[Key, Device]:
        """The devices of these claims that the container gets."""
        granted = {}
        for claim in claims:
            wanted = container.requests_of(claim)
            for result in claim.results:
                if result.base_request in wanted:
                    granted[claim.ref.uid, result.device] = self.planner.device(claim, result.device)
        return granted

    def _add(self, edits: dict[Key, ContainerEdits], granted: Mapping[Key, Device], container: Container) -> None:
        if not granted:
            return
        complete = self.planner.edits(granted.values())
        for key in granted:
            if edits.setdefault(key, complete) != complete:
                raise Refusal(
                    Reason.DIFFERENT_GRANTS,
                    f"device {key[1]} goes to container {container.name} of pod {self.pod.ref.name} together with"
                    " other devices than in another container of it: give each container claims of its own",
                )

    def _add_unused(self, edits: dict[Key, ContainerEdits], claim: Claim) -> None:
        """A device that no container names still needs edits: its own."""
        for result in claim.results:
            key = (claim.ref.uid, result.device)
            if key not in edits:
                edits[key] = self.planner.edits([self.planner.device(claim, result.device)])


def met_everywhere(pods: Iterable[Pod], first: str, second: str) -> bool:
    """Whether in every one of these pods (at least one) a container names both claims."""
    found = [
        any({first, second} <= {use.claim for use in container.uses} for container in pod.containers) for pod in pods
    ]
    return bool(found) and all(found)


def _of(claim: Claim, edits: Mapping[Key, ContainerEdits]) -> dict[str, ContainerEdits]:
    return {result.device: edits[claim.ref.uid, result.device] for result in claim.results}
