"""Which kinds the simulated API server serves: one table, everything else is generic.

A kind that isn't in the table is a 404, as on a server without that API group.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Obj = dict[str, Any]


@dataclass(frozen=True)
class Resource:
    """One row of the table. `fields` are the field selectors it takes beside metadata.name and namespace."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    status: bool = False  # has a status subresource: a plain write leaves the status alone
    fields: frozenset[str] = field(default_factory=frozenset)
    newer_fields: Mapping[str, int] = field(default_factory=dict)  # selector → first minor that takes it

    @property
    def api_version(self) -> str:
        """`v1` or `group/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """As error texts name it: `pods`, `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "default") -> str:
        """Of the collection, in that namespace if it has any."""
        middle = f"/namespaces/{namespace}" if self.namespaced else ""
        return f"/{'apis' if self.group else 'api'}/{self.api_version}{middle}/{self.plural}"

    def selects_on(self, selector: str, minor: int) -> bool:
        """Whether a server of this minor takes the field selector."""
        always = {"metadata.name", "metadata.namespace"} | self.fields
        return selector in always or minor >= self.newer_fields.get(selector, 10_000)


_DRA = "resource.k8s.io"
_TABLE = (
    Resource("", "v1", "nodes", "Node", status=True),
    Resource(
        "",
        "v1",
        "pods",
        "Pod",
        namespaced=True,
        status=True,
        fields=frozenset({"spec.nodeName", "status.phase"}),
    ),
    Resource("", "v1", "events", "Event", namespaced=True, fields=frozenset({"reason", "type"})),
    Resource(
        _DRA,
        "v1",
        "resourceslices",
        "ResourceSlice",
        fields=frozenset({"spec.nodeName", "spec.driver"}),
        newer_fields={"spec.pool.name": 37},
    ),
    Resource(_DRA, "v1", "deviceclasses", "DeviceClass"),
    Resource(_DRA, "v1", "resourceclaims", "ResourceClaim", namespaced=True, status=True),
    Resource(_DRA, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True),
)
RESOURCES: Mapping[str, Resource] = {row.plural: row for row in _TABLE}


@dataclass(frozen=True)
class Target:
    """What a path names: a collection (`name` empty), an object or its subresource."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_path(path: str) -> Target | None:
    """The target of an API path, None where nothing is served."""
    parts = [part for part in path.split("/") if part]
    group, rest = _split_group(parts)
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":  # noqa: PLR2004 namespaces/NS/…
        namespace, rest = rest[1], rest[2:]
    resource = RESOURCES.get(rest[0]) if rest else None
    if resource is None or resource.api_version != group or len(rest) > 3:  # noqa: PLR2004 plural/NAME/sub
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if bool(namespace) > resource.namespaced or (subresource and not _has(resource, subresource)):
        return None
    if name and resource.namespaced and not namespace:
        return None
    return Target(resource, namespace, name, subresource)


def _split_group(parts: list[str]) -> tuple[str, list[str]]:
    if len(parts) > 1 and parts[0] == "api":
        return parts[1], parts[2:]
    if len(parts) > 2 and parts[0] == "apis":  # noqa: PLR2004 apis/GROUP/VERSION/…
        return f"{parts[1]}/{parts[2]}", parts[3:]
    return "", []


def _has(resource: Resource, subresource: str) -> bool:
    return resource.status and subresource == "status"
