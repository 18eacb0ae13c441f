"""Small pieces of API objects that the simulated control plane reads and writes, each spelled once."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dra_driver.simulator.apiserver.status import Refusal
from dra_driver.simulator.apiserver.store import Store

Obj = dict[str, Any]
POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
EXTENDED_RESOURCE_CLAIM = "resource.kubernetes.io/extended-resource-claim"
CLAIM_FINALIZER = "resource.kubernetes.io/delete-protection"
_NOT_FOUND = 404


def find(store: Store, plural: str, name: str, namespace: str = "") -> Obj | None:
    """The object, or None where there is none."""
    try:
        return store.get(plural, name, namespace)
    except Refusal as refusal:
        if refusal.code != _NOT_FOUND:
            raise
        return None


def owned_by(pod: Mapping[str, Any]) -> Obj:
    """A controller reference to a pod."""
    meta = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_uid(claim: Mapping[str, Any]) -> str | None:
    """UID of the pod that controls a claim, None for a user-made one."""
    references = claim["metadata"].get("ownerReferences") or ()
    return next((ref["uid"] for ref in references if ref.get("controller") and ref["kind"] == "Pod"), None)


def claim_names(pod: Mapping[str, Any]) -> dict[str, str | None]:
    """Name in the pod spec -> name of the ResourceClaim; None while a template's claim isn't made yet."""
    made = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    return {
        entry["name"]: entry.get("resourceClaimName") or made.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims") or ()
    }


def containers(pod: Mapping[str, Any]) -> list[Obj]:
    """Init containers, then the others: the order in which containers are counted."""
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def set_status(store: Store, plural: str, obj: Mapping[str, Any], status: Mapping[str, Any]) -> Obj:
    """Merge these fields into the object's status; null removes one."""
    meta = obj["metadata"]
    return store.patch(
        plural,
        meta["name"],
        {"status": dict(status)},
        namespace=meta.get("namespace", ""),
        subresource="status",
    )


def condition(pod: Mapping[str, Any], kind: str) -> Obj | None:
    """A pod's condition of that type."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == kind), None)


def set_condition(store: Store, pod: Mapping[str, Any], kind: str, status: str, **text: str) -> None:
    """Write a pod condition; nothing happens when it says the same already, so that a loop comes to rest.

    `text` is `reason` and `message`.
    """
    old = condition(pod, kind)
    new = {"type": kind, "status": status, **text}
    if old is not None and {**old, **new} == old:
        return
    flipped = old is None or old["status"] != status
    new["lastTransitionTime"] = now() if old is None or flipped else old["lastTransitionTime"]
    others = [entry for entry in (pod.get("status") or {}).get("conditions") or () if entry["type"] != kind]
    set_status(store, "pods", pod, {"conditions": [*others, new]})


def warn(store: Store, pod: Mapping[str, Any], reason: str, message: str) -> None:
    """A Warning Event on a pod."""
    meta = pod["metadata"]
    store.create(
        "events",
        {
            "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "type": "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": now(),
        },
        namespace=meta["namespace"],
    )


def now() -> str:
    """The time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
