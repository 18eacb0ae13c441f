"""An API server on loopback, clients of it, and a publisher of a small two-core device model."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cluster.client import Api, Timeout
from dra_driver.cluster.slices import Owner, PublishState, Server, SlicePublisher
from dra_driver.simulator.apiserver.server import ApiServer
from dra_driver.simulator.apiserver.store import Change

Obj = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
DRIVER = "device.example.dev"
NODE = "node-a"
DEADLINE = 20.0


def eventually(condition: Callable[[], object], what: str = "", within: float = DEADLINE) -> float:
    """Look until it holds; returns the seconds that took."""
    start, pause = time.monotonic(), threading.Event()
    while not condition():
        assert time.monotonic() - start < within, f"not within {within} s: {what or condition}"
        pause.wait(0.005)
    return time.monotonic() - start


@dataclass
class Model:
    """Chips of two cores each: a chip overlaps its cores. One device slice per chip; `build` is the builder."""

    chips: int = 2
    nothing: bool = False
    extra: Obj = field(default_factory=dict)  # put into each device
    fails: Exception | None = None

    def build(self, server: Server, generation: int, owner: Owner) -> Sequence[Obj]:
        if self.fails:
            raise self.fails
        if self.nothing:
            return []
        contents = [self.devices(chip, counted=server.counters) for chip in range(self.chips)]
        if server.counters and server.minor < 35:
            merged = [row for content in contents for row in content["devices"]]
            contents = [{"sharedCounters": self.sets(), "devices": merged}]
        elif server.counters:
            contents.insert(0, {"sharedCounters": self.sets()})
        pool = {"name": f"{DRIVER}/{NODE}", "generation": generation, "resourceSliceCount": len(contents)}
        return [self.slice(index, owner, {"pool": pool, **content}) for index, content in enumerate(contents)]

    def sets(self) -> list[Obj]:
        return [{"name": "chips", "counters": {f"chip-{i}": {"value": "2"} for i in range(self.chips)}}]

    def devices(self, chip: int, *, counted: bool) -> Obj:
        draws = {f"core-{chip}-0": 1, f"core-{chip}-1": 1, f"chip-{chip}": 2}
        rows = [{"name": name, **self.extra, "consumesCounters": [_draw(chip, value)]} for name, value in draws.items()]
        if not counted:
            rows = [{"name": f"chip-{chip}", **self.extra}]
        return {"devices": rows}

    def slice(self, index: int, owner: Owner, content: Obj) -> Obj:
        node = {"apiVersion": "v1", "kind": "Node", "name": owner.name, "uid": owner.uid, "controller": True}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{index:05d}-{DRIVER}-{NODE}", "ownerReferences": [node]},
            "spec": {"driver": DRIVER, "nodeName": NODE, **content},
        }


def _draw(chip: int, value: int) -> Obj:
    return {"counterSet": "chips", "counters": {f"chip-{chip}": {"value": str(value)}}}


def _chip(name: str) -> str:
    return name.split("-")[1]


def overlaps(slices: Sequence[Obj]) -> list[tuple[str, str]]:
    """Devices that overlap although at least one of the two draws on no counter."""
    rows = [device for obj in slices for device in obj["spec"].get("devices") or []]
    return [
        (one["name"], other["name"])
        for i, one in enumerate(rows)
        for other in rows[:i]
        if _chip(one["name"]) == _chip(other["name"])
        and {one["name"][:4], other["name"][:4]} == {"chip", "core"}
        and not (one.get("consumesCounters") and other.get("consumesCounters"))
    ]


def usable(slices: Sequence[Obj]) -> list[Obj]:
    """What an allocator takes: the newest generation, if all of its slices and its counter sets are there."""
    pool = [(obj["spec"]["pool"], obj) for obj in slices]
    newest = max((row["generation"] for row, _ in pool), default=0)
    rows = [obj for row, obj in pool if row["generation"] == newest]
    if not rows or len(rows) != rows[0]["spec"]["pool"]["resourceSliceCount"]:
        return []
    sets = {row["name"] for obj in rows for row in obj["spec"].get("sharedCounters") or []}
    drawn = {
        use["counterSet"]
        for obj in rows
        for device in obj["spec"].get("devices") or []
        for use in device.get("consumesCounters") or []
    }
    return rows if drawn <= sets else []


class Witness:
    """Follows each change of the slices and keeps what should never have been there."""

    def __init__(self, server: ApiServer) -> None:
        self.slices: dict[str, Obj] = {}
        self.in_api: list[Any] = []  # overlaps that stood in the API at all
        self.usable: list[Any] = []  # overlaps that an allocator could have used
        server.store.observers.append(self._saw)

    def _saw(self, change: Change) -> None:
        if change.plural != "resourceslices":
            return
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self.slices.pop(name, None)
        else:
            self.slices[name] = change.obj
        self.in_api += overlaps(list(self.slices.values()))
        self.usable += overlaps(usable(list(self.slices.values())))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        server.store.create("nodes", {"metadata": {"name": NODE}})
        yield server


@pytest.fixture
def kubeconfig(tmp_path: Path, server: ApiServer) -> Path:
    return server.kubeconfig(tmp_path / "kubeconfig")


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[Api]:
    with Api(kubeconfig=kubeconfig, timeout=Timeout(connect=2.0, read=5.0)) as api:
        yield api


@dataclass
class Rig:
    """A publisher with what decides its work."""

    server: ApiServer
    model: Model
    witness: Witness
    publisher: SlicePublisher
    states: list[PublishState]
    gate: threading.Event
    attempts: list[bool]  # what was told of writes: done, or failed
    withhold: list[str]  # the reason, if there is one

    @property
    def state(self) -> PublishState:
        return self.publisher.state

    def slices(self) -> list[Obj]:
        return self.server.store.list("resourceslices")

    def start(self) -> "Rig":
        self.publisher.start()
        return self

    def published(self, **wanted: Any) -> PublishState:
        """Wait for one published state with all these values, while the watch is running."""

        def reached() -> bool:
            state = self.state
            return (
                state.ready
                and self.server.watches > 0
                and all(getattr(state, name) == value for name, value in wanted.items())
            )

        eventually(reached, f"published with {wanted}")
        return self.state


@pytest.fixture
def rig(server: ApiServer, api: Api) -> Iterator[Rig]:
    model, states, gate = Model(), [], threading.Event()  # type: Model, list[PublishState], threading.Event
    attempts: list[bool] = []
    withhold: list[str] = []
    gate.set()
    publisher = SlicePublisher(
        api,
        driver=DRIVER,
        node_name=NODE,
        build=model.build,
        may_publish=gate.is_set,
        withhold=lambda node: withhold[0] if withhold and node["metadata"]["name"] == NODE else "",
        on_state=states.append,
        on_publish=attempts.append,
    )
    yield Rig(server, model, Witness(server), publisher, states, gate, attempts, withhold)
    publisher.stop()
