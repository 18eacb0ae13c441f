"""Every reason for which a claim isn't prepared, in one table.

A refusal at prepare is a dead end: the kubelet asks again for ever and the scheduler never moves the pod. So each
reason says which earlier gate catches it, or why none can, and whether waiting helps.
"""

from dataclasses import dataclass
from enum import Enum

from dra_driver.errors import CoresliceError


@dataclass(frozen=True)
class PodRef:
    """A pod of the claim's own namespace."""

    name: str
    uid: str


class Reason(Enum):
    """Stable names, used in Events and metrics: (waiting may help, the earlier gate)."""

    CLAIM_UNREADABLE = ("ClaimUnreadable", True, "none: the API server is away or slow")
    CLAIM_REPLACED = ("ClaimReplaced", False, "none: the claim was made anew under the same name")
    CLAIM_NOT_ALLOCATED = ("ClaimNotAllocated", False, "the kubelet checks the allocation before it calls")
    CLAIM_MALFORMED = ("ClaimMalformed", False, "the API server validates claims")
    OPAQUE_CONFIG = ("OpaqueConfigRefused", False, "admission: opaque configuration for this driver")
    FOREIGN_POOL = ("ForeignPool", False, "the scheduler allocates this node's pool only")
    UNKNOWN_DEVICE = ("UnknownDevice", False, "none: the device vanished after it was allocated")
    OTHER_LNC = (
        "OtherLogicalCoreConfig",
        False,
        "none: the node's LNC was changed after the claim was allocated",
    )
    NOT_A_POD = (
        "ReservedForNoPod",
        False,
        "none: PodGroup reservations (gate off by default) aren't supported",
    )
    SEVERAL_REQUESTS = ("SeveralRequestsInSharedClaim", False, "admission: one request of ours per claim")
    PODS_UNREADABLE = ("PodNeeded", False, "documented: the right to read pods is switched off")
    POD_UNREADABLE = ("PodUnreadable", True, "none: the API server is away or slow")
    POD_REPLACED = ("PodReplaced", False, "none: the pod was made anew under the same name")
    POD_MALFORMED = ("PodMalformed", False, "the API server validates pods")
    POD_INCOMPLETE = ("PodStatusIncomplete", True, "none: the pod's status doesn't name the claim yet")
    MIXED_WITH_SHARED = ("CombinedWithSharedClaim", False, "none: admission can't see who else uses a claim")
    SHARED_TOGETHER = ("SharedClaimsCombined", False, "none: admission can't see who else uses a claim")
    DIFFERENT_GRANTS = ("DifferentGrantsForOneDevice", False, "documented: a claim of its own for each container")
    NOT_CONTIGUOUS = ("NotContiguous", False, "admission: one request is one device")
    OVERLAP = ("DevicesOverlap", False, "the scheduler's counters; no overlapping devices are published without them")
    SIBLING = ("OtherClaimOfContainer", False, "that of the other claim")
    DEVICE_HELD = ("DeviceHeld", True, "the scheduler; a forced delete goes round it")
    HELD_ELSEWHERE = ("HeldByDevicePlugin", True, "none: nothing is published then, but the claim was allocated before")
    STILL_IN_USE = ("OldDeviceInUse", True, "none: the claim was allocated anew while its old container runs")
    CHIP_CHANGED = ("ChipChanged", False, "none: the hardware changed under a held name")
    SCAN_OUTDATED = ("ScanOutdated", True, "none: the hardware changed since it was last scanned")
    RECORD_UNREADABLE = ("RecordUnreadable", True, "none: a record on disk is damaged")
    NO_LONGER_WANTED = (
        "NoLongerWanted",
        True,
        "none: the pod was deleted meanwhile, or the call was given up",
    )
    STORAGE = ("StorageFailed", True, "none: the disk or the CDI directory refuses a write")

    def __init__(self, code: str, retryable: bool, gate: str) -> None:  # noqa: FBT001 (an enum's row)
        self.code = code
        self.retryable = retryable
        self.gate = gate


class Refusal(CoresliceError):  # noqa: N818 (a refusal is an answer, not a fault)
    """Why one claim isn't prepared; `detail` says what, which device or claim, and what to change.

    No frozen dataclass: a context manager sets the traceback of what passes through it.
    """

    def __init__(self, reason: Reason, detail: str, pods: tuple[PodRef, ...] = ()) -> None:
        super().__init__(reason, detail, pods)
        self.reason = reason
        self.detail = detail
        self.pods = pods  # whom to tell beside the kubelet; empty where the claim couldn't be read

    def about(self, pods: tuple[PodRef, ...]) -> "Refusal":
        """The same, to be told to these pods."""
        return Refusal(self.reason, self.detail, pods)

    def __str__(self) -> str:
        hint = "" if self.reason.retryable else "; the pod has to be deleted and made again once that is changed"
        return f"{self.reason.code}: {self.detail}{hint}"
