"""decode and plan with the reads they need: the claims, and the pod only where the pod decides.

A call is one pod. An owned claim in it names the pod; with user-made claims only, it may be any that has them reserved.
A call shows only claims that aren't prepared yet, so a user-made record whose claim, read again now, has the pod in
`reservedFor` counts as well. Records of claims that another pod owns are never read.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from dra_driver.claims.allocation import Claim, decode, reserved_pods
from dra_driver.claims.pods import Pod, read_pod
from dra_driver.claims.records import Record
from dra_driver.claims.refusals import PodRef, Reason, Refusal
from dra_driver.claims.sharing import Planned, Planner, PodPlan, met_everywhere, sibling
from dra_driver.cluster.errors import ApiError, NotFound, Unavailable
from dra_driver.kubelet.types import ClaimRef

Outcome = Planned | Refusal


class Reader(Protocol):
    """The API as far as Prepare reads it; raw v1 objects, errors are `ApiError`."""

    def get_claim(self, namespace: str, name: str) -> dict[str, Any]:
        """A ResourceClaim."""

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        """A Pod."""


class _Impatient:
    """Asks no more once there was no answer: a timeout for each of many claims would outlast the kubelet's call."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._away: Unavailable | None = None

    def get_claim(self, namespace: str, name: str) -> dict[str, Any]:
        return self._asked(self._reader.get_claim, namespace, name)

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        return self._asked(self._reader.get_pod, namespace, name)

    def _asked(self, read: Callable[[str, str], dict[str, Any]], namespace: str, name: str) -> dict[str, Any]:
        if self._away:
            raise self._away
        try:
            return read(namespace, name)
        except Unavailable as error:
            self._away = error
            raise


