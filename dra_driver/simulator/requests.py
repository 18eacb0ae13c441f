"""What a claim asks for, decoded: requests and their alternatives with compiled selectors, constraints.

Anything that the simulator doesn't know (consumable capacity, `distinctAttribute`, derived attributes) is an
`AllocationError` and never ignored, since ignoring it could hand out devices that nobody asked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.simulator.pools import Candidate
from dra_driver.simulator.selectors import Selector, SelectorError, compile_selector

_REQUEST_FIELDS = frozenset(
    ("name", "deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations")
)
_BLOCKING = frozenset(("NoSchedule", "NoExecute"))


class AllocationError(CoresliceError):
    """A request that can't be evaluated (missing class, failing selector, unknown field): its pod stops."""


@dataclass(frozen=True, eq=False)
class Need:
    """One request or one of its alternatives."""

    result_name: str  # "request" or "request/subrequest"
    class_name: str
    class_config: Sequence[Mapping[str, Any]]
    selectors: tuple[Selector, ...]  # class before request
    count: int  # 0: all that match
    admin_access: bool
    tolerations: Sequence[Mapping[str, Any]]

    def covered_by(self, names: Sequence[str]) -> bool:
        """Whether a constraint or config with these `requests` means it; none means all."""
        return not names or self.result_name in names or self.result_name.partition("/")[0] in names

    def tolerates(self, taint: Mapping[str, Any]) -> bool:
        """Whether the taint doesn't keep the device from this request."""
        return taint.get("effect") not in _BLOCKING or any(_tolerates(each, taint) for each in self.tolerations)

    def matches(self, candidate: Candidate) -> bool:
        """Whether all selectors hold; `AllocationError` if one fails."""
        try:
            return all(each.matches(candidate.id.driver, candidate.wire) for each in self.selectors)
        except SelectorError as error:
            raise AllocationError(f"class {self.class_name}, request {self.result_name}: {error}") from error


@dataclass(frozen=True)
class Constraint:
    """`matchAttribute`: the devices of these requests share the attribute's value."""

    requests: Sequence[str]
    attribute: str  # with its domain

    def value(self, candidate: Candidate) -> Mapping[str, Any] | None:
        """The device's value with its type, None if it has none; a bare name is in the driver's domain."""
        attributes: Mapping[str, Mapping[str, Any]] = candidate.wire.get("attributes") or {}
        domain, _, name = self.attribute.rpartition("/")
        bare = attributes.get(name) if domain == candidate.id.driver else None
        return attributes.get(self.attribute, bare)


@dataclass(frozen=True)
class Demand:
    """A claim, decoded."""

    claim: Mapping[str, Any]
    requests: Sequence[Sequence[Need]]  # each with its alternatives in order of preference
    constraints: Sequence[Constraint]


def decode(claim: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> Demand:
    """What a ResourceClaim asks for; `AllocationError` names the request and what is wrong with it."""
    devices = claim["spec"]["devices"]
    return Demand(
        claim,
        [_alternatives(request, classes) for request in devices.get("requests") or ()],
        [_constraint(constraint) for constraint in devices.get("constraints") or ()],
    )


def _alternatives(request: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> tuple[Need, ...]:
    name = request["name"]
    if "exactly" in request:
        return (_need(name, request["exactly"], classes),)
    return tuple(_need(f"{name}/{each['name']}", each, classes) for each in request["firstAvailable"])


def _need(result_name: str, asked: Mapping[str, Any], classes: Mapping[str, Mapping[str, Any]]) -> Need:
    if unknown := sorted(key for key, value in asked.items() if value and key not in _REQUEST_FIELDS):
        raise AllocationError(f"request {result_name}: the simulator doesn't know {', '.join(unknown)}")
    device_class = classes.get(asked["deviceClassName"])
    if device_class is None:
        raise AllocationError(f"request {result_name}: device class {asked['deviceClassName']} does not exist")
    spec = device_class.get("spec") or {}
    selectors = [*(spec.get("selectors") or ()), *(asked.get("selectors") or ())]
    return Need(
        result_name=result_name,
        class_name=asked["deviceClassName"],
        class_config=spec.get("config") or (),
        selectors=tuple(_compiled(result_name, each) for each in selectors),
        count=0 if asked.get("allocationMode") == "All" else asked.get("count", 1),
        admin_access=bool(asked.get("adminAccess")),
        tolerations=asked.get("tolerations") or (),
    )


def _compiled(result_name: str, selector: Mapping[str, Any]) -> Selector:
    try:
        return compile_selector(selector["cel"]["expression"])
    except SelectorError as error:
        raise AllocationError(f"request {result_name}: {error}") from error


def _constraint(wire: Mapping[str, Any]) -> Constraint:
    if "matchAttribute" not in wire:
        kinds = ", ".join(sorted(wire.keys() - {"requests"}))
        raise AllocationError(f"of constraints the simulator knows matchAttribute only, not {kinds}")
    return Constraint(wire.get("requests") or (), wire["matchAttribute"])


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))
