"""Claims and pods as the API holds them when a claim is prepared, without a control plane that makes them.

`Objects` answers reads from them as an API client does, errors and all.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.cluster.errors import ApiError, NotFound
from dra_driver.kubelet.types import ClaimRef

Obj = dict[str, Any]
DRIVER = "neuron.coreslice.dev"
NODE = "node-a"
POOL = f"{DRIVER}/{NODE}"
NAMESPACE = "default"


def result(device: str, request: str = "req", *, driver: str = DRIVER, pool: str = POOL, admin: bool = False) -> Obj:
    """One allocation result."""
    found: Obj = {"request": request, "driver": driver, "pool": pool, "device": device}
    return {**found, "adminAccess": True} if admin else found


def claim(
    name: str,
    *results: Obj | str,
    owner: str = "",
    users: Sequence[str] = (),
    config: Sequence[Obj] = (),
    uid: str = "",
) -> Obj:
    """An allocated claim; a text is a device of ours. `owner` and `users` are pod names, the owner is a user too.

    Without an owner it is user-made. UIDs are `uid-<name>` unless one is given.
    """
    pods = list(dict.fromkeys([*([owner] if owner else []), *users]))
    meta: Obj = {"name": name, "namespace": NAMESPACE, "uid": uid or f"uid-{name}"}
    if owner:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": f"uid-{owner}"}
        meta["ownerReferences"] = [{**reference, "controller": True, "blockOwnerDeletion": True}]
    devices: Obj = {"results": [one if isinstance(one, dict) else result(one) for one in results]}
    if config:
        devices["config"] = list(config)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": []}},
        "status": {
            "allocation": {"devices": devices},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods],
        },
    }


def pod(
    name: str,
    containers: Mapping[str, Sequence[str]],
    *,
    init: Mapping[str, Sequence[str]] | None = None,
    own: Sequence[str] = (),
    extended: tuple[str, Sequence[tuple[str, str]]] | None = None,
    uid: str = "",
) -> Obj:
    """A pod whose containers use claims by name, or `claim/request` for one request of it.

    Claims in `own` were made from templates. `extended` is the claim made for extended resources with its
    (container, request) pairs.
    """
    used = dict.fromkeys(
        use.partition("/")[0] for uses in [*containers.values(), *(init or {}).values()] for use in uses
    )
    status: Obj = {
        "resourceClaimStatuses": [{"name": f"as-{one}", "resourceClaimName": one} for one in used if one in own]
    }
    if extended:
        pairs = [
            {"containerName": container, "resourceName": "example.com/core", "requestName": request}
            for container, request in extended[1]
        ]
        status["extendedResourceClaimStatus"] = {"resourceClaimName": extended[0], "requestMappings": pairs}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid or f"uid-{name}"},
        "spec": {
            "resourceClaims": [
                {
                    "name": f"as-{one}",
                    **({"resourceClaimTemplateName": "t"} if one in own else {"resourceClaimName": one}),
                }
                for one in used
            ],
            "initContainers": [_container(*one) for one in (init or {}).items()],
            "containers": [_container(*one) for one in containers.items()],
        },
        "status": status,
    }


def _container(name: str, uses: Sequence[str]) -> Obj:
    claims = []
    for use in uses:
        claim_name, _, request = use.partition("/")
        claims.append({"name": f"as-{claim_name}", **({"request": request} if request else {})})
    return {"name": name, "image": "example.com/image", "resources": {"claims": claims}}


def ref(obj: Mapping[str, Any]) -> ClaimRef:
    """The claim as the kubelet names it."""
    meta = obj["metadata"]
    return ClaimRef(meta["namespace"], meta["name"], meta["uid"])


class Objects:
    """Claims and pods by name; planted errors come first. `reads` lists what was asked, as `claim a` or `pod b`."""

    def __init__(self, *objects: Obj) -> None:
        self.reads: list[str] = []
        self._lock = threading.Lock()
        self._objects: dict[str, Obj] = {}
        self._errors: dict[str, list[ApiError]] = {}
        self._always: ApiError | None = None
        self.put(*objects)

    def put(self, *objects: Obj) -> None:
        """Add or replace."""
        with self._lock:
            self._objects |= {self._key(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}

    def remove(self, *objects: Obj) -> None:
        """Take away."""
        with self._lock:
            for obj in objects:
                del self._objects[self._key(obj["kind"], obj["metadata"]["name"])]

    def fail(self, obj: Obj, *errors: ApiError) -> None:
        """Answer the next reads of that object with these."""
        with self._lock:
            self._errors.setdefault(self._key(obj["kind"], obj["metadata"]["name"]), []).extend(errors)

    def away(self, error: ApiError | None) -> None:
        """Answer every read with that error; None ends it."""
        with self._lock:
            self._always = error

    def get_claim(self, namespace: str, name: str) -> Obj:
        """A claim; raises ApiError."""
        return self._get("ResourceClaim", namespace, name)

    def get_pod(self, namespace: str, name: str) -> Obj:
        """A pod; raises ApiError."""
        return self._get("Pod", namespace, name)

    def _get(self, kind: str, namespace: str, name: str) -> Obj:
        key = self._key(kind, name)
        with self._lock:
            self.reads.append(key)
            if self._always:
                raise self._always
            if planted := self._errors.get(key):
                raise planted.pop(0)
            if namespace != NAMESPACE or key not in self._objects:
                raise NotFound(f"{key} in {namespace} not found", status=404, reason="NotFound")
            return self._objects[key]

    @staticmethod
    def _key(kind: str, name: str) -> str:
        return f"{'pod' if kind == 'Pod' else 'claim'} {name}"
