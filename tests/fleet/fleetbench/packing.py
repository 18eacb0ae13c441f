"""What order and node choice leave of the groups of four after a churn of pods of all sizes."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.inventory.devices import Device, physical_cores
from fleetbench import load
from fleetbench.fleet import CHIPS, MACHINE, Variant
from fleetbench.measure import Fleet, all_bound, quiet

KINDS = ("one core",) * 16 + ("one chip",) * 4 + ("four chips",)  # equal shares of the hardware: 1, 4 and 4 chips
LOAD = 0.6  # of the fleet
ROUNDS = 3


@dataclass(frozen=True)
class Packing:
    """After the churn: groups of four that are free, and how many the free cores could be at best."""

    variant: str
    scoring: str
    free: int
    possible: int


def churn(found: Fleet, variant: Variant, *, scoring: str, seed: int) -> Packing:
    """Fill, then replace half of the pods at random, some rounds. The same choice for every variant."""
    chance = random.Random(seed)
    found.publish(variant)
    found.fill("empty")
    chips = sum(load.SIZES[kind] or 0.25 for kind in KINDS) / len(KINDS)
    running = _add(found, 0, int(LOAD * CHIPS * len(found.nodes) / chips), chance)
    for number in range(1, ROUNDS + 1):
        gone = chance.sample(running, len(running) // 2)
        found.client.each(lambda name: _end(found, name), gone)
        quiet(found.plane)
        running = [name for name in running if name not in set(gone)] + _add(found, number, len(gone), chance)
    held = _held(found)
    found.clear("")
    return Packing(variant.name, scoring, *_groups(variant, held))


def _add(found: Fleet, number: int, count: int, chance: random.Random) -> list[str]:
    named = [(chance.choice(KINDS), f"load-{number}-{at:05d}") for at in range(count)]
    found.client.create(claim for kind, name in named if (claim := load.claim(found.variant, kind, name)))
    found.client.create(load.pod(found.variant, kind, name) for kind, name in named)
    all_bound(found.client)
    return [name for _, name in named]


def _end(found: Fleet, name: str) -> None:
    for resource in ("pods", "resourceclaims"):
        path = f"/api/v1/namespaces/default/pods/{name}"
        if resource == "resourceclaims":
            path = f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"
            found.client.merge(resource, name, {"metadata": {"finalizers": None}})
        found.client.request("DELETE", path, {"gracePeriodSeconds": 0})


def _held(found: Fleet) -> dict[str, list[str]]:
    """Device names by node."""
    held: dict[str, list[str]] = {name: [] for name in found.nodes}
    for claim in found.client.items("resourceclaims"):
        allocation: dict[str, Any] = (claim.get("status") or {}).get("allocation") or {"devices": {}}
        for result in allocation["devices"].get("results") or ():
            held[result["pool"].rpartition("/")[2]].append(result["device"])
    return held


def _groups(variant: Variant, held: dict[str, list[str]]) -> tuple[int, int]:
    devices = {each.name: each for each in variant.devices()}
    fours = [each for each in devices.values() if len(each.chips) == 4]
    in_four = MACHINE.chips[0].physical_cores * 4
    free = possible = 0
    for names in held.values():
        taken = _cores([devices[name] for name in names])
        free += sum(taken.isdisjoint(physical_cores(each)) for each in fours)
        possible += (CHIPS // 4 * in_four - len(taken)) // in_four
    return free, possible


def _cores(devices: Sequence[Device]) -> frozenset[tuple[int, int]]:
    return frozenset(core for each in devices for core in physical_cores(each))
