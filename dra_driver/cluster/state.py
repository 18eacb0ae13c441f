"""What a publisher reports about itself."""

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Where publishing stands."""

    STARTING = "starting"
    BLOCKED = "blocked"  # waits for the kubelet's confirmation or for the Node object
    WITHDRAWN = "withdrawn"  # taken back, since it isn't safe to leave; about to be published anew
    WITHHELD = "withheld"  # nothing is published, on purpose
    FAILED = "failed"
    PUBLISHED = "published"


@dataclass(frozen=True)
class PublishState:
    """What the publisher reports. `generation` and `slices` are as read back from the API.

    `counters`: whether what is published relies on shared counters; None until then, False as soon as they
    are known not to hold, with the reason in `why_no_counters`. `left_out`: fields other than
    counters that the server dropped. `watch`: why changes can't be followed at the moment, or empty.
    """

    phase: Phase = Phase.STARTING
    reason: str = "not tried yet"
    generation: int | None = None
    slices: int = 0
    counters: bool | None = None
    why_no_counters: str = ""
    left_out: tuple[str, ...] = ()
    watch: str = ""

    @property
    def ready(self) -> bool:
        """The wanted slices were read back from the API (also if none are wanted)."""
        return self.phase in (Phase.PUBLISHED, Phase.WITHHELD)

    @property
    def text(self) -> str:
        """All of it in one line for people."""
        counters = f"; no shared counters: {self.why_no_counters}" if self.counters is False else ""
        dropped = f"; dropped by the API server: {', '.join(self.left_out)}" if self.left_out else ""
        watch = f"; changes can't be followed: {self.watch}" if self.watch else ""
        return f"{self.phase}: {self.reason}{counters}{dropped}{watch}"
