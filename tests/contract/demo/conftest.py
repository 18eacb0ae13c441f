"""A simulated cluster with a small driver on real sockets, whose failures a test plans."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from dra_driver.kubelet.plugin import KubeletPlugin
from dra_driver.kubelet.types import Call, ClaimRef, Failed, Prepared, PreparedDevice
from dra_driver.simulator.apiserver.store import Store
from dra_driver.simulator.cluster import Cluster, NodePaths

Wire = dict[str, Any]
DRIVER = "neuron.test"


class SmallDriver:
    """Writes a CDI spec for each claim: one node and the allocated device's name in the environment."""

    def __init__(self, store: Store, cdi: Path) -> None:
        self.store = store
        self.cdi = cdi
        self.calls: list[tuple[str, tuple[str, ...]]] = []  # verb, names of claims
        self.refuse = ""  # the answer to Prepare
        self.keep = ""  # the answer to Unprepare
        self.write_spec = True

    def prepare(self, claims: Sequence[ClaimRef], call: Call) -> Mapping[str, Prepared | Failed]:
        del call
        self.calls.append(("prepare", tuple(claim.name for claim in claims)))
        if self.refuse:
            return {claim.uid: Failed(self.refuse) for claim in claims}
        return {claim.uid: self._prepared(claim) for claim in claims}

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Failed | None]:
        self.calls.append(("unprepare", tuple(claim.name for claim in claims)))
        if self.keep:
            return {claim.uid: Failed(self.keep) for claim in claims}
        for claim in claims:
            self._path(claim).unlink(missing_ok=True)
        return {claim.uid: None for claim in claims}

    def _path(self, claim: ClaimRef) -> Path:
        return self.cdi / f"{claim.uid}.json"

    def _prepared(self, claim: ClaimRef) -> Prepared:
        obj = self.store.get("resourceclaims", claim.name, claim.namespace)
        results = obj["status"]["allocation"]["devices"]["results"]
        if self.write_spec:
            self._path(claim).write_text(json.dumps(_spec(claim.uid, results)))
        return Prepared(
            tuple(
                PreparedDevice(
                    (result["request"].partition("/")[0],),
                    result["pool"],
                    result["device"],
                    (f"{DRIVER}/claim={claim.uid}-{result['device']}",),
                )
                for result in results
            )
        )


def _spec(uid: str, results: Sequence[Wire]) -> Wire:
    node = {"path": "/dev/neuron0", "hostPath": "/dev/neuron0", "type": "c", "major": 243, "minor": 0}
    return {
        "cdiVersion": "0.5.0",
        "kind": f"{DRIVER}/claim",
        "devices": [
            {
                "name": f"{uid}-{result['device']}",
                "containerEdits": {
                    "env": [f"DEVICE_{result['device'].replace('-', '_').upper()}=yes"],
                    "deviceNodes": [{**node, "permissions": "rw"}],
                },
            }
            for result in results
        ],
    }


def _publish(cluster: Cluster) -> None:
    """Two cores and a chip on one counter, and what to ask for them by."""

    def device(name: str, kind: str, cost: str) -> Wire:
        uses = [{"counterSet": "chips", "counters": {"chip-0": {"value": cost}}}]
        return {"name": name, "attributes": {"type": {"string": kind}}, "consumesCounters": uses}

    def item(name: str, **spec: Any) -> Wire:
        pool = {"name": f"{DRIVER}/{cluster.node_name}", "generation": 1, "resourceSliceCount": 2}
        body = {"driver": DRIVER, "nodeName": cluster.node_name, "pool": pool, **spec}
        return {"kind": "ResourceSlice", "metadata": {"name": name}, "spec": body}

    counters = [{"name": "chips", "counters": {"chip-0": {"value": "2"}}}]
    devices = [device("core-0-0", "core", "1"), device("core-0-1", "core", "1"), device("chip-0", "chip", "2")]
    cluster.create(item("0-counters", sharedCounters=counters))
    cluster.create(item("1-devices", devices=devices))
    for kind in ("core", "chip"):
        expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "{kind}"'
        spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": f"old.dev/{kind}"}
        cluster.create({"kind": "DeviceClass", "metadata": {"name": kind}, "spec": spec})
        requests = [{"name": "r", "exactly": {"deviceClassName": kind}}]
        template = {"spec": {"devices": {"requests": requests}}}
        cluster.create({"kind": "ResourceClaimTemplate", "metadata": {"name": kind}, "spec": template})


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for the sake of the 107 bytes of a socket's path."""
    with tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def cluster(folder: Path) -> Iterator[Cluster]:
    with Cluster(folder / "c") as cluster:
        yield cluster


@pytest.fixture
def driver(cluster: Cluster) -> Iterator[SmallDriver]:
    paths: NodePaths = cluster.paths
    service = SmallDriver(cluster.store, paths.cdi)
    plugin = KubeletPlugin(
        driver_name=DRIVER,
        plugins_dir=paths.plugins,
        registry_dir=paths.registry,
        instance="one",
        service=service,
        health=list,
        on_registration=lambda _: None,
    )
    plugin.start()
    cluster.kubelet.wait_registered(DRIVER)
    _publish(cluster)
    yield service
    plugin.stop()
