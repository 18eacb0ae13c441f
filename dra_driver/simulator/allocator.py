"""The scheduler's search for devices: claims to `status.allocation`, or the reason why not. Pure, no I/O.

Depth first and first fit, as the structured allocator of Kubernetes 1.36 and later: claims in order,
requests in order, `firstAvailable` alternatives in order, devices in the order of their pools. Each
candidate is checked for being in use, then by selectors (class before request), counters, taints,
constraints. There is no scoring, and an unsatisfiable `count` of many is as slow as in the real thing.
Tests hold the choice, the refusals and what stops a pod against the scheduler's own allocator.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.simulator.pools import Candidate, DeviceId, Draws, Pool, gather, shortage
from dra_driver.simulator.requests import AllocationError, Demand, Need, decode

MAX_DEVICES = 32  # of one claim, a limit of the API
_SHOWN = 3  # devices named in a reason


class Unallocatable(CoresliceError):  # noqa: N818  # an outcome rather than a fault
    """Nothing on this node fits now; the text says what is short. Worth another try when devices go free."""


@dataclass(frozen=True)
class Pick:
    """A device chosen for a request of a claim."""

    demand: Demand
    need: Need
    candidate: Candidate


def held(claims: Iterable[Mapping[str, Any]]) -> dict[DeviceId, str]:
    """Devices that allocated claims keep from others, and by which; administrative access keeps nothing."""
    return {
        DeviceId(result["driver"], result["pool"], result["device"]): str(claim["metadata"]["name"])
        for claim in claims
        for result in results(claim)
        if not result.get("adminAccess")
    }


def results(claim: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The devices of an allocated claim, none if it isn't allocated."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    found: Sequence[Mapping[str, Any]] = (allocation.get("devices") or {}).get("results") or ()
    return found


def allocate(
    claims: Sequence[Mapping[str, Any]],
    *,
    slices: Iterable[Mapping[str, Any]],
    classes: Mapping[str, Mapping[str, Any]],
    in_use: Mapping[DeviceId, str],
    node: str,
) -> list[dict[str, Any]]:
    """The `status.allocation` of each claim on this node, in order. `in_use` gives the holders, for the reason.

    Raises:
        Unallocatable: nothing fits; the text begins as the scheduler's does and goes on with what is short.
        AllocationError: it can't be decided at all.
    """
    demands = [decode(claim, classes) for claim in claims]
    search = _Search(demands, gather(slices, node=node), in_use)
    if not search.run():
        raise Unallocatable(f"cannot allocate all claims: {'; '.join(search.explain())}")
    return [_allocation(demand, [pick for pick in search.picks if pick.demand is demand], node) for demand in demands]


@dataclass
class _Search:
    demands: Sequence[Demand]
    pools: Sequence[Pool]
    in_use: Mapping[DeviceId, str]
    picks: list[Pick] = field(default_factory=list)
    left: dict[tuple[str, str], dict[tuple[str, str], Decimal]] = field(default_factory=dict)  # by pool
    totals: dict[tuple[str, str], Draws] = field(default_factory=dict)  # by pool
    candidates: list[Candidate] = field(default_factory=list)
    every: dict[Need, list[Candidate]] = field(default_factory=dict)  # of requests for all: what they must have
    matching: dict[tuple[Need, DeviceId], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for pool in self.pools:
            key = (pool.driver, pool.name)
            self.left[key], self.totals[key] = pool.available(self.in_use), pool.totals
            self.candidates += () if pool.problem else pool.candidates

    def run(self) -> bool:
        """Whether a solution was found; it stands in `picks`, otherwise everything is as before."""
        for demand in self.demands:
            self._prepare(demand)
        return self._request(0, 0)

    def _prepare(self, demand: Demand) -> None:
        """What is known before any search: how many devices "all" are, and claims that ask for too many."""
        least = 0
        for request in demand.requests:
            self.every |= {need: self._all(need) for need in request if not need.count}
            least += min((need.count or len(self.every[need]) for need in request), default=0)
        if least > MAX_DEVICES:
            name = demand.claim["metadata"]["name"]
            raise AllocationError(f"claim {name}: asks for {least} devices, a claim can have {MAX_DEVICES}")

    def _request(self, claim: int, request: int) -> bool:
        if claim == len(self.demands):
            return True
        demand = self.demands[claim]
        if request == len(demand.requests):
            return self._request(claim + 1, 0)
        return any(self._alternative(claim, request, need) for need in demand.requests[request])

    def _alternative(self, claim: int, request: int, need: Need) -> bool:
        candidates = self.candidates if need.count else self.every[need]
        count = need.count or len(candidates)
        taken = sum(pick.demand is self.demands[claim] for pick in self.picks)
        if count == 0 or taken + count > MAX_DEVICES:
            return False
        return self._devices(claim, request, need, candidates, count)

    def _devices(self, claim: int, request: int, need: Need, candidates: Sequence[Candidate], count: int) -> bool:
        if count == 0:
            return self._request(claim, request + 1)
        for at, candidate in enumerate(candidates if need.count else candidates[:1]):
            if self._fits(self.demands[claim], need, candidate):
                self._take(Pick(self.demands[claim], need, candidate))
                if self._devices(claim, request, need, candidates[at + 1 :], count - 1):
                    return True
                self._release()
        return False

    def _fits(self, demand: Demand, need: Need, candidate: Candidate) -> bool:
        """Where all devices are asked for, one that breaks a constraint is a claim that can't be meant."""
        if self._taken(demand, need, candidate) or self._blocked(need, candidate):
            return False
        unequal = self._unequal(demand, need, candidate)
        if unequal and not need.count:
            raise AllocationError(f"request {need.result_name} asks for all; {candidate.id.device} {unequal}")
        return not unequal

    def _all(self, need: Need) -> list[Candidate]:
        for pool in self.pools:
            if pool.problem and pool.here:
                raise AllocationError(f"request {need.result_name} asks for all; pool {pool.name}: {pool.problem}")
        return [candidate for candidate in self.candidates if self._matches(need, candidate)]

    def _obstacle(self, demand: Demand, need: Need, candidate: Candidate) -> str | None:
        """Why a device can't be taken now, None if it can."""
        return (
            self._taken(demand, need, candidate)
            or self._blocked(need, candidate)
            or self._unequal(demand, need, candidate)
            or None
        )

    def _taken(self, demand: Demand, need: Need, candidate: Candidate) -> str:
        """By whom. Administrative access minds only what its own claim has."""
        if not need.admin_access and candidate.id in self.in_use:
            return f"in use by {self.in_use[candidate.id]}"
        mine = (pick for pick in self.picks if pick.demand is demand or not need.admin_access)
        return "in use by this pod" if any(pick.candidate.id == candidate.id for pick in mine) else ""

    def _blocked(self, need: Need, candidate: Candidate) -> str:
        if not self._matches(need, candidate):
            return "doesn't match"
        key = (candidate.id.driver, candidate.id.pool)
        return shortage(candidate.draws, self.left[key], self.totals[key]) or _tainted(need, candidate)

    def _matches(self, need: Need, candidate: Candidate) -> bool:
        key = (need, candidate.id)
        if key not in self.matching:
            self.matching[key] = need.matches(candidate)
        return self.matching[key]

    def _unequal(self, demand: Demand, need: Need, candidate: Candidate) -> str:
        for constraint in demand.constraints:
            if not need.covered_by(constraint.requests):
                continue
            value = constraint.value(candidate)
            others = [
                constraint.value(pick.candidate)
                for pick in self.picks
                if pick.demand is demand and pick.need.covered_by(constraint.requests)
            ]
            if value is None or any(other != value for other in others):
                return f"doesn't share {constraint.attribute}"
        return ""

    def _take(self, pick: Pick) -> None:
        self.picks.append(pick)
        self._charge(pick.candidate, 1)

    def _release(self) -> None:
        self._charge(self.picks.pop().candidate, -1)

    def _charge(self, candidate: Candidate, sign: int) -> None:
        left = self.left[candidate.id.driver, candidate.id.pool]
        for key, amount in candidate.draws.items():
            left[key] -= sign * amount

    def explain(self) -> Iterator[str]:
        """What is short, request by request, for this pod alone."""
        for demand in self.demands:
            for need in (need for request in demand.requests for need in request):
                name = demand.claim["metadata"]["name"]
                yield f"claim {name}, request {need.result_name}: {self._short(demand, need)}"
        yield from (f"pool {pool.name} is {pool.problem}" for pool in self.pools if pool.problem)

    def _means(self, need: Need, candidate: Candidate) -> bool:
        """For the reason only: the search never tried a selector on what is in use, so there it may still fail."""
        try:
            return self._matches(need, candidate)
        except AllocationError:
            return False

    def _short(self, demand: Demand, need: Need) -> str:
        meant = [candidate for candidate in self.candidates if self._means(need, candidate)]
        if not meant:
            return f"no device on this node matches class {need.class_name}"
        obstacles = [(each.id.device, self._obstacle(demand, need, each)) for each in meant]
        blocked = [f"{name}: {obstacle}" for name, obstacle in obstacles if obstacle]
        if len(meant) - len(blocked) >= (need.count or len(meant)):
            return "fits, but not together with the rest"
        more = [f"{len(blocked) - _SHOWN} more"] if len(blocked) > _SHOWN else []
        asked = f"{need.count or 'all'} of class {need.class_name} wanted, {len(meant) - len(blocked)} free"
        return f"{asked} ({'; '.join([*blocked[:_SHOWN], *more])})" if blocked else asked


