"""A plugin with an in-memory claim service, beside the simulator's kubelet, over real unix sockets."""

import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dra_driver.kubelet.plugin import KubeletPlugin
from dra_driver.kubelet.plugin import Timing as PluginTiming
from dra_driver.kubelet.types import (
    Call,
    ClaimRef,
    DeviceHealth,
    DeviceState,
    Failed,
    Prepared,
    PreparedDevice,
    RegistrationState,
)
from dra_driver.simulator.kubelet import FakeKubelet, Timing

DRIVER = "device.example.dev"
DEADLINE = 20.0


def eventually(condition: Callable[[], object], what: str = "") -> None:
    """Look until it holds."""
    deadline = time.monotonic() + DEADLINE
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE} s: {what or condition}"
        pause.wait(0.01)


@dataclass
class MemoryClaims:
    """A claim service that grants one device per claim, and does as it is told for named claims."""

    failing: dict[str, str] = field(default_factory=dict)
    prepares: list[list[str]] = field(default_factory=list)
    unprepares: list[list[str]] = field(default_factory=list)
    hold: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    calls: list[Call] = field(default_factory=list)

    def prepare(self, claims: Sequence[ClaimRef], call: Call) -> Mapping[str, Prepared | Failed]:
        self.prepares.append([claim.name for claim in claims])
        self.calls.append(call)
        self.entered.set()
        if self.hold:
            self.hold.wait(DEADLINE)
        if "raise" in self.failing:
            raise RuntimeError(self.failing["raise"])
        return {claim.uid: self._answer(claim) for claim in claims if claim.name != "unanswered"}

    def _answer(self, claim: ClaimRef) -> Prepared | Failed:
        if claim.name in self.failing:
            return Failed(self.failing[claim.name])
        return Prepared((PreparedDevice(("r0",), "pool", claim.name, (f"{DRIVER}/claim={claim.uid}",)),))

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Failed | None]:
        self.unprepares.append([claim.name for claim in claims])
        if "raise" in self.failing:
            raise RuntimeError(self.failing["raise"])
        return {c.uid: Failed(self.failing[c.name]) if c.name in self.failing else None for c in claims}


@dataclass
class Node:
    """The kubelet's folders, and what is run in them."""

    root: Path
    claims: MemoryClaims = field(default_factory=MemoryClaims)
    devices: list[DeviceHealth] = field(
        default_factory=lambda: [DeviceHealth("pool", "d0", DeviceState.HEALTHY), DeviceHealth("pool", "d1")]
    )
    states: list[RegistrationState] = field(default_factory=list)
    wiped: list[str | None] = field(default_factory=list)
    cleanup: list[Callable[[], None]] = field(default_factory=list)

    @property
    def plugins_dir(self) -> Path:
        return self.root / "plugins"

    @property
    def plugin_dir(self) -> Path:
        return self.plugins_dir / DRIVER

    @property
    def registry_dir(self) -> Path:
        return self.root / "plugins_registry"

    @property
    def device_plugins_dir(self) -> Path:
        return self.root / "device-plugins"

    def kubelet(self, timing: Timing | None = None) -> FakeKubelet:
        """A kubelet that isn't started yet; its folders are there."""
        return FakeKubelet(
            plugins_dir=self.plugins_dir,
            registry_dir=self.registry_dir,
            device_plugins_dir=self.device_plugins_dir,
            wipe_slices=self.wiped.append,
            timing=timing or Timing(tick=0.02, health_retry=0.2),
        )

    def start_kubelet(self, timing: Timing | None = None) -> FakeKubelet:
        kubelet = self.kubelet(timing)
        kubelet.start()
        self.cleanup.append(kubelet.stop)
        return kubelet

    def plugin(self, instance: str = "uid-1", timing: PluginTiming | None = None) -> KubeletPlugin:
        """A plugin that isn't started yet."""
        return KubeletPlugin(
            driver_name=DRIVER,
            plugins_dir=self.plugins_dir,
            registry_dir=self.registry_dir,
            instance=instance,
            service=self.claims,
            health=lambda: list(self.devices),
            on_registration=self.states.append,
            timing=timing or PluginTiming(backoff_first=0.05),
        )

    def start_plugin(self, instance: str = "uid-1", timing: PluginTiming | None = None) -> KubeletPlugin:
        plugin = self.plugin(instance, timing)
        plugin.start()
        self.cleanup.append(plugin.stop)
        return plugin

    def files(self) -> set[str]:
        """Names in both folders."""
        return {path.name for folder in (self.plugin_dir, self.registry_dir) for path in folder.iterdir()}


@pytest.fixture
def node() -> Iterator[Node]:
    """Not under tmp_path: a socket's path has 107 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="node-") as root:
        node = Node(Path(root))
        yield node
        for stop in reversed(node.cleanup):
            stop()


def claim(name: str) -> ClaimRef:
    return ClaimRef("default", name, f"uid-of-{name}")