@dataclass(frozen=True)
class Planning:
    """Reads and plans the claims of one call."""

    reader: Reader
    driver: str
    pool: str
    read_pods: bool = True  # off: the right to read pods isn't given

    def plan(self, refs: Sequence[ClaimRef], planner: Planner, records: Sequence[Record]) -> dict[str, Outcome]:
        """Every claim of the call → its plan, or why it has none; by UID."""
        reads = replace(self, reader=_Impatient(self.reader))
        claims: dict[str, Claim] = {}
        refused: dict[str, Refusal] = {}
        for ref in refs:
            try:
                raw = reads.raw_claim(ref)
                claims[ref.uid] = decode(raw, asked=ref, driver=self.driver, pool=self.pool)
            except Refusal as refusal:
                refused[ref.uid] = refusal
        failed = {ref.name: refused[ref.uid] for ref in refs if ref.uid in refused}
        call = _Call(reads, planner, claims, failed, records)
        outcomes = {**refused, **call.own(), **call.shared()}
        return {uid: _told(outcome, claims.get(uid)) for uid, outcome in outcomes.items()}

    def users_now(self, claim: ClaimRef) -> frozenset[str]:
        """UIDs of the pods that have a recorded claim reserved now.

        Raises:
            Refusal: that can't be told.
        """
        try:
            return reserved_pods(self.raw_claim(claim), asked=claim)
        except Refusal as refusal:
            if refusal.reason is Reason.CLAIM_REPLACED:
                return frozenset()
            raise

    def raw_claim(self, claim: ClaimRef) -> dict[str, Any]:
        """The claim of that name, whatever its UID.

        Raises:
            Refusal: it isn't there, or can't be read.
        """
        try:
            return self.reader.get_claim(claim.namespace, claim.name)
        except NotFound as error:
            raise Refusal(Reason.CLAIM_REPLACED, f"claim {claim} isn't in the API any more") from error
        except ApiError as error:
            raise Refusal(Reason.CLAIM_UNREADABLE, f"claim {claim} can't be read: {error}") from error

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
    """The decoded claims of one call, by UID; those that couldn't be, by name; what was read is read once."""

    planning: Planning
    planner: Planner
    claims: Mapping[str, Claim]
    failed: Mapping[str, Refusal]
    records: Sequence[Record]
    _users: dict[str, frozenset[str]] = field(default_factory=dict)
    _pods: dict[str, Pod] = field(default_factory=dict)

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
        for claim in self._user_made():
            try:
                self._refuse_together(claim)
                outcomes[claim.ref.uid] = self.planner.alone(claim)
            except Refusal as refusal:
                outcomes[claim.ref.uid] = refusal
        return outcomes

    def _user_made(self) -> list[Claim]:
        return [claim for claim in self.claims.values() if claim.owner is None]

    def _of_pod(self, owner: PodRef, own: Sequence[Claim]) -> dict[str, Outcome]:
        apart = self._apart(owner, own[0].ref.namespace)
        usual = len(own) == 1 and len(own[0].requests) <= 1 and not apart and not self.failed
        if usual:
            return {own[0].ref.uid: self.planner.alone(own[0])}
        if self.failed and not self.planning.read_pods:
            raise sibling(*next(iter(self.failed.items())))
        pod = self._pod(owner, own[0].ref)
        plan = PodPlan(self.planner, pod, {claim.ref.name: claim for claim in own}, self.failed, apart)
        uids = {claim.ref.name: claim.ref.uid for claim in own}
        return {uids[name]: outcome for name, outcome in plan.outcome().items()}

    def _apart(self, owner: PodRef, namespace: str) -> dict[str, AbstractSet[str]]:
        """Claims that the pod may use and that aren't planned with it: name → requests of ours.

        Those of this call that it doesn't own, user-made records that it has reserved, and records of its own that this
        call doesn't name: another pod has used them first.
        """
        apart: dict[str, AbstractSet[str]] = {
            claim.ref.name: claim.requests
            for claim in self.claims.values()
            if claim.owner != owner and claim.used_by(owner.uid)
        }
        for record in self._recorded(namespace):
            if record.owner == owner or (record.owner is None and owner.uid in self._users_now(record)):
                apart[record.claim.name] = record.requests
        return apart

    def _recorded(self, namespace: str) -> list[Record]:
        """Records of claims that this call doesn't name."""
        here = (record for record in self.records if record.claim.namespace == namespace)
        return [record for record in here if record.claim.uid not in self.claims]

    def _users_now(self, record: Record) -> frozenset[str]:
        uid = record.claim.uid
        if uid not in self._users:
            self._users[uid] = self.planning.users_now(record.claim)
        return self._users[uid]

    def _pod(self, ref: PodRef, claim: ClaimRef) -> Pod:
        if ref.uid not in self._pods:
            self._pods[ref.uid] = self.planning.pod(ref, claim)
        return self._pods[ref.uid]

    def _refuse_together(self, claim: Claim) -> None:
        """Two user-made claims in one container: refused where every pod that may be meant combines them."""
        if not self.planning.read_pods:
            return
        candidates = self._candidates(claim)
        for name, users in self._other_users(claim).items():
            if not {candidate.uid for candidate in candidates} <= users:
                continue
            pods = self._existing(candidates, claim)
            if met_everywhere(pods, claim.ref.name, name):
                raise Refusal(
                    Reason.SHARED_TOGETHER,
                    f"claim {claim.ref} and claim {name} are both user-made and meet in a container of pod"
                    f" {pods[0].ref.name}: each stands alone, so one container can't have both",
                )

    def _other_users(self, claim: Claim) -> dict[str, frozenset[str]]:
        """The other user-made claims: name → UIDs of their pods."""
        here = {one.ref.name: frozenset(user.uid for user in one.users) for one in self._user_made() if one != claim}
        recorded = [record for record in self._recorded(claim.ref.namespace) if record.owner is None]
        return here | {record.claim.name: self._users_now(record) for record in recorded}

    def _candidates(self, claim: Claim) -> list[PodRef]:
        """Pods that this call may be for."""
        owners = {other.owner for other in self.claims.values() if other.owner}
        if owners:
            return [owner for owner in owners if claim.used_by(owner.uid)]
        return [user for user in claim.users if all(one.used_by(user.uid) for one in self._user_made())]

    def _existing(self, candidates: Sequence[PodRef], claim: Claim) -> list[Pod]:
        """Those that are there: a pod may be gone, and its reservation not yet."""
        pods = []
        for candidate in candidates:
            try:
                pods.append(self._pod(candidate, claim.ref))
            except Refusal as refusal:
                if refusal.reason is not Reason.POD_REPLACED:
                    raise
        return pods


def units(outcomes: Mapping[str, Outcome]) -> list[list[Planned]]:
    """Planned claims, those that were planned together in one list."""
    groups: dict[frozenset[str], list[Planned]] = {}
    for outcome in outcomes.values():
        if isinstance(outcome, Planned):
            groups.setdefault(outcome.unit, []).append(outcome)
    return list(groups.values())


def _told(outcome: Outcome, claim: Claim | None) -> Outcome:
    return outcome.about(claim.pods) if claim and isinstance(outcome, Refusal) else outcome
