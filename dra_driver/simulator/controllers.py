"""What the controller manager does for claims: make them from templates, and take them back.

Each function looks at the whole store, does what is due and comes to rest: called again without a change it
writes nothing. A user-made claim is deallocated when its last pod is gone, a generated one goes with its pod.
"""

from collections.abc import Mapping
from typing import Any

from dra_driver.simulator.apiserver.store import Store
from dra_driver.simulator.objects import CLAIM_FINALIZER, POD_CLAIM_NAME, Obj, find, owned_by, set_status


def make_claims(store: Store) -> None:
    """A claim for every template that a pod names; its status tells the pod under which name."""
    for pod in store.list("pods"):
        if not pod["metadata"].get("deletionTimestamp"):
            _claims_of(store, pod)


def _claims_of(store: Store, pod: Obj) -> None:
    known = list((pod.get("status") or {}).get("resourceClaimStatuses") or ())
    made = []
    for entry in pod["spec"].get("resourceClaims") or ():
        if "resourceClaimTemplateName" not in entry or any(one["name"] == entry["name"] for one in known):
            continue
        namespace = pod["metadata"]["namespace"]
        template = find(store, "resourceclaimtemplates", entry["resourceClaimTemplateName"], namespace)
        if template is not None:
            claim = store.create("resourceclaims", _claim(pod, entry["name"], template), namespace=namespace)
            made.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
    if made:
        set_status(store, "pods", pod, {"resourceClaimStatuses": [*known, *made]})


def _claim(pod: Mapping[str, Any], entry: str, template: Mapping[str, Any]) -> Obj:
    wanted = template["spec"].get("metadata") or {}
    return {
        "metadata": {
            "generateName": f"{pod['metadata']['name']}-{entry}-",
            "labels": wanted.get("labels") or {},
            "annotations": {**(wanted.get("annotations") or {}), POD_CLAIM_NAME: entry},
            "ownerReferences": [owned_by(pod)],
        },
        "spec": template["spec"]["spec"],
    }


def release_claims(store: Store) -> None:
    """Take claims back from pods that are gone, and let go of claims that are being deleted."""
    alive = {pod["metadata"]["uid"] for pod in store.list("pods") if not _ended(pod)}
    for claim in store.list("resourceclaims"):
        _release(store, claim, alive)


def _ended(pod: Mapping[str, Any]) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _release(store: Store, claim: Obj, alive: set[str]) -> None:
    status = claim.get("status") or {}
    reserved = status.get("reservedFor") or []
    kept = [user for user in reserved if user.get("resource") != "pods" or user["uid"] in alive]
    if kept != reserved:
        change: Obj = {"reservedFor": kept or None}
        if not kept:  # the last user is gone: whoever comes next is allocated anew
            change |= {"allocation": None, "devices": None}
        claim = set_status(store, "resourceclaims", claim, change)
    held = (claim.get("status") or {}).get("allocation")
    if not held and CLAIM_FINALIZER in (claim["metadata"].get("finalizers") or ()):
        rest = [name for name in claim["metadata"]["finalizers"] if name != CLAIM_FINALIZER]
        store.update("resourceclaims", {**claim, "metadata": {**claim["metadata"], "finalizers": rest}})
