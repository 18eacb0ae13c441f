"""plan: which claims meet in a container, and so which grant each device carries. Pure.

A claim that a pod owns is planned with the pod's other own claims; a user-made claim stands alone, so that nobody sees
through it what belongs to somebody else. Claims that meet in a container are one unit: all of it is prepared, or none.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from cdi.models import ContainerEdits
from dra_driver.claims import grant
from dra_driver.claims.allocation import Claim, Result
from dra_driver.claims.hardware import Snapshot
from dra_driver.claims.pods import Container, Pod
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.inventory.devices import Device, lnc_of

Key = tuple[str, str]  # claim UID, device name


@dataclass(frozen=True)
class Planned:
    """One claim's devices with their complete edits, the UIDs of all claims and the hardware it was planned with."""

    claim: Claim
    edits: Mapping[str, ContainerEdits]
    unit: frozenset[str]
    snapshot: Snapshot

    def device(self, result: Result) -> Device:
        """The device of one of the claim's results."""
        return self.snapshot.devices[result.device]


@dataclass(frozen=True)
class Planner:
    """What every plan needs: the hardware, all of one moment."""

    snapshot: Snapshot
    visible_cores_on_chips: bool = False

    def edits(self, claims: Iterable[tuple[Claim, Result]]) -> ContainerEdits:
        """The complete edits of a container that gets these results; at least one.

        Raises:
            Refusal: unknown device, or a gap.
        """
        own: list[Device] = []
        watched: list[Device] = []
        for claim, result in claims:
            (watched if result.admin else own).append(self._device(claim, result.device))
        machine, visible = self.snapshot.machine, self.visible_cores_on_chips
        return grant.edits(own, machine, watched=watched, visible_cores_on_chips=visible)

    def alone(self, claim: Claim) -> Planned:
        """A claim whose devices all go to whoever names it; one without devices of ours has no edits.

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
        same = self.edits((claim, result) for result in claim.results) if names else ContainerEdits()
        return Planned(claim, dict.fromkeys(names, same), frozenset({claim.ref.uid}), self.snapshot)

    def _device(self, claim: Claim, name: str) -> Device:
        found = self.snapshot.devices.get(name)
        if found is None:
            self._refuse_other_lnc(claim, name)
            raise Refusal(
                Reason.UNKNOWN_DEVICE,
                f"claim {claim.ref} holds device {name}, which this node doesn't have (any more)",
            )
        return found

    def _refuse_other_lnc(self, claim: Claim, name: str) -> None:
        """A core of another LNC is another piece of the chip, whatever its number."""
        published, here = lnc_of(name), self.snapshot.lnc
        if published and published != here and self.snapshot.machine.max_lnc > 1:
            raise Refusal(
                Reason.OTHER_LNC,
                f"claim {claim.ref} holds device {name} of LNC {published}, but this node is at LNC {here} now: let it"
                " be allocated anew (a claim that a pod doesn't own has to be made again too), or set the node's LNC"
                " back",
            )


@dataclass
class PodPlan:
    """The plan of one pod's own claims, by name, as are `failed` ones and the requests of `apart`.

    Claims `apart` are planned without this pod, since others may use them: user-made ones, those of another pod, and
    one of this pod that another pod has brought in before.
    """

    planner: Planner
    pod: Pod
    own: Mapping[str, Claim]
    failed: Mapping[str, Refusal] = field(default_factory=dict)
    apart: Mapping[str, AbstractSet[str]] = field(default_factory=dict)

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
            met = [unit for unit in units if unit & container.claims]
            if met:
                units = [unit for unit in units if unit not in met] + [frozenset().union(*met)]
        return units

    def _unit(self, names: frozenset[str]) -> dict[str, Planned]:
        if failed := sorted(names & self.failed.keys()):
            raise sibling(failed[0], self.failed[failed[0]])
        claims = [self.own[name] for name in sorted(names)]
        edits: dict[Key, ContainerEdits] = {}
        for container in self.pod.containers:
            granted = _granted(container, claims)
            if granted:
                self._refuse_apart(container, granted[0][0])
                self._add(edits, granted, container)
        for claim in claims:
            self._add_unused(edits, claim)
        unit = frozenset(claim.ref.uid for claim in claims)
        return {claim.ref.name: self._planned(claim, edits, unit) for claim in claims}

    def _planned(self, claim: Claim, edits: Mapping[Key, ContainerEdits], unit: frozenset[str]) -> Planned:
        own = {result.device: edits[claim.ref.uid, result.device] for result in claim.results}
        return Planned(claim, own, unit, self.planner.snapshot)

    def _refuse_apart(self, container: Container, own: Claim) -> None:
        met = sorted(name for name, requests in self.apart.items() if container.gets(name, requests))
        if met:
            raise Refusal(
                Reason.MIXED_WITH_SHARED,
                f"container {container.name} of pod {self.pod.ref.name} combines claim {own.ref} with claim {met[0]},"
                " which others may use too: such a claim stands alone; use it in a container of its own, or take"
                " both from templates of this pod",
            )

    def _add(
        self, edits: dict[Key, ContainerEdits], granted: Iterable[tuple[Claim, Result]], container: Container
    ) -> None:
        complete = self.planner.edits(granted)
        for claim, result in granted:
            if edits.setdefault((claim.ref.uid, result.device), complete) != complete:
                raise Refusal(
                    Reason.DIFFERENT_GRANTS,
                    f"device {result.device} of claim {claim.ref} goes to container {container.name} of pod"
                    f" {self.pod.ref.name} together with other devices than in another container of it: give each"
                    " container claims of its own",
                )

    def _add_unused(self, edits: dict[Key, ContainerEdits], claim: Claim) -> None:
        """A device that no container names still needs edits: its own."""
        for result in claim.results:
            key = (claim.ref.uid, result.device)
            if key not in edits:
                edits[key] = self.planner.edits([(claim, result)])


def sibling(name: str, refusal: Refusal) -> Refusal:
    """What a claim is told when that one, which it may meet in a container, can't be prepared."""
    reason = refusal.reason if refusal.reason.retryable else Reason.SIBLING
    return Refusal(reason, f"claim {name} of the same pod can't be prepared: {refusal.detail}")


def met_everywhere(pods: Iterable[Pod], first: str, second: str) -> bool:
    """Whether in every one of these pods (at least one) a container names both claims."""
    found = [any({first, second} <= container.claims for container in pod.containers) for pod in pods]
    return bool(found) and all(found)


def _granted(container: Container, claims: Iterable[Claim]) -> list[tuple[Claim, Result]]:
    """The results of these claims that the container gets."""
    return [
        (claim, result)
        for claim in claims
        for result in claim.results
        if result.base_request in container.gets(claim.ref.name, claim.requests)
    ]
