"""The verdicts of the real API validation on ResourceSlices, by a Go program in each version's own module."""

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.binaries import GO_MODULES, Module, build

MINORS = (34, 35, 36, 37)


@dataclass(frozen=True)
class Verdict:
    """What a server would do with one slice."""

    accepted: bool
    decoded: bool  # False: it wasn't even read, so nothing more is known
    faults: tuple[tuple[str, str], ...]  # field, message
    unknown: frozenset[str]  # fields it doesn't know
    dropped: frozenset[tuple[str | int, ...]]  # paths that it clears


def module(minor: int) -> Module:
    """The program beside the servers of the same version: what validates is what serves."""
    folder = GO_MODULES / ("kubernetes" if minor == MINORS[-1] else f"kubernetes-1.{minor}")
    return Module("validate", folder, {"validate": "../validate/main.go"}, requires="k8s.io/kubernetes")


def program(minor: int) -> Path:
    """Builds it if it isn't there."""
    return build(module(minor))["validate"]


def verdicts(minor: int, slices: Iterable[Any], features: Mapping[str, bool] | None = None) -> Iterator[Verdict]:
    """One for each slice, in order."""
    asked = {**(features or {}), **_companions(minor, features or {})}
    gates = ",".join(f"{name}={str(on).lower()}" for name, on in asked.items())
    command = [str(program(minor)), f"--feature-gates={gates}"]
    lines = "".join(json.dumps(found) + "\n" for found in slices)
    done = subprocess.run(command, input=lines, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    for line in done.stdout.splitlines():
        yield _verdict(json.loads(line))


def _companions(minor: int, features: Mapping[str, bool]) -> dict[str, bool]:
    """Gates without a say in slices that a server doesn't start without."""
    found = {}
    if features.get("DRAPartitionableDevicesType"):
        found["DRAResourcePoolStatus"] = True
    if minor >= 37 and not features.get("DRADeviceTaints", True):
        found["DRADeviceTaintRules"] = False
    if minor >= 36 and not features.get("DRAResourceClaimDeviceStatus", True):
        found["DRAResourceClaimGranularStatusAuthorization"] = False
    return found


def _verdict(answer: Mapping[str, Any]) -> Verdict:
    faults = tuple((fault["field"], fault["message"]) for fault in answer["faults"])
    decoded = not any(not field and not text.startswith("panic") for field, text in faults)
    unknown = frozenset(re.fullmatch(r'unknown field "(.*)"', text)[1] for text in answer["unknown"])  # type: ignore[index]
    dropped = frozenset(tuple(path) for path in answer["dropped"])
    return Verdict(answer["accepted"], decoded, faults, unknown, dropped)
