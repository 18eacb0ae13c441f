"""What an account asked the API server for, by its audit log, beside what a ClusterRole grants."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from testbed.api import Object


class Ask(NamedTuple):
    """A verb on a resource of an API group (empty for the core group)."""

    verb: str
    group: str
    resource: str


def asked(events: Iterable[Object]) -> Counter[Ask]:
    """How often each was asked for. Requests for no resource (``/version``) are left out."""
    found = ((event["verb"], event["objectRef"]) for event in events if "objectRef" in event)
    return Counter(Ask(verb, ref.get("apiGroup", ""), resource_of(ref)) for verb, ref in found)


def resource_of(ref: Object) -> str:
    """As rules name it: ``pods``, ``pods/status``."""
    return "/".join(filter(None, (ref["resource"], ref.get("subresource"))))


def granted(cluster_role: Object) -> set[Ask]:
    """Everything that a ClusterRole grants; its rules name no objects."""
    return {
        Ask(verb, group, resource)
        for rule in cluster_role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def refused(events: Iterable[Object]) -> list[str]:
    """Requests that were forbidden, a line each."""
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event.get("responseStatus", {}).get("code") == 403
    ]
