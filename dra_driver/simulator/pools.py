"""ResourceSlices gathered into pools, as the scheduler sees them from one node.

Only the newest generation of a pool counts. A pool is *incomplete* unless exactly `resourceSliceCount` of
its slices are there, and *invalid* when a device name or counter set occurs twice or a device draws on a
counter that isn't there, or when it uses what the simulator doesn't know. From neither anything is
allocated. Order is that of Kubernetes 1.36 and later: pools by driver and name, slices by object name,
devices as listed.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

from dra_driver.simulator import quantity

_UNKNOWN = {
    *("nodeSelector", "perDeviceNodeSelection", "allowMultipleAllocations"),
    *("bindsToNode", "bindingConditions", "bindingFailureConditions"),
}

Draws = Mapping[tuple[str, str], Decimal]  # (counter set, counter) -> amount


class DeviceId(NamedTuple):
    """What makes a device unique in the cluster."""

    driver: str
    pool: str
    device: str


@dataclass(frozen=True)
class Candidate:
    """A device that a node can use, and what it draws on its pool's counters."""

    id: DeviceId
    wire: Mapping[str, Any]  # as listed in the slice
    draws: Draws
    local: bool = True  # of this node only


@dataclass(frozen=True)
class Pool:
    """One pool at its newest generation. Counters belong to the pool, whichever slice lists them."""

    driver: str
    name: str
    candidates: tuple[Candidate, ...]  # of this node, in the scheduler's order
    everywhere: Mapping[str, Draws]  # every device of the pool by name, also of other nodes
    totals: Draws
    problem: str = ""  # why nothing may be allocated from it
    here: bool = True  # whether any of its slices reaches the node

    def available(self, in_use: Collection[DeviceId]) -> dict[tuple[str, str], Decimal]:
        """Counters less what devices in use draw.

        Only devices that are still listed are counted (kubernetes#140802), as in the real thing.
        """
        left = dict(self.totals)
        for used in in_use:
            if (used.driver, used.pool) == (self.driver, self.name):
                _subtract(left, self.everywhere.get(used.device, {}))
        return left


def gather(slices: Iterable[Mapping[str, Any]], *, node: str) -> list[Pool]:
    """All pools that have slices, seen from `node`; those without devices for it come without candidates."""
    by_pool: defaultdict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for item in slices:
        by_pool[item["spec"]["driver"], item["spec"]["pool"]["name"]].append(item)
    return [_pool(driver, name, by_pool[driver, name], node) for driver, name in sorted(by_pool)]


def shortage(draws: Draws, left: Draws, totals: Draws) -> str:
    """Why a device that draws this doesn't fit, empty if it does.

    A counter below zero anywhere in the pool blocks every device that draws at all: all are checked.
    """
    if not draws:
        return ""
    for key, total in totals.items():
        if left[key] < draws.get(key, 0):
            has, needs = quantity.show(left[key]), quantity.show(draws.get(key, Decimal(0)))
            return f"counter {key[1]} has {has} of {quantity.show(total)} left, needs {needs}"
    return ""


def _pool(driver: str, name: str, found: Sequence[Mapping[str, Any]], node: str) -> Pool:
    newest = max(item["spec"]["pool"]["generation"] for item in found)
    current = sorted(
        (item for item in found if item["spec"]["pool"]["generation"] == newest),
        key=lambda item: str(item["metadata"]["name"]),
    )
    everywhere: dict[str, Draws] = {}
    candidates: list[Candidate] = []
    names: Counter[str] = Counter()
    for item in current:
        for device in item["spec"].get("devices") or ():
            names[device["name"]] += 1
            everywhere[device["name"]] = draws = _draws(device)
            if _reaches(item["spec"], node):
                local = not item["spec"].get("allNodes")
                candidates.append(Candidate(DeviceId(driver, name, device["name"]), device, draws, local))
    sets = [found for item in current for found in item["spec"].get("sharedCounters") or ()]
    totals = {(each["name"], counter): _amount(value) for each in sets for counter, value in each["counters"].items()}
    problem = _incomplete(current) or _invalid(
        current, names, Counter(each["name"] for each in sets), everywhere, totals
    )
    here = any(_reaches(item["spec"], node) for item in current)
    return Pool(driver, name, tuple(candidates), everywhere, totals, problem, here)


def _incomplete(current: Sequence[Mapping[str, Any]]) -> str:
    due = current[0]["spec"]["pool"]["resourceSliceCount"]
    return "" if due == len(current) else f"incomplete: {len(current)} of {due} slices are there"


def _invalid(
    current: Sequence[Mapping[str, Any]],
    names: Counter[str],
    sets: Counter[str],
    everywhere: Mapping[str, Draws],
    totals: Draws,
) -> str:
    for what, counted in (("device", names), ("counter set", sets)):
        for name, times in counted.items():
            if times > 1:
                return f"invalid: {what} {name} is listed {times} times"
    for name, draws in everywhere.items():
        for key in draws:
            if key not in totals:
                return f"invalid: device {name} draws on counter {key[0]}/{key[1]}, which isn't there"
    devices = [device for item in current for device in item["spec"].get("devices") or ()]
    unknown = {key for part in (*devices, *(item["spec"] for item in current)) for key in _UNKNOWN & part.keys()}
    return f"unusable: the simulator doesn't know {', '.join(sorted(unknown))}" if unknown else ""


def _reaches(spec: Mapping[str, Any], node: str) -> bool:
    return bool(spec.get("allNodes")) or spec.get("nodeName") == node


def _draws(device: Mapping[str, Any]) -> Draws:
    return {
        (entry["counterSet"], counter): _amount(value)
        for entry in device.get("consumesCounters") or ()
        for counter, value in entry["counters"].items()
    }


def _amount(counter: Mapping[str, Any]) -> Decimal:
    return quantity.parse(counter["value"])


def _subtract(left: dict[tuple[str, str], Decimal], draws: Draws) -> None:
    for key, amount in draws.items():
        if key in left:
            left[key] -= amount
