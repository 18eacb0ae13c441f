"""What can be published of slices that the server would refuse: one bad value must not cost all devices.

An optional attribute or a capacity that is bad is left out; a device with any other fault, or with a common
attribute bad or missing, is left out whole: half a device stops pods on other nodes. Pure; the slices given
are not changed. A held device is never left out whole, since the counters it draws on would look free: then the
slice can't be published.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.inventory.lint import linter
from dra_driver.inventory.lint.findings import At, Finding, Severity
from dra_driver.inventory.lint.server import Server, server

Wire = Mapping[str, Any]


@dataclass(frozen=True)
class Note:
    """What was left out and why. Without `attribute` it is the device, without `device` nothing could be."""

    slice: str
    device: str
    attribute: str  # or capacity
    rule: str
    reason: str

    @property
    def repaired(self) -> bool:
        """False: the slice is as it was and the server will refuse it."""
        return bool(self.device)

    def __str__(self) -> str:
        what = (
            f"attribute {self.attribute!r} of device {self.device!r}" if self.attribute else f"device {self.device!r}"
        )
        done = f"{what} left out" if self.repaired else "can't be published"
        return f"{self.slice}: {done}: {self.reason} [{self.rule}]"


def repair(
    slices: Sequence[Wire],
    minor: int,
    *,
    features: Mapping[str, bool] | None = None,
    common: Collection[str] = (),
    held: Collection[str] = (),
) -> tuple[list[dict[str, Any]], list[Note]]:
    """The slices as they can be published, in the same order and number, and what had to be left out.

    `common`: attributes that every device must have. `held`: names of devices that must stay; a fault that would
    cost one is noted without `device`.
    """
    judge, wanted, kept = server(minor, features), frozenset(common), frozenset(held)
    done = [_slice(found, index, judge, wanted, kept) for index, found in enumerate(slices)]
    return [repaired for repaired, _ in done], [note for _, notes in done for note in notes]


def _slice(
    found: Wire, index: int, judge: Server, common: frozenset[str], held: frozenset[str]
) -> tuple[dict[str, Any], list[Note]]:
    sink: list[Finding] = []
    name, _ = linter.check(found, judge, sink, index)
    _missing(At(judge, name, sink), found, common)
    faults = [fault for finding in sink if (fault := _fault(finding, found, common, held))]
    gone = {fault.index for fault in faults if not fault.attribute}
    notes = [fault.note() for fault in faults if fault.index not in gone or not fault.attribute]
    repaired = _without(found, gone, faults)
    return repaired, notes + _remaining(repaired, index, judge, common)


@dataclass(frozen=True)
class _Fault:
    """A finding that leaving something out cures: an attribute or capacity, or with none the device."""

    finding: Finding
    index: int
    device: str
    kind: str = ""
    attribute: str = ""

    def note(self) -> Note:
        reason = f"{self.finding.field}: {self.finding.message}"
        return Note(self.finding.slice, self.device, self.attribute, self.finding.rule, reason)


def _fault(finding: Finding, found: Wire, common: frozenset[str], held: frozenset[str]) -> _Fault | None:
    match finding.path:
        case ("spec", "devices", int(index), *inner) if finding.severity is Severity.REFUSED:
            name = _device_name(found["spec"]["devices"][index], index)
        case _:
            return None
    match inner:
        case [("attributes" | "capacity") as kind, str(key), *_] if key not in common:
            return _Fault(finding, index, name, kind, key)
    return None if name in held else _Fault(finding, index, name)


def _device_name(device: Any, index: int) -> str:
    name = device.get("name") if isinstance(device, Mapping) else None
    return name if isinstance(name, str) and name else f"#{index}"


def _missing(at: At, found: Wire, common: frozenset[str]) -> None:
    spec = found.get("spec")
    listed = spec.get("devices") if isinstance(spec, Mapping) else None
    for index, device in enumerate(listed if isinstance(listed, list | tuple) else ()):
        attributes = device.get("attributes") if isinstance(device, Mapping) else None
        for key in sorted(common - set(attributes if isinstance(attributes, Mapping) else ())):
            at["spec"]["devices"][index]["attributes"][key].refuse("attribute-missing", "every device must have it")


def _without(found: Wire, gone: Collection[int], faults: Sequence[_Fault]) -> dict[str, Any]:
    if not faults:
        return {**found}
    devices = {index: dict(device) for index, device in enumerate(found["spec"]["devices"]) if index not in gone}
    for fault in faults:
        if device := devices.get(fault.index):
            device[fault.kind] = {key: item for key, item in device[fault.kind].items() if key != fault.attribute}
    spec = {**found["spec"], "devices": list(devices.values())}
    if not devices:
        del spec["devices"]  # an empty list isn't stored either
    return {**found, "spec": spec}


def _remaining(repaired: Wire, index: int, judge: Server, common: frozenset[str]) -> list[Note]:
    """What leaving out can't cure."""
    sink: list[Finding] = []
    name, _ = linter.check(repaired, judge, sink, index)
    _missing(At(judge, name, sink), repaired, common)
    refused = [finding for finding in sink if finding.severity is Severity.REFUSED]
    return [Note(name, "", "", finding.rule, f"{finding.field}: {finding.message}") for finding in refused]
