"""Reads that preparing a claim needs, each one GET."""

from typing import Any
from urllib.parse import quote

from dra_driver.cluster import node as node_object
from dra_driver.cluster.client import Api

Obj = dict[str, Any]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}"


class ClaimReader:
    """Claims, pods and nodes by name; raises ApiError. Thread-safe."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def get_claim(self, namespace: str, name: str) -> Obj:
        """A v1 ResourceClaim."""
        return self._api.get(CLAIMS.format(quote(namespace, safe=""), quote(name, safe="")))

    def get_pod(self, namespace: str, name: str) -> Obj:
        """A v1 Pod."""
        return self._api.get(f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}")

    def get_node(self, name: str) -> Obj:
        """A v1 Node."""
        return self._api.get(node_object.path(name))
