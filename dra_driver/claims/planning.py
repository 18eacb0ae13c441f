"""decode and plan with the reads they need: the claims, and the pod only where the pod decides.

A call is one pod. An owned claim in it names the pod; with user-made claims only, it may be any that has them reserved.
A call shows only claims that aren't prepared yet, so a user-made record whose claim, read again now, has the pod in
`reservedFor` counts as well. Records of claims that another pod owns are never read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dra_driver.claims.allocation import Claim, PodRef, decode
from dra_driver.claims.pods import Pod, read_pod
from dra_driver.claims.records import Record
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.sharing import Planned, Planner, PodPlan, met_everywhere
from dra_driver.cluster.errors import ApiError, NotFound
from dra_driver.kubelet.types import ClaimRef

Outcome = Planned | Refusal


class Reader(Protocol):
    """The API as far as Prepare reads it; raw v1 objects, errors are `ApiError`."""

    def get_claim(self, namespace: str, name: str) -> dict[str, Any]:
        """A ResourceClaim."""

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        """A Pod."""


@dataclass(frozen=True)
class Planning:
    """Reads and plans the claims of one call."""

    reader: Reader
    driver: str
    pool: str
    read_pods: bool = True  # off: the right to read pods isn't given

    def plan(self, refs: Sequence[ClaimRef], planner: Planner, user_made: Sequence[Record]) -> dict[str, Outcome]:
        """Every claim of the call → its plan, or why it has none; by UID."""
        claims: dict[str, Claim] = {}
        refused: dict[str, Refusal] = {}
        for ref in refs:
            try:
                claims[ref.uid] = self._claim(ref)
            except Refusal as refusal:
                refused[ref.uid] = refusal
        call = _Call(self, planner, refs, claims, refused, user_made)
        return {**refused, **call.own(), **call.shared()}

    def _claim(self, ref: ClaimRef) -> Claim:
        try:
            raw = self.reader.get_claim(ref.namespace, ref.name)
        except NotFound as error:
            raise Refusal(Reason.CLAIM_REPLACED, f"claim {ref} isn't in the API any more") from error
        except ApiError as error:
            raise Refusal(Reason.CLAIM_UNREADABLE, f"claim {ref} can't be read: {error}") from error
        return decode(raw, asked=ref, driver=self.driver, pool=self.pool)

    def users_now(self, record: Record) -> frozenset[str]:
        """UIDs of the pods that have a recorded claim reserved now.

        Raises:
            Refusal: the API doesn't answer.
        """
        try:
            claim = self._claim(record.claim)
        except Refusal as refusal:
            if refusal.reason.retryable:
                raise
            return frozenset()
        return frozenset(user.uid for user in claim.users)

    def pod(self, ref: PodRef, claim: ClaimRef) -> Pod:
        """The pod that decides about a claim.

        Raises:
            Refusal: it can't be read, or isn't that pod any more.
        """
        if not self.read_pods:
            raise Refusal(
                Reason.PODS_UNREADABLE,
                f"claim {claim} of pod {ref.name}: which container uses what stands in the pod alone, and the"
                " driver may not read pods here; use one claim with one request, or allow it (rbac.readPods)",
            )
        try:
            raw = self.reader.get_pod(claim.namespace, ref.name)
        except NotFound as error:
            raise Refusal(Reason.POD_REPLACED, f"pod {ref.name} of claim {claim} is gone") from error
        except ApiError as error:
            text = f"pod {ref.name} of claim {claim} can't be read: {error}"
            raise Refusal(Reason.POD_UNREADABLE, text) from error
        return read_pod(raw, expected=ref)


@dataclass(frozen=True)
class _Call:
    """The decoded claims of one call."""

    planning: Planning
    planner: Planner
    refs: Sequence[ClaimRef]
    claims: Mapping[str, Claim]
    refused: Mapping[str, Refusal]
    user_made: Sequence[Record]

    def own(self) -> dict[str, Outcome]:
        """Plans of the claims that pods own. A call is one pod; a second owner is planned apart."""
        outcomes: dict[str, Outcome] = {}
        for owner in {claim.owner for claim in self.claims.values() if claim.owner}:
            own = [claim for claim in self.claims.values() if claim.owner == owner]
            try:
                outcomes.update(self._of_pod(owner, own))
            except Refusal as refusal:
                outcomes.update({claim.ref.uid: refusal for claim in own})
        return outcomes

    def shared(self) -> dict[str, Outcome]:
        """Plans of the user-made claims: each alone."""
        outcomes: dict[str, Outcome] = {}
        for claim in self._shared_claims():
            try:
                self._refuse_together(claim)
                outcomes[claim.ref.uid] = self.planner.alone(claim)
            except Refusal as refusal:
                outcomes[claim.ref.uid] = refusal
        return outcomes

    def _shared_claims(self) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.owner is None]

    def _of_pod(self, owner: PodRef, own: Sequence[Claim]) -> dict[str, Outcome]:
        shared = self._shared_with(owner, own[0].ref.namespace)
        usual = len(own) == 1 and len(own[0].requests) <= 1 and not shared and not self.refused
        if usual:
            return {own[0].ref.uid: self.planner.alone(own[0])}
        pod = self.planning.pod(owner, own[0].ref)
        failed = {ref.name: self.refused[ref.uid] for ref in self.refs if ref.uid in self.refused}
        plan = PodPlan(self.planner, pod, {claim.ref.name: claim for claim in own}, failed, shared)
        uids = {claim.ref.name: claim.ref.uid for claim in own}
        return {uids[name]: outcome for name, outcome in plan.outcome().items()}

    def _shared_with(self, owner: PodRef, namespace: str) -> frozenset[str]:
        """Names of user-made claims of ours that the pod uses, prepared before or in this call."""
        here = {claim.ref.name for claim in self._shared_claims() if claim.used_by(owner.uid)}
        before = {
            record.claim.name for record in self._recorded(namespace) if owner.uid in self.planning.users_now(record)
        }
        return frozenset(here | before)

    def _recorded(self, namespace: str) -> list[Record]:
        return [
            record
            for record in self.user_made
            if record.claim.namespace == namespace and record.claim.uid not in self.claims
        ]

    def _refuse_together(self, claim: Claim) -> None:
        """Two user-made claims in one container: refused where every pod that may be meant combines them."""
        others = {other.ref.name: {user.uid for user in other.users} for other in self._shared_claims()}
        recorded = self._recorded(claim.ref.namespace)
        others |= {record.claim.name: set(self.planning.users_now(record)) for record in recorded}
        others.pop(claim.ref.name, None)
        candidates = self._candidates(claim)
        for name, users in others.items():
            if not candidates or not {pod.uid for pod in candidates} <= users or not self.planning.read_pods:
                continue
            pods = [self.planning.pod(candidate, claim.ref) for candidate in candidates]
            if met_everywhere(pods, claim.ref.name, name):
                raise Refusal(
                    Reason.SHARED_TOGETHER,
                    f"claim {claim.ref} and claim {name} are both user-made and meet in a container of pod"
                    f" {pods[0].ref.name}: each stands alone, so one container can't have both",
                )

    def _candidates(self, claim: Claim) -> list[PodRef]:
        """Pods that this call may be for."""
        owners = {other.owner for other in self.claims.values() if other.owner}
        if owners:
            return [owner for owner in owners if claim.used_by(owner.uid)]
        return [user for user in claim.users if all(c.used_by(user.uid) for c in self._shared_claims())]


def units(outcomes: Mapping[str, Outcome]) -> list[list[Planned]]:
    """Planned claims, those that were planned together in one list."""
    groups: dict[frozenset[str], list[Planned]] = {}
    for outcome in outcomes.values():
        if isinstance(outcome, Planned):
            groups.setdefault(outcome.unit, []).append(outcome)
    return list(groups.values())
