"""The scheduler of a small cluster: pods to nodes, with devices for their claims, or with the reason why not.

`step` looks at every pod without a node, oldest first, and is idempotent: what it wrote once it doesn't
write again, so it can be called on any change in the store. As in the real one, allocation, finalizer,
`reservedFor` and the pod's status are written before the pod is bound. CPU, memory, affinity and preemption
are not modelled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.simulator import extended_resources, quantity
from dra_driver.simulator.allocator import Unallocatable, allocate, held
from dra_driver.simulator.apiserver.store import Change, Store
from dra_driver.simulator.objects import (
    CLAIM_FINALIZER,
    Obj,
    claim_names,
    find,
    owner_uid,
    set_condition,
    set_status,
)
from dra_driver.simulator.requests import AllocationError


class Unschedulable(CoresliceError):  # noqa: N818  # an outcome rather than a fault
    """The pod waits; the text is what its PodScheduled condition says."""


@dataclass(frozen=True)
class Fit:
    """A node that takes the pod, with everything that has to be written for it."""

    node: str
    allocations: Sequence[tuple[Obj, Obj]]  # claim and its new status.allocation
    extended: extended_resources.Plan


class Scheduler:
    """Not thread-safe: one thread calls `step`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._in_use = held(())
        self._arrived: dict[str, int] = {}  # pod UID -> version; the API's own times are whole seconds
        store.observers.append(self._note)

    def _note(self, change: Change) -> None:
        if (change.plural, change.type) == ("pods", "ADDED"):
            self._arrived[change.obj["metadata"]["uid"]] = change.version

    def step(self) -> None:
        """Bind every pod that fits now, and say of the others why they wait."""
        # One view for all: a device that goes free meanwhile must not go to a pod further behind.
        self._in_use = held(self._store.list("resourceclaims"))
        for pod in self._queue():
            try:
                self._schedule(pod)
            except Unschedulable as reason:
                self._wait(pod, "Unschedulable", str(reason))
            except AllocationError as error:
                self._wait(pod, "SchedulerError", str(error))

    def _queue(self) -> list[Obj]:
        waiting = [
            pod
            for pod in self._store.list("pods")
            if not (pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"))
        ]
        return sorted(waiting, key=lambda pod: self._arrived.get(pod["metadata"]["uid"], 0))

    def _wait(self, pod: Obj, reason: str, message: str) -> None:
        set_condition(self._store, pod, "PodScheduled", "False", reason=reason, message=message)

    def _schedule(self, pod: Obj) -> None:
        claims = self._claims(pod)
        nodes = self._store.list("nodes")
        reasons: list[str] = []
        for node in nodes:
            try:
                fit = self._fit(pod, claims, node)
            except Unschedulable as reason:
                reasons.append(str(reason))
            else:
                self._bind(pod, claims, fit)
                return
        counted = [f"{reasons.count(reason)} {reason}" for reason in dict.fromkeys(reasons)]
        raise Unschedulable(f"0/{len(nodes)} nodes are available: {', '.join(counted) or 'no nodes'}.")

    def _claims(self, pod: Obj) -> list[Obj]:
        """The pod's claims, all of which have to be there."""
        namespace = pod["metadata"]["namespace"]
        found = []
        for entry, name in claim_names(pod).items():
            claim = find(self._store, "resourceclaims", name, namespace) if name else None
            if claim is None:
                missing = f'resourceclaim "{name}" not found' if name else _unmade(pod, entry)
                raise Unschedulable(missing)
            if claim["metadata"].get("deletionTimestamp"):
                raise Unschedulable(f'resourceclaim "{name}" is being deleted')
            if owner_uid(claim) not in (None, pod["metadata"]["uid"]):
                raise Unschedulable(f'resourceclaim "{name}" was not created for this pod')
            found.append(claim)
        return found

    def _fit(self, pod: Obj, claims: Sequence[Obj], node: Obj) -> Fit:
        name = node["metadata"]["name"]
        classes = {each["metadata"]["name"]: each for each in self._store.list("deviceclasses")}
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        extended = extended_resources.plan(pod, allocatable=allocatable, classes=classes.values())
        self._check_classic(extended.classic, allocatable, name)
        if any(not _usable_on(claim, name) for claim in claims):
            raise Unschedulable("cannot use the resourceclaims that are allocated already on this node")
        pending = [claim for claim in claims if not _allocation(claim)]
        if extended.requests:
            special = extended_resources.special_claim(pod, extended.requests)
            special["metadata"]["name"] = extended_resources.IN_MEMORY
            pending.append(special)
        try:
            allocations = allocate(
                pending,
                slices=self._store.list("resourceslices"),
                classes=classes,
                in_use=self._in_use,
                node=name,
            )
        except Unallocatable as short:
            raise Unschedulable(str(short)) from short
        return Fit(name, list(zip(pending, allocations, strict=True)), extended)

    def _check_classic(self, wanted: Mapping[str, int], allocatable: Mapping[str, Any], node: str) -> None:
        """A device plugin's resource: one ledger for each name, and no name knows of another."""
        there = [pod for pod in self._store.list("pods", fields={"spec.nodeName": node}) if not _ended(pod)]
        for name, amount in wanted.items():
            used = sum(_classic(pod).get(name, 0) for pod in there)
            if amount and used + amount > quantity.parse(allocatable.get(name, 0)):
                raise Unschedulable(f"Insufficient {name}")

    def _bind(self, pod: Obj, claims: Sequence[Obj], fit: Fit) -> None:
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        allocations = {id(claim): allocation for claim, allocation in fit.allocations}
        for claim in claims:
            self._reserve(claim, allocations.get(id(claim)), user)
        if fit.extended.requests:
            claim, allocation = fit.allocations[-1]
            self._write_special(pod, claim, allocation, user, fit.extended.mappings)
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        bound = self._store.patch("pods", name, {"spec": {"nodeName": fit.node}}, namespace=namespace)
        set_condition(self._store, bound, "PodScheduled", "True")

    def _reserve(self, claim: Obj, allocation: Obj | None, user: Obj) -> None:
        """Write what is new; a claim that is allocated already only gets another user."""
        finalizers = claim["metadata"].get("finalizers") or []
        if allocation is not None and CLAIM_FINALIZER not in finalizers:
            meta = {**claim["metadata"], "finalizers": [*finalizers, CLAIM_FINALIZER]}
            claim = self._store.update("resourceclaims", {**claim, "metadata": meta})
        reserved = (claim.get("status") or {}).get("reservedFor") or []
        users = reserved if user in reserved else [*reserved, user]
        change = {"reservedFor": users} | ({"allocation": allocation} if allocation is not None else {})
        self._in_use |= held([set_status(self._store, "resourceclaims", claim, change)])

    def _write_special(self, pod: Obj, claim: Obj, allocation: Obj, user: Obj, mappings: Sequence[Obj]) -> None:
        """The claim for extended resources, which until now was in memory only."""
        meta = {key: value for key, value in claim["metadata"].items() if key != "name"}
        made = self._store.create("resourceclaims", {**claim, "metadata": meta}, namespace=pod["metadata"]["namespace"])
        self._reserve(made, allocation, user)
        name = made["metadata"]["name"]
        status = {"resourceClaimName": name, "requestMappings": list(mappings)}
        set_status(self._store, "pods", pod, {"extendedResourceClaimStatus": status})


def _unmade(pod: Mapping[str, Any], entry: str) -> str:
    (wanted,) = (each for each in pod["spec"]["resourceClaims"] if each["name"] == entry)
    template = wanted.get("resourceClaimTemplateName", "")
    return f'waiting for a resourceclaim to be created from resourceclaimtemplate "{template}"'


def _ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _classic(pod: Mapping[str, Any]) -> dict[str, int]:
    """What a bound pod takes from device plugins: all of its extended resources, unless a claim serves them."""
    served = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    by_claim = {mapping["resourceName"] for mapping in served.get("requestMappings") or ()}
    amounts = extended_resources.classic_amounts(pod)
    return {name: amount for name, amount in amounts.items() if name not in by_claim}


def _allocation(claim: Mapping[str, Any]) -> Mapping[str, Any] | None:
    allocation: Mapping[str, Any] | None = (claim.get("status") or {}).get("allocation")
    return allocation


def _usable_on(claim: Mapping[str, Any], node: str) -> bool:
    """Whether an allocated claim may be used on the node; one without a selector may be used anywhere."""
    selector = (_allocation(claim) or {}).get("nodeSelector")
    if not selector:
        return True
    return any(
        match["key"] == "metadata.name" and node in match["values"]
        for term in selector["nodeSelectorTerms"]
        for match in term.get("matchFields") or ()
    )
