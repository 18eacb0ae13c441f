"""The API server that slices are judged for: its minor version and the feature gates that concern slices.

A driver can't read gates through the API, so the defaults of the minor stand for them until a probe knows
better.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from dra_driver.errors import CoresliceError

PARTITIONABLE = "DRAPartitionableDevices"
CONSUMABLE = "DRAConsumableCapacity"
TAINTS = "DRADeviceTaints"
BINDING = "DRADeviceBindingConditions"
DEVICE_STATUS = "DRAResourceClaimDeviceStatus"
LISTS = "DRAListTypeAttributes"
NODE_ALLOCATABLE = "DRANodeAllocatableResources"
PARTITION_TYPE = "DRAPartitionableDevicesType"
NODE_OPERATIONS = "DRAOptionalNodeOperations"
COMPATIBILITY = "DRADeviceCompatibilityGroups"
FRACTIONS = "DRAFractionalCapacityRange"

OLDEST, NEWEST = 34, 37  # v1 came with 1.34; what comes after 1.37 is judged as 1.37

_NEVER = 999
_GATES = {  # gate: the minors that it exists and that it is on by default from
    PARTITIONABLE: (33, 36),
    CONSUMABLE: (34, 36),
    TAINTS: (33, 36),
    BINDING: (34, 36),
    DEVICE_STATUS: (32, 33),
    LISTS: (36, _NEVER),
    NODE_ALLOCATABLE: (36, _NEVER),
    PARTITION_TYPE: (37, _NEVER),
    NODE_OPERATIONS: (37, _NEVER),
    COMPATIBILITY: (37, _NEVER),
    FRACTIONS: (37, 37),
}


@dataclass(frozen=True)
class Server:
    """`gates` are the ones that are on."""

    minor: int
    gates: frozenset[str]

    def on(self, *gates: str) -> bool:
        """Whether all of these are on."""
        return self.gates.issuperset(gates)


def gates(minor: int) -> dict[str, bool]:
    """The gates that a minor has, with their defaults."""
    return {gate: minor >= on for gate, (since, on) in _GATES.items() if minor >= since}


def server(minor: int, features: Mapping[str, bool] | None = None) -> Server:
    """The server of a minor (37 stands for 1.37) with its default gates, but for those in `features`."""
    if minor < OLDEST:
        raise CoresliceError(
            f"slices can't be judged for Kubernetes 1.{minor}: resource.k8s.io/v1 came with 1.{OLDEST}"
        )
    minor = min(minor, NEWEST)
    known = gates(minor)
    if unknown := sorted(set(features or {}) - set(known)):
        text = f"Kubernetes 1.{minor} has no feature gate {', '.join(unknown)} for slices; it has {', '.join(known)}"
        raise CoresliceError(text)
    return Server(minor, frozenset(gate for gate, on in (known | dict(features or {})).items() if on))
