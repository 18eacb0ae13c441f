"""The test bed's own small API client: JSON over TLS, one connection for each request.

Independent of the driver's client on purpose: what the driver wrote is read back by
other code. Objects are plain dicts.
"""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

Object = dict[str, Any]

GROUPS = {
    "pods": "/api/v1",
    "nodes": "/api/v1",
    "events": "/api/v1",
    "serviceaccounts": "/api/v1",
    "resourceclaims": "/apis/resource.k8s.io/v1",
    "resourceclaimtemplates": "/apis/resource.k8s.io/v1",
    "resourceslices": "/apis/resource.k8s.io/v1",
    "deviceclasses": "/apis/resource.k8s.io/v1",
    "clusterroles": "/apis/rbac.authorization.k8s.io/v1",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1",
}
CLUSTER_WIDE = {"nodes", "resourceslices", "deviceclasses", "clusterroles", "clusterrolebindings"}
KINDS = {
    "Pod": "pods",
    "ServiceAccount": "serviceaccounts",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
    "DeviceClass": "deviceclasses",
    "ClusterRole": "clusterroles",
    "ClusterRoleBinding": "clusterrolebindings",
}


class ApiStatusError(Exception):
    """The API server's answer was not 2xx: ``code`` and the Status object's message."""

    def __init__(self, code: int, method: str, path: str, message: str) -> None:
        super().__init__(f"{method} {path}: {code} {message}")
        self.code = code
        self.message = message


class Api:
    """Requests as one user of one API server."""

    def __init__(self, *, host: str, port: int, token: str, ca: str) -> None:
        self._host, self._port, self._token = host, port, token
        self._tls = ssl.create_default_context(cadata=ca)

    @contextmanager
    def _answer(
        self, method: str, path: str, body: Object | None, kind: str, timeout: float | None
    ) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=timeout)
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def request(self, method: str, path: str, body: Object | None = None, *, kind: str = "application/json") -> Object:
        """One request; the answer's JSON. ApiStatusError unless 2xx; OSError if nobody answers."""
        with self._answer(method, path, body, kind, 30) as answer:
            text = answer.read()
        if answer.status // 100 == 2:
            return parsed(text)
        raise ApiStatusError(answer.status, method, path, parsed(text).get("message", ""))

    def get(self, resource: str, name: str, namespace: str = "default") -> Object:
        """One object."""
        return self.request("GET", path_of(resource, namespace, name))

    def find(self, resource: str, name: str, namespace: str = "default") -> Object | None:
        """One object, or None where there is no such."""
        try:
            return self.get(resource, name, namespace)
        except ApiStatusError as error:
            if error.code == 404:
                return None
            raise

    def list(self, resource: str, namespace: str = "default", **selectors: str) -> list[Object]:
        """Every object of a resource; ``fieldSelector=…`` or ``labelSelector=…`` narrow it."""
        query = f"?{urlencode(selectors)}" if selectors else ""
        items: list[Object] = self.request("GET", path_of(resource, namespace) + query)["items"]
        return items

    def create(self, item: Object, namespace: str = "default") -> Object:
        """Create an object of one of the kinds in ``KINDS``."""
        return self.request("POST", path_of(KINDS[item["kind"]], namespace), item)

    def patch(self, resource: str, name: str, patch: Object, namespace: str = "default") -> Object:
        """A merge patch."""
        path = path_of(resource, namespace, name)
        return self.request("PATCH", path, patch, kind="application/merge-patch+json")

    def delete(self, resource: str, name: str, namespace: str = "default", **options: Any) -> None:
        """Delete an object; one that is gone already is fine. ``gracePeriodSeconds=0`` and the like."""
        try:
            self.request("DELETE", path_of(resource, namespace, name), options or None)
        except ApiStatusError as error:
            if error.code != 404:
                raise

    def watch(self, resource: str, resource_version: str, namespace: str = "default") -> Iterator[Object]:
        """Watch events from a resource version on, until the server ends the watch."""
        query = urlencode({"watch": "1", "resourceVersion": resource_version, "allowWatchBookmarks": "true"})
        path = f"{path_of(resource, namespace)}?{query}"
        with self._answer("GET", path, None, "application/json", None) as answer:
            if answer.status != 200:
                raise ApiStatusError(answer.status, "GET", path, parsed(answer.read()).get("message", ""))
            for line in answer:
                yield parsed(line)


def path_of(resource: str, namespace: str, name: str = "") -> str:
    """The URL path of a resource or of one object."""
    middle = "" if resource in CLUSTER_WIDE else f"/namespaces/{namespace}"
    return f"{GROUPS[resource]}{middle}/{resource}" + (f"/{name}" if name else "")


def parsed(text: bytes) -> Object:
    """JSON of an answer; text that is not JSON comes back as a message."""
    try:
        value: Mapping[str, Any] = json.loads(text)
    except ValueError:
        return {"message": text.decode(errors="replace")}
    return dict(value)
