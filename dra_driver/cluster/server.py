"""What this API server does with counters: its minor version, and a trial."""

import logging
import re
from dataclasses import dataclass
from typing import Any

from dra_driver.cluster.client import Api
from dra_driver.cluster.compare import same
from dra_driver.cluster.errors import Invalid, ServerError

log = logging.getLogger(__name__)

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


@dataclass(frozen=True)
class Server:
    """What a layout depends on."""

    minor: int
    counters: bool  # whether counter sets survive a write


@dataclass(frozen=True)
class Verdict:
    """The server, and in words why it has no counters (empty where it has)."""

    server: Server
    why_not: str = ""


def examine(api: Api, *, driver: str, node_name: str) -> Verdict:
    """Ask the server for its version and try counters on it; raises ApiError.

    With the DRAPartitionableDevices gate off a server takes counters away and answers 201, dry run or not;
    three pods ran on the same two cores that way. The trial creates nothing and needs the right to create
    only. It has a generated name: a name that is taken would be a 409.
    """
    minor = _minor(api)
    sent = _trial(driver, node_name)
    try:
        got = api.create(SLICES, sent, dry_run=True)
    except Invalid as error:
        return Verdict(Server(minor, counters=False), f"1.{minor} doesn't take a slice of counters: {error}")
    if same(sent["spec"]["sharedCounters"], (got.get("spec") or {}).get("sharedCounters")):
        return Verdict(Server(minor, counters=True))
    return Verdict(
        Server(minor, counters=False),
        "the API server drops shared counters without an error: the feature gate DRAPartitionableDevices is off there",
    )


def _minor(api: Api) -> int:
    told = api.get("/version")
    digits = re.match(r"[0-9]+", str(told.get("minor")))  # a provider's may be "37+"
    if digits is None:
        raise ServerError(f"get /version: no minor version in {told}")
    return int(digits[0])


def _trial(driver: str, node_name: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "trial-"},
        "spec": {
            "driver": driver,
            "nodeName": node_name,
            "pool": {"name": f"{driver}/{node_name}", "generation": 0, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "trial", "counters": {"trial": {"value": "1"}}}],
        },
    }
