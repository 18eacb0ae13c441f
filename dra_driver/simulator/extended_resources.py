"""Extended resource names in pod specs: which the node's device plugin serves, which turn into a claim.

Per node: a name that `status.allocatable` has above 0 belongs to the device plugin there; otherwise a
DeviceClass with that `extendedResourceName`, or the implicit name
`deviceclass.resource.kubernetes.io/<class>`, makes it a request of the pod's one special claim (KEP-5004).
Its request names count containers and sorted resource names.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dra_driver.simulator import quantity
from dra_driver.simulator.objects import EXTENDED_RESOURCE_CLAIM, Obj, containers, owned_by

IMPLICIT = "deviceclass.resource.kubernetes.io/"
IN_MEMORY = "<extended-resources>"  # what the scheduler calls the claim before it is written


@dataclass
class Plan:
    """What one pod's extended resources mean on one node."""

    classic: dict[str, int] = field(default_factory=dict)  # amounts that a device plugin has to serve
    requests: list[Obj] = field(default_factory=list)  # of the special claim
    mappings: list[Obj] = field(default_factory=list)  # for pod.status.extendedResourceClaimStatus


def asked(container: Mapping[str, Any]) -> dict[str, int]:
    """Extended resources of a container and their amounts; limits stand for requests that aren't given."""
    resources = container.get("resources") or {}
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: int(quantity.parse(amount)) for name, amount in amounts.items() if _is_extended(name)}


def classic_amounts(pod: Mapping[str, Any]) -> dict[str, int]:
    """What the pod takes of each name: the sum of its long-running containers, or an init container's more."""
    total: dict[str, int] = {}
    for container in containers(pod):
        if not _runs_to_completion(pod, container):
            for name, amount in asked(container).items():
                total[name] = total.get(name, 0) + amount
    for container in containers(pod):
        for name, amount in asked(container).items():
            total[name] = max(total.get(name, 0), amount)
    return total


def plan(pod: Mapping[str, Any], *, allocatable: Mapping[str, Any], classes: Iterable[Mapping[str, Any]]) -> Plan:
    """Divide the pod's extended resources between the device plugin and one claim."""
    by_name = _class_by_resource(classes)
    result = Plan()
    for name, amount in classic_amounts(pod).items():
        if quantity.parse(allocatable.get(name, 0)) > 0 or name not in by_name:
            result.classic[name] = amount
        elif amount:
            _claim_requests(pod, name, by_name[name], result)
    result.requests.sort(key=lambda request: str(request["name"]))
    return result


def special_claim(pod: Mapping[str, Any], requests: Sequence[Obj]) -> Obj:
    """The claim that the scheduler makes for a pod's extended resources."""
    return {
        "metadata": {
            "generateName": f"{pod['metadata']['name']}-extended-resources-",
            "namespace": pod["metadata"]["namespace"],
            "annotations": {EXTENDED_RESOURCE_CLAIM: "true"},
            "ownerReferences": [owned_by(pod)],
        },
        "spec": {"devices": {"requests": list(requests)}},
    }


def _claim_requests(pod: Mapping[str, Any], resource: str, class_name: str, result: Plan) -> None:
    """One request per long-running container; init containers reuse those and add one shortfall at most."""
    everybody = containers(pod)
    needing = [(at, each, asked(each).get(resource, 0)) for at, each in enumerate(everybody)]
    lasting = [
        (at, _request(at, each, resource, class_name, amount))
        for at, each, amount in needing
        if amount and not _runs_to_completion(pod, each)
    ]
    own: Obj | None = None
    mapped: dict[int, list[Obj]] = {at: [request] for at, request in lasting}
    passing = [entry for entry in needing if entry[2] and _runs_to_completion(pod, entry[1])]
    for at, container, amount in sorted(passing, key=lambda entry: -_shortfall(entry, lasting)):
        reused, short = _reuse(at, amount, lasting)
        if short > 0 and own is None:  # the largest comes first, so the others fit into it
            own = _request(at, container, resource, class_name, short)
        mapped[at] = [*reused, *([own] if short > 0 and own else [])]
    result.requests += [request for _, request in lasting] + ([own] if own else [])
    result.mappings += [
        {"containerName": everybody[at]["name"], "resourceName": resource, "requestName": request["name"]}
        for at in sorted(mapped)
        for request in mapped[at]
    ]


def _shortfall(entry: tuple[int, Obj, int], lasting: Sequence[tuple[int, Obj]]) -> int:
    return _reuse(entry[0], entry[2], lasting)[1]


def _reuse(at: int, amount: int, lasting: Sequence[tuple[int, Obj]]) -> tuple[list[Obj], int]:
    """Requests of later containers that an init container borrows, and how much it still lacks."""
    reused: list[Obj] = []
    for other, request in lasting:
        if other > at and amount > 0:
            reused.append(request)
            amount -= request["exactly"]["count"]
    return reused, amount


def _request(at: int, container: Mapping[str, Any], resource: str, class_name: str, amount: int) -> Obj:
    resources = container.get("resources") or {}
    names = sorted({*(resources.get("requests") or ()), *(resources.get("limits") or ())})
    return {
        "name": f"container-{at}-request-{names.index(resource)}",
        "exactly": {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": amount},
    }


def _class_by_resource(classes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Resource name -> class; of two classes the newer one, of two equally old ones the first by name."""
    ordered = sorted(classes, key=lambda each: str(each["metadata"]["name"]), reverse=True)
    ordered.sort(key=lambda each: str(each["metadata"].get("creationTimestamp", "")))
    names = {IMPLICIT + each["metadata"]["name"]: str(each["metadata"]["name"]) for each in ordered}
    explicit = {
        each["spec"]["extendedResourceName"]: str(each["metadata"]["name"])
        for each in ordered
        if each["spec"].get("extendedResourceName")
    }
    return names | explicit


def _runs_to_completion(pod: Mapping[str, Any], container: Mapping[str, Any]) -> bool:
    init = any(container is each for each in pod["spec"].get("initContainers") or ())
    return init and container.get("restartPolicy") != "Always"


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and (name.startswith(IMPLICIT) or not domain.endswith("kubernetes.io"))
