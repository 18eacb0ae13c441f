"""The scheduler's own allocator as a process that answers, one for each Kubernetes minor.

``tests/go/allocate`` is a small Go program around ``k8s.io/dynamic-resource-allocation/structured``. It keeps
slices and classes between requests and remembers no allocation: who asks says what is held.
"""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from testbed import binaries

SOURCE = binaries.GO_MODULES / "allocate"
MINORS = (34, 35, 36, 37)

# The one error with which the scheduler goes on to other nodes. From 1.35 on it is also a value of its own.
NODE_ONLY = "invalid resource pools were encountered"

Wire = Mapping[str, Any]
Held = tuple[str, str, str]  # driver, pool, device

# By the names of structured.Features. All that our slices and claims use is on in each minor (in 1.34 and 1.35
# partitionable devices are off unless switched on), the rest as the minor's default gates have it.
USED = ("AdminAccess", "DeviceTaints", "PartitionableDevices", "PrioritizedList")
FEATURES: Mapping[int, Sequence[str]] = {
    34: (*USED, "DeviceStatus"),
    35: USED,
    36: (*USED, "ConsumableCapacity", "DeviceBindingAndStatus"),
    37: (*USED, "ConsumableCapacity", "DeviceBindingAndStatus", "FractionalCapacityRange"),
}
# 1.37 has three implementations; the features that are on decide which one runs.
IMPLEMENTATIONS: Mapping[str, Sequence[str]] = {
    "stable": USED,
    "incubating": FEATURES[37],
    "experimental": (*FEATURES[37], "ListTypeAttributes"),
}


@dataclass(frozen=True)
class Verdict:
    """What the allocator says of one pod's claims on the node."""

    allocations: Sequence[Wire] | None  # `status.allocation` of each claim; None: it doesn't fit
    error: str  # why the pod stops, empty if it doesn't
    node_only: bool  # the error concerns this node alone
    timeout: bool
    seconds: float  # of a new allocator and its search, as the scheduler's Filter has it on one node

    @property
    def devices(self) -> list[list[str]] | None:
        """The names of the devices of each claim in the order in which they were chosen."""
        if self.allocations is None:
            return None
        return [[result["device"] for result in each["devices"].get("results") or ()] for each in self.allocations]


class Allocator:
    """A running allocator of one Kubernetes minor. A context manager; one request at a time."""

    def __init__(self, minor: int = 37, features: Iterable[str] | None = None) -> None:
        self.minor = minor
        self.features = tuple(FEATURES[minor] if features is None else features)
        self._process = subprocess.Popen(
            [str(program(minor))], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._next: dict[str, Any] = {"features": dict.fromkeys(self.features, True)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        self._process.communicate(timeout=30)

    def world(self, *, slices: Sequence[Wire], classes: Sequence[Wire], node: str) -> None:
        """What the next questions are about: every slice that the node sees, all classes, the node's name."""
        self._next |= {"slices": slices, "classes": classes, "node": node}

    def ask(self, claims: Sequence[Wire], *, held: Iterable[Held] = (), timeout: float = 0, repeat: int = 1) -> Verdict:
        """Allocate one pod's claims together beside what is ``held``.

        ``timeout`` in seconds, 0 for none; ``repeat`` asks so often and gives the fastest, for measuring.
        """
        request = self._next | {"claims": claims, "allocated": [*held], "timeout": timeout, "repeat": repeat}
        self._next = {}
        answer = self._exchange(json.dumps(request))
        return Verdict(
            allocations=answer["allocations"],
            error=answer.get("error", ""),
            node_only=answer.get("error", "").startswith(NODE_ONLY),
            timeout=answer.get("timeout", False),
            seconds=answer["seconds"],
        )

    def _exchange(self, line: str) -> dict[str, Any]:
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the allocator has no pipes")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        text = self._process.stdout.readline()
        if not text:
            raise RuntimeError(f"the allocator of 1.{self.minor} has ended with {self._process.wait(30)}")
        answer: dict[str, Any] = json.loads(text)
        return answer


def program(minor: int) -> Path:
    """The program of a minor, built if the cache does not have it."""
    modules = SOURCE / ("go.mod" if minor == MINORS[-1] else f"kubernetes-1.{minor}.mod")
    digest = hashlib.sha256(binaries.go_version().encode())
    for path in (SOURCE / "main.go", modules, modules.with_suffix(".sum")):
        digest.update(path.read_bytes())
    home = binaries.cache_root() / f"allocate-1.{minor}-{digest.hexdigest()[:12]}"
    home.mkdir(exist_ok=True)
    target = home / "allocate"
    with binaries.locked(home / ".lock"):
        if not target.exists():
            _compile(modules, target)
    return target


def _compile(modules: Path, target: Path) -> None:
    temporary = target.with_name(".allocate")
    command = ["go", "build", "-trimpath", "-ldflags=-s -w", f"-modfile={modules}", "-o", str(temporary), "."]
    subprocess.run(command, check=True, cwd=SOURCE)
    temporary.rename(target)
