"""Questions about grants: what a container got, what the driver holds, how often the kubelet asked.

Answered from outside of the driver's code: by what the container printed, by the files
on disk and by the kubelet's own metrics.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from testbed.api import Object
from testbed.driver import Driver
from testbed.node import Node
from testbed.waiting import until

VISIBLE_CORES = "NEURON_RT_VISIBLE_CORES"
HELD_SECONDS = 30.0


class Serves(Protocol):
    """The driver on a node, however it got there."""

    @property
    def node(self) -> Node:
        """The node."""

    @property
    def name(self) -> str:
        """The driver's name."""

    def cdi_files(self) -> list[Path]:
        """Its CDI files."""


def seen(driver: Driver, pod: str, container: str = "main") -> dict[str, str]:
    """All of Neuron that a container saw: its ``NEURON_…`` variables and its nodes, ``major:minor`` by path."""
    view = driver.node.view(pod, container)
    return {key: value for key, value in view.env.items() if key.startswith("NEURON_")} | dict(view.nodes)


def on_chip(driver: Driver, cores: str | None = None) -> dict[str, str]:
    """What there is to see for a grant on the only chip of the machine; without ``cores`` of the whole chip."""
    nodes = {"/dev/neuron0": f"{driver.major}:0"}
    return nodes | ({VISIBLE_CORES: cores} if cores is not None else {})


def by_core(*grants: dict[str, str]) -> list[dict[str, str]]:
    """What several containers saw, by their cores: which pod of two gets which core is the allocator's choice."""
    return sorted(grants, key=lambda grant: grant.get(VISIBLE_CORES, ""))


def records(driver: Serves) -> list[Mapping[str, Any]]:
    """The driver's records, as they lie on disk."""
    folder = driver.node.paths.plugins / driver.name / "claims"
    return [json.loads(path.read_text().splitlines()[0]) for path in sorted(folder.glob("*.record"))]


def held(driver: Serves) -> dict[str, list[str]]:
    """Claim names → their devices, by the driver's records."""
    return {
        item["claim"]["name"]: sorted(device["published"]["name"] for device in item["devices"])
        for item in records(driver)
    }


def cdi_file(driver: Serves, claim: Object) -> Path:
    """Where the driver describes a claim to the runtime."""
    return driver.node.paths.cdi / f"{driver.name}-claim_{claim['metadata']['uid']}.json"


def wait_nothing_held(driver: Serves) -> None:
    """Wait until neither a record nor a CDI file of the driver is left."""
    until(
        lambda: not records(driver) and not driver.cdi_files(),
        what="every claim unprepared",
        timeout=HELD_SECONDS,
        seen=lambda: (held(driver), driver.cdi_files()),
    )


def prepare_calls(driver: Serves) -> int:
    """How many calls to prepare claims the driver has answered so far, by the kubelet's metrics."""
    text = driver.node.api.request("GET", f"/api/v1/nodes/{driver.node.name}/proxy/metrics")["message"]
    labels = rf'driver_name="{re.escape(driver.name)}",grpc_status_code="OK",method_name="[^"]*/NodePrepareResources"'
    found = re.search(rf"^dra_grpc_operations_duration_seconds_count{{{labels}}} (\d+)$", text, flags=re.MULTILINE)
    return int(found[1]) if found else 0


def wait_waiting(node: Node, pod: str, pattern: str) -> str:
    """Wait until the scheduler says of a pod that it fits nowhere, in words that match; the whole message."""

    def said() -> str | None:
        message = node.wait_unschedulable(pod)
        return message if re.search(pattern, message) else None

    return until(said, what=f"{pod} waits with {pattern!r}", timeout=HELD_SECONDS, seen=lambda: node.describe(pod))
