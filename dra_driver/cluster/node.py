"""What a v1 Node object says about its kubelet, its runtime and device plugins. Pure; absent fields are unknown."""

import re
from collections.abc import Collection
from typing import Any
from urllib.parse import quote

Obj = dict[str, Any]

# Their gRPC connection to a driver deadlocks after half an hour without a call (kubernetes#133920, BC-006).
_DEADLOCKING = {(1, 34, 0), (1, 34, 1)}


def path(name: str) -> str:
    """Where the API server has it."""
    return f"/api/v1/nodes/{quote(name, safe='')}"


def allocatable(node: Obj, names: Collection[str]) -> dict[str, str]:
    """Those of the resource names of which the node offers any, with the amount as it is written there."""
    offered = (node.get("status") or {}).get("allocatable") or {}
    return {name: str(offered[name]) for name in sorted(names) if str(offered.get(name, "0")) not in ("0", "")}


def cordoned(node: Obj) -> bool:
    """Whether the scheduler puts no new pods here, as at the beginning of a drain."""
    return (node.get("spec") or {}).get("unschedulable") is True


def without_cdi(node: Obj) -> str:
    """The runtime's name and version where CDI is off unless configured, else empty.

    containerd before 2.0 then starts containers without their devices, and nobody is told.
    """
    runtime = _info(node, "containerRuntimeVersion")
    match = re.match(r"containerd://v?(\d+)\.", runtime)
    return runtime if match and int(match[1]) < 2 else ""  # noqa: PLR2004 containerd 2.0


def deadlocking_kubelet(node: Obj) -> str:
    """The kubelet's version where it is known to stop calling drivers after a while, else empty."""
    version = _info(node, "kubeletVersion")
    match = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return version if match and tuple(map(int, match.groups())) in _DEADLOCKING else ""


def _info(node: Obj, key: str) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get(key) or "")