def _tainted(need: Need, candidate: Candidate) -> str:
    taints = candidate.wire.get("taints") or ()
    return next((f"tainted {taint['key']}" for taint in taints if not need.tolerates(taint)), "")


def _allocation(demand: Demand, picks: Sequence[Pick], node: str) -> dict[str, Any]:
    devices: dict[str, Any] = {"results": [_result(pick) for pick in picks]}
    if config := [*_class_config(picks), *_claim_config(demand, picks)]:
        devices["config"] = [_for_all(entry, picks) for entry in config]
    if not any(pick.candidate.local for pick in picks):
        return {"devices": devices}
    match = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [match]}]}}


def _result(pick: Pick) -> dict[str, Any]:
    wire = {"request": pick.need.result_name, **pick.candidate.id._asdict()}
    if pick.need.admin_access:
        wire["adminAccess"] = True
    if pick.need.tolerations:
        wire["tolerations"] = list(pick.need.tolerations)
    return wire


def _for_all(config: dict[str, Any], picks: Sequence[Pick]) -> dict[str, Any]:
    """What concerns every request names none, as 1.37 writes it."""
    if all(pick.need.covered_by(config.get("requests") or ()) for pick in picks):
        return {key: value for key, value in config.items() if key != "requests"}
    return config


def _class_config(picks: Sequence[Pick]) -> list[dict[str, Any]]:
    """Each class once, with the requests that used it, as 1.36 and later write it."""
    requests: dict[str, list[str]] = {}
    needs = {pick.need: None for pick in picks}
    for need in needs:
        requests.setdefault(need.class_name, []).append(need.result_name)
    configs = {need.class_name: need.class_config for need in needs}
    return [
        {"source": "FromClass", "requests": requests[name], **config} for name in requests for config in configs[name]
    ]


def _claim_config(demand: Demand, picks: Sequence[Pick]) -> list[dict[str, Any]]:
    """The claim's own entries that mean at least one request or alternative that was chosen."""
    return [
        {"source": "FromClaim", **config}
        for config in demand.claim["spec"]["devices"].get("config") or ()
        if any(pick.need.covered_by(config.get("requests") or ()) for pick in picks)
    ]
