"""What the kubelet asks and what it is answered, free of protobuf.

Shapes follow the DRA gRPC API v1 (k8s.io/kubelet, pkg/apis/dra/v1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class ClaimRef:
    """A ResourceClaim as the kubelet names it; only the UID is an identity."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True)
class PreparedDevice:
    """One allocated device of an answer.

    `requests` are base names: with a subrequest in it the container would silently start without the device.
    The first CDI id is unique to the device, since the kubelet merges health by it.
    """

    requests: tuple[str, ...]
    pool: str
    device: str
    cdi_ids: tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """A claim that is prepared; no devices where it holds none of ours."""

    devices: tuple[PreparedDevice, ...] = ()


@dataclass(frozen=True)
class Failed:
    """A claim that is not; the text reaches the user as an Event on the pod."""

    error: str


class Call(Protocol):
    """The gRPC call that asks. A sync handler isn't interrupted at the deadline, so it has to look."""

    def is_active(self) -> bool:
        """Whether the kubelet still waits for the answer."""

    def time_remaining(self) -> float | None:
        """Seconds until its deadline, None without one."""


class ClaimService(Protocol):
    """Who prepares and unprepares. Called from several threads at once, also for the same claim."""

    def prepare(self, claims: Sequence[ClaimRef], call: Call) -> Mapping[str, Prepared | Failed]:
        """Answer every claim, keyed by UID; never raises for the fault of one claim."""

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Failed | None]:
        """Answer every claim, keyed by UID; None is success."""


class DeviceState(Enum):
    """What is known of a device's health."""

    UNKNOWN = "unknown"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


@dataclass(frozen=True)
class DeviceHealth:
    """One device's health as the kubelet shows it in a pod's status; `message` is for people."""

    pool: str
    device: str
    state: DeviceState = DeviceState.UNKNOWN
    message: str = ""


class RegistrationStatus(Enum):
    """How far the kubelet's acknowledgement has come."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    REFUSED = "refused"


@dataclass(frozen=True)
class RegistrationState:
    """The last registration. `text` says what is waited for, or the kubelet's words when it refused."""

    status: RegistrationStatus
    socket: Path
    text: str = ""

    def __str__(self) -> str:
        return f"registration {self.status.value}: {self.text or self.socket}"
