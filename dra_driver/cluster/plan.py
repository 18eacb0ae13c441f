"""From the slices that are there and those that should be: what to delete and write, in which order. Pure.

The rule behind the order: overlapping devices never stand in the API without the counters that exclude one
another. So what is not protected, or is about to lose its protection, is deleted before anything is written,
device slices before the counters they draw on; and a generation is written devices first, counters last, so
that its pool is incomplete, and unusable, until every part is proven.

Schedulers of 1.34 look for counters in the device's own slice only, take a counter that isn't there as unlimited,
and allocate from incomplete pools: where the one slice of such a server is wanted, devices whose counters stand
elsewhere are unprotected too. From 1.35 on devices beside counters are ignored, so such a slice may wait.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.cluster.compare import same as equal

Obj = dict[str, Any]
Build = Callable[[int], Sequence[Obj]]  # generation → slices
Same = Callable[[Obj, Obj], bool]  # wanted, stored


@dataclass(frozen=True)
class Write:
    """One slice to send: in place of `stored`, or new."""

    wanted: Obj
    stored: Obj | None


@dataclass(frozen=True)
class Plan:
    """Three steps, each in order: `first` is deleted, then `writes`, then `last` is deleted."""

    first: tuple[Obj, ...] = ()
    writes: tuple[Write, ...] = ()
    last: tuple[Obj, ...] = ()
    generation: int = 0
    slices: int = 0

    @property
    def settled(self) -> bool:
        """Nothing to do: the API holds what is wanted."""
        return not (self.first or self.writes or self.last)

    @property
    def restores(self) -> bool:
        """Only missing slices are put back."""
        return not (self.first or self.last) and all(write.stored is None for write in self.writes)


def plan(build: Build, stored: Sequence[Obj], *, same: Same, last_generation: int | None = None) -> Plan:
    """What leads from `stored` (all slices of this driver on this node) to what `build` wants.

    The generation stays where at most whole slices are missing, which is what a wipe leaves; any other
    change gives all slices a new one. `last_generation`: the one published before, should nothing be left.
    """
    newest = max((generation_of(row) for row in stored), default=last_generation or 1)
    wanted = build(newest)
    if not wanted:
        return Plan(first=_deletion_order(stored), generation=newest)
    first = [row for row in stored if _must_go_first(row, wanted)]
    rest = [row for row in stored if row not in first]
    names = {name_of(row): row for row in rest}
    pairs = [(row, names.pop(name_of(row), None)) for row in wanted]
    current = [held is not None and same(row, held) for row, held in pairs]
    missing = [held is None for _, held in pairs]
    only_missing = not first and all(ok or gone for ok, gone in zip(current, missing, strict=True))
    if only_missing and (any(current) or not rest):  # whole, or a wipe that left these
        pairs = [pair for pair, ok in zip(pairs, current, strict=True) if not ok]
        return _plan(first, pairs, list(names.values()), newest, len(wanted))
    pairs = [(row, names_of(rest).get(name_of(row))) for row in build(newest + 1)]
    return _plan(first, pairs, list(names.values()), newest + 1, len(pairs))


def names_of(rows: Sequence[Obj]) -> dict[str, Obj]:
    """The slices by name."""
    return {name_of(row): row for row in rows}


def withdrawal(stored: Sequence[Obj]) -> Plan:
    """Delete all of it, unprotected devices first."""
    return Plan(first=_deletion_order(stored), generation=max(map(generation_of, stored), default=0))


def name_of(obj: Obj) -> str:
    """`metadata.name`."""
    return str((obj.get("metadata") or {}).get("name") or "")


def generation_of(obj: Obj) -> int:
    """`spec.pool.generation`; 0 where it is left out."""
    return int(((obj.get("spec") or {}).get("pool") or {}).get("generation") or 0)


def devices_of(obj: Obj) -> list[Obj]:
    """`spec.devices`; null and absent are empty."""
    return (obj.get("spec") or {}).get("devices") or []


def has_counters(obj: Obj) -> bool:
    """Whether the slice holds counter sets."""
    return bool((obj.get("spec") or {}).get("sharedCounters"))


def relies_on_counters(obj: Obj) -> bool:
    """Whether the slice holds counter sets or a device that draws on one."""
    return has_counters(obj) or _draws(obj)


def lacks_counters(sent: Obj, got: Obj) -> bool:
    """Whether counter sets, or what a device draws on them, didn't survive the write unchanged."""
    if has_counters(sent) and not equal(sent["spec"]["sharedCounters"], (got.get("spec") or {}).get("sharedCounters")):
        return True
    kept = {device.get("name"): device.get("consumesCounters") for device in devices_of(got)}
    return any(
        not equal(device["consumesCounters"], kept.get(device.get("name")))
        for device in devices_of(sent)
        if device.get("consumesCounters")
    )


def _plan(
    first: Sequence[Obj], pairs: Sequence[tuple[Obj, Obj | None]], last: Sequence[Obj], generation: int, slices: int
) -> Plan:
    writes = sorted((Write(*pair) for pair in pairs), key=lambda write: has_counters(write.wanted))
    return Plan(_deletion_order(first), tuple(writes), _deletion_order(last), generation, slices)


def _deletion_order(rows: Sequence[Obj]) -> tuple[Obj, ...]:
    """Devices that nothing excludes, then devices with counters, then the counters."""
    return tuple(sorted(rows, key=lambda row: (has_counters(row), not _unprotected(row))))


def _unprotected(row: Obj) -> set[str]:
    """Devices of the slice that draw on no counter."""
    return {str(device.get("name")) for device in devices_of(row) if not device.get("consumesCounters")}


def _draws(row: Obj) -> bool:
    return any(device.get("consumesCounters") for device in devices_of(row))


def _must_go_first(row: Obj, wanted: Sequence[Obj]) -> bool:
    """Whether a stored slice can't stay while the wanted ones are written.

    Another owner: the garbage collector deletes it sooner or later, a node of the same name is another node.
    Another pool: two pools are two ledgers. Counted beside uncounted devices: neither excludes the other.
    Devices whose counters stand elsewhere, on a server whose scheduler doesn't look there.
    """
    counted = any(map(has_counters, wanted))
    together = any(has_counters(slice_) and devices_of(slice_) for slice_ in wanted)
    unprotected = _unprotected(row)
    listed = {str(device.get("name")) for slice_ in wanted for device in devices_of(slice_)}
    return (
        _owner(row) != _owner(wanted[0])
        or _pool(row) != _pool(wanted[0])
        or (counted and bool(unprotected))
        or (together and _draws(row) and not has_counters(row))
        or (not counted and (relies_on_counters(row) or not unprotected <= listed))
    )


def _owner(row: Obj) -> list[Any]:
    return [owner.get("uid") for owner in (row.get("metadata") or {}).get("ownerReferences") or []]


def _pool(row: Obj) -> Any:
    return ((row.get("spec") or {}).get("pool") or {}).get("name")
