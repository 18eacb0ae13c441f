"""What the linter says: findings with a path, and the place that rules report from.

Invariant: a path holds the steps of the object as it was given (names of fields, keys of maps, indices of
lists), so it can be followed there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from dra_driver.inventory.lint.server import Server

Path = tuple[str | int, ...]


class Severity(StrEnum):
    """What becomes of it."""

    REFUSED = "refused"  # the server answers 4xx: nothing of the slice is stored
    DROPPED = "dropped"  # the server answers 201 and leaves the field out
    HARMFUL = "harmful"  # the server stores it, and pods suffer


@dataclass(frozen=True)
class Finding:
    """One fault of one slice. `rule` is a stable name, `message` says what is wrong and what is allowed."""

    severity: Severity
    slice: str  # its name, or `#<n>` where it has none
    path: Path
    rule: str
    message: str

    @property
    def field(self) -> str:
        """The path as Kubernetes writes it: `spec.devices[3].attributes[model].string`."""
        return render(self.path)

    def __str__(self) -> str:
        return f"{self.slice}: {self.field or '(object)'}: {self.severity}: {self.message} [{self.rule}]"


_MAPS = {
    "attributes",
    "capacity",
    "counters",
    "labels",
    "annotations",
    "nodeAllocatableResources",
    "nodeAllocatableResourceMappings",
}


def render(path: Sequence[str | int]) -> str:
    """A path in Kubernetes' way."""
    text, parent = "", ""
    for step in path:
        bracketed = isinstance(step, int) or parent in _MAPS
        text += f"[{step}]" if bracketed else f".{step}"
        parent = "" if bracketed else str(step)
    return text.removeprefix(".")


@dataclass(slots=True, eq=False)
class At:
    """Where a rule looks: a place in a slice, on a server, and the list that findings go to.

    Every value of every slice gets one, so a path is only put together where there is something to report.
    """

    server: Server
    slice: str
    sink: list[Finding]
    step: str | int = ""
    above: "At | None" = None

    def __getitem__(self, step: str | int) -> "At":
        """One step further in."""
        return At(self.server, self.slice, self.sink, step, self)

    @property
    def path(self) -> Path:
        """The steps from the object to here."""
        return (*self.above.path, self.step) if self.above else ()

    @property
    def minor(self) -> int:
        """The server's minor version."""
        return self.server.minor

    def refuse(self, rule: str, message: str) -> None:
        """The server doesn't take it."""
        self.sink.append(Finding(Severity.REFUSED, self.slice, self.path, rule, message))

    def drop(self, rule: str, message: str) -> None:
        """The server leaves it out."""
        self.sink.append(Finding(Severity.DROPPED, self.slice, self.path, rule, message))

    def warn(self, rule: str, message: str) -> None:
        """The server takes it, but it does harm."""
        self.sink.append(Finding(Severity.HARMFUL, self.slice, self.path, rule, message))
