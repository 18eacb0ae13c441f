"""Harm that the server allows: rules on single slices and on pools as a whole.

The allocator takes the newest generation of a pool only when it is complete and its counters fit together;
otherwise none of its devices is given out, and nobody says so. A selector that reads an attribute which one
device lacks stops pods on every node.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from dra_driver.inventory.lint.device import VALUES
from dra_driver.inventory.lint.findings import At, Finding
from dra_driver.inventory.lint.server import Server

Decoded = Mapping[str, Any]
Named = tuple[str, Decoded]  # name of the slice, decoded spec
Totals = Mapping[str, Mapping[str, Fraction]]  # counter set → counter → value


def check(slices: Sequence[Named], judge: Server, sink: list[Finding], common: Mapping[str, Collection[str]]) -> None:
    """All findings on decoded specs; each pool is driver and pool name. `common`: attributes by driver."""
    for name, count in Counter(name for name, _ in slices).items():
        if count > 1:
            At(judge, name, sink)["metadata"]["name"].warn("slice-name-twice", f"{count} slices have this name")
    pools: dict[tuple[str, str], list[tuple[At, Decoded]]] = defaultdict(list)
    for name, spec in slices:
        at = At(judge, name, sink)["spec"]
        _single(at, spec)
        pools[spec.get("driver", ""), spec.get("pool", {}).get("name", "")].append((at, spec))
    for (driver, _), members in pools.items():
        _pool(_newest(members), frozenset(common.get(driver, ())))


def _single(at: At, spec: Decoded) -> None:
    driver = spec.get("driver", "")
    if driver != driver.lower():
        at["driver"].warn("driver-case", f"{driver!r} should be lower case")
    if not spec.get("devices") and not spec.get("sharedCounters"):
        at.warn("slice-empty", "lists neither devices nor counters")
    for index, device in enumerate(spec.get("devices", ())):
        attributes, here = device.get("attributes", {}), at["devices"][index]["attributes"]
        for key in attributes:
            if key.startswith(f"{driver}/") and key.removeprefix(f"{driver}/") in attributes:
                here[key].warn("attribute-twice", "also there without the driver's domain: both mean the same (BC-019)")
        if attributes.get("resource.kubernetes.io/numaNode", {}).get("int", 0) < 0:
            here["resource.kubernetes.io/numaNode"].warn("numa-negative", "leave it out: all such devices would match")


def _newest(members: Sequence[tuple[At, Decoded]]) -> list[tuple[At, Decoded]]:
    """The newest generation; the others are reported, nobody allocates from them."""
    newest = max(_generation(spec) for _, spec in members)
    for at, spec in members:
        if (old := _generation(spec)) < newest:
            text = f"generation {old} beside {newest}: what it lists isn't given out any more"
            at["pool"]["generation"].warn("pool-generations", text)
    return [(at, spec) for at, spec in members if _generation(spec) == newest]


def _generation(spec: Decoded) -> int:
    return int(spec.get("pool", {}).get("generation", 0))


def _pool(members: Sequence[tuple[At, Decoded]], common: frozenset[str]) -> None:
    _complete(members)
    _unique(members, "devices", "device-twice", "the whole pool isn't used")
    if members[0][0].minor >= 35:  # noqa: PLR2004 - before, a counter set belongs to its slice
        _unique(members, "sharedCounters", "counter-set-twice", "the whole pool isn't used")
        totals = _totals(spec for _, spec in members)
        for at, spec in members:
            _drawn(at, spec, totals)
    else:
        for at, spec in members:
            _drawn(at, spec, _totals([spec]))
    _attributes(members, common)
    if len(nodes := {str(spec.get("nodeName")) for _, spec in members}) > 1:
        text = f"slices of one pool for nodes {', '.join(sorted(nodes))}: those without one outlive the node"
        members[0][0]["nodeName"].warn("pool-nodes", text)


def _complete(members: Sequence[tuple[At, Decoded]]) -> None:
    for at, spec in members:
        if (promised := spec.get("pool", {}).get("resourceSliceCount", 0)) != len(members):
            text = f"the pool has {len(members)} of {promised} slices: it isn't used until that fits"
            at["pool"]["resourceSliceCount"].warn("pool-incomplete", text)


def _unique(members: Sequence[tuple[At, Decoded]], field: str, rule: str, harm: str) -> None:
    seen: dict[str, str] = {}
    for at, spec in members:
        for index, found in enumerate(spec.get(field, ())):
            name = found.get("name", "")
            if (other := seen.setdefault(name, at.slice)) != at.slice:
                at[field][index].warn(rule, f"{name!r} is in slice {other} too: {harm}")


def _totals(specs: Iterable[Decoded]) -> Totals:
    return {
        found.get("name", ""): {
            name: counter["value"].value for name, counter in found.get("counters", {}).items() if "value" in counter
        }
        for spec in specs
        for found in spec.get("sharedCounters", ())
    }


def _drawn(at: At, spec: Decoded, totals: Totals) -> None:
    """What devices draw on must exist in the pool, and be enough for each alone."""
    for index, device in enumerate(spec.get("devices", ())):
        for number, entry in enumerate(device.get("consumesCounters", ())):
            here, name = at["devices"][index]["consumesCounters"][number], entry.get("counterSet", "")
            if name not in totals:
                here["counterSet"].warn("counter-missing", f"no slice of the pool has the set {name!r}: it isn't used")
                continue
            for counter, wanted in entry.get("counters", {}).items():
                _enough(here["counters"][counter], wanted, totals[name].get(counter))


def _enough(at: At, wanted: Decoded, total: Fraction | None) -> None:
    if total is None:
        at.warn("counter-missing", "the counter set has no such counter: the pool isn't used")
    elif "value" in wanted and wanted["value"].value > total:
        at.warn("counter-overdrawn", "draws more than there is: the device can never be given out")


def _attributes(members: Sequence[tuple[At, Decoded]], common: frozenset[str]) -> None:
    """`common` ones on every device, and every key with one type."""
    types: dict[str, str] = {}
    for at, spec in members:
        for index, device in enumerate(spec.get("devices", ())):
            here, attributes = at["devices"][index]["attributes"], device.get("attributes", {})
            for key in sorted(common - attributes.keys()):
                here[key].warn("attribute-missing", "every device needs it: a selector that reads it stops pods")
            for key, value in attributes.items():
                kind = next((name for name in VALUES if name in value), "")
                if (first := types.setdefault(key, kind)) != kind:
                    here[key].warn("attribute-type", f"{kind or 'nothing'} here, {first or 'nothing'} on other devices")
