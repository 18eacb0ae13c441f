"""The simulated kubelet's plugin manager: finds, registers, connects and loses DRA drivers as the real one.

As in Kubernetes 1.37: names with a leading dot don't count; dial 10 s, GetInfo 1 s, notification 5 s; the
plugin's connection and its health stream are opened before it is notified; back-off belongs to a socket's
path; a socket that is made anew under its path is a new incarnation. `SliceWiper` has what follows from lost
connections.
"""

import logging
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grpc

from dra_driver.errors import CoresliceError
from dra_driver.kubelet.api import dra_v1_pb2_grpc as dra_grpc
from dra_driver.kubelet.api import pluginregistration_v1_pb2 as registration
from dra_driver.kubelet.api import pluginregistration_v1_pb2_grpc as registration_grpc
from dra_driver.simulator.kubelet_channel import is_ready, open_channel, wait_ready
from dra_driver.simulator.kubelet_health import HealthCache, HealthStream

_log = logging.getLogger(__name__)

_DIAL: Final = 10.0
_GET_INFO: Final = 1.0
_NOTIFY: Final = 5.0
_DRA_VERSIONS: Final = ("v1.DRAPlugin",)
_LONGEST_BACKOFF: Final = 122.0


class PluginError(CoresliceError):
    """A plugin that the kubelet doesn't take or doesn't have, in the kubelet's words."""


@dataclass(frozen=True)
class Timing:
    """Seconds. The real kubelet looks once a second; the rest is as it is there."""

    tick: float = 0.05
    wipe_delay: float = 30.0
    health_retry: float = 5.0
    first_backoff: float = 0.5


@dataclass(eq=False)
class Plugin:
    """One registered instance of a driver and the connection to it."""

    driver: str
    endpoint: str
    channel: grpc.Channel
    stream: HealthStream
    connected: bool = False
    dra: dra_grpc.DRAPluginStub = field(init=False)

    def __post_init__(self) -> None:
        # Now, not when it is used: gRPC crashes the process when a stub is made on a channel that is closed.
        self.dra = dra_grpc.DRAPluginStub(self.channel)

    def close(self) -> None:
        """Drop the connection, and with it whatever call is running."""
        self.stream.stop()
        self.channel.close()
        self.stream.join()


@dataclass
class _Socket:
    """What is known of one path in the registry folder; it outlives the socket, as its back-off does."""

    identity: tuple[int, int]
    plugin: Plugin | None = None
    busy: bool = False
    not_before: float = 0.0
    failures: int = 0


class SliceWiper:
    """Wipes a driver's slices once it has had no connected instance for `delay` seconds, and once only."""

    def __init__(self, wipe: Callable[[str | None], None], delay: float) -> None:
        self._wipe = wipe
        self._delay = delay
        self._since: dict[str, float] = {}

    def wipe_node(self) -> None:
        """What the kubelet does at its start: away with the slices of every driver."""
        self._try(None)

    def look(self, *, registered: set[str], connected: set[str]) -> None:
        """Start, cancel or fire the drivers' timers; a registration without a connection starts one too."""
        now = time.monotonic()
        for driver in registered - connected:
            self._since.setdefault(driver, now)
        for driver in connected:
            self._since[driver] = math.nan
        for driver in set(self._since) - connected:
            since = self._since[driver] = now if math.isnan(self._since[driver]) else self._since[driver]
            if now - since >= self._delay and self._try(driver):
                self._since[driver] = math.inf

    def _try(self, driver: str | None) -> bool:
        try:
            self._wipe(driver)
        except Exception:  # noqa: BLE001 -- the kubelet, too, tries again
            _log.exception("kubelet: wiping slices of %s failed", driver or "the node")
            return False
        return True


class PluginManager:
    """Registered drivers by the sockets in `registry_dir`. Set `refuse` to a text to refuse every plugin."""

    def __init__(
        self, registry_dir: Path, *, wipe: Callable[[str | None], None], timing: Timing, health: HealthCache
    ) -> None:
        self._dir = registry_dir
        self._timing = timing
        self._health = health
        self._wiper = SliceWiper(wipe, timing.wipe_delay)
        self._sockets: dict[Path, _Socket] = {}
        self._plugins: list[Plugin] = []
        self._condition = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet-plugins", daemon=True)
        self._operations: list[threading.Thread] = []
        self.refuse: str | None = None

    def start(self) -> None:
        """Wipe the node's slices, then look for plugins."""
        self._wiper.wipe_node()
        self._thread.start()

    def stop(self) -> None:
        """Forget every plugin; none is told."""
        self._stopping.set()
        self._thread.join()
        for operation in self._operations:
            operation.join()
        for plugin in list(self._plugins):
            self._remove(plugin)

    def plugin(self, driver: str) -> Plugin:
        """Who gets the calls: the connected instance added last, else the one added last.

        Raises PluginError where the driver isn't registered.
        """
        with self._condition:
            known = [plugin for plugin in self._plugins if plugin.driver == driver]
        if not known:
            raise PluginError(f"DRA driver {driver} is not registered")
        return next((plugin for plugin in reversed(known) if plugin.connected), known[-1])

    def drivers(self) -> list[str]:
        """Names of the registered drivers."""
        with self._condition:
            return sorted({plugin.driver for plugin in self._plugins})

    def endpoints(self, driver: str) -> list[str]:
        """DRA sockets of the driver's registered instances, in the order they were added."""
        with self._condition:
            return [plugin.endpoint for plugin in self._plugins if plugin.driver == driver]

    def connected(self, driver: str) -> bool:
        """Whether some instance of the driver is connected."""
        with self._condition:
            return any(plugin.connected for plugin in self._plugins if plugin.driver == driver)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until something about the plugins holds."""
        with self._condition:
            return self._condition.wait_for(condition, timeout)

    def _run(self) -> None:
        while not self._stopping.is_set():
            found = _sockets(self._dir)
            self._lose(found)
            self._operate(found)
            self._look_after_connections()
            self._stopping.wait(self._timing.tick)

    def _lose(self, found: dict[Path, tuple[int, int]]) -> None:
        """Deregister what was removed or replaced."""
        for path, known in self._sockets.items():
            if known.plugin and not known.busy and found.get(path) != known.identity:
                self._remove(known.plugin)
                known.plugin = None

    def _operate(self, found: dict[Path, tuple[int, int]]) -> None:
        """Register what is new and not in back-off, each path by itself."""
        for path, identity in found.items():
            known = self._sockets.setdefault(path, _Socket(identity))
            if known.busy or known.plugin or time.monotonic() < known.not_before:
                continue
            known.identity, known.busy = identity, True
            thread = threading.Thread(target=self._attempt, args=(path, known), name="kubelet-register", daemon=True)
            self._operations = [*(t for t in self._operations if t.is_alive()), thread]
            thread.start()

    def _attempt(self, path: Path, known: _Socket) -> None:
        try:
            known.plugin = self._register(path)
            known.failures = 0
        except (grpc.RpcError, PluginError) as error:
            backoff = min(self._timing.first_backoff * 2**known.failures, _LONGEST_BACKOFF)
            known.failures += 1
            known.not_before = time.monotonic() + backoff
            _log.info("kubelet: registration of %s failed, next try in %g s: %s", path, backoff, error)
        finally:
            known.busy = False

    def _register(self, path: Path) -> Plugin:
        with _dial(path) as channel:
            stub = registration_grpc.RegistrationStub(channel)
            info = stub.GetInfo(registration.InfoRequest(), timeout=_GET_INFO)
            try:
                plugin = self._add(info, path)
            except PluginError as refusal:
                _notify(stub, str(refusal))
                raise
            try:
                _notify(stub, None)
            except grpc.RpcError:
                self._remove(plugin)
                raise
            self._changed()
            return plugin

    def _add(self, info: registration.PluginInfo, path: Path) -> Plugin:
        self._validate(info, path)
        endpoint = info.endpoint or str(path)
        channel = open_channel(endpoint)
        stream = HealthStream(
            info.name, info.supported_versions, channel, cache=self._health, retry=self._timing.health_retry
        )
        plugin = Plugin(info.name, endpoint, channel, stream)
        with self._condition:
            if endpoint in self.endpoints(info.name):
                channel.close()
                raise PluginError(f"endpoint {endpoint} already registered for DRA driver plugin {info.name}")
            self._plugins.append(plugin)
        stream.start()
        return plugin

    def _validate(self, info: registration.PluginInfo, path: Path) -> None:
        if self.refuse is not None:
            raise PluginError(self.refuse)
        if info.type != "DRAPlugin":
            raise PluginError(f"no handler registered for plugin type: {info.type} at socket {path}")
        if not any(version in _DRA_VERSIONS for version in info.supported_versions):
            offered = ", ".join(info.supported_versions) or "none"
            raise PluginError(f"DRA driver {info.name} offers no version that is known here: {offered}")

    def _look_after_connections(self) -> None:
        with self._condition:
            plugins = list(self._plugins)
        for plugin in plugins:
            plugin.connected = is_ready(plugin.channel)
        self._changed()
        self._wiper.look(
            registered={plugin.driver for plugin in plugins},
            connected={plugin.driver for plugin in plugins if plugin.connected},
        )

    def _remove(self, plugin: Plugin) -> None:
        with self._condition:
            self._plugins.remove(plugin)
        plugin.connected = False
        plugin.close()
        self._changed()

    def _changed(self) -> None:
        with self._condition:
            self._condition.notify_all()


def _sockets(registry_dir: Path) -> dict[Path, tuple[int, int]]:
    """Every socket under the folder with its device and inode, dot-names left out."""
    found = {}
    for folder, subfolders, names in os.walk(registry_dir):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for path in (Path(folder, name) for name in names if not name.startswith(".")):
            try:
                status = path.lstat()
            except OSError:
                continue
            if stat.S_ISSOCK(status.st_mode):
                found[path] = (status.st_dev, status.st_ino)
    return found


@contextmanager
def _dial(path: Path) -> Iterator[grpc.Channel]:
    with open_channel(path) as channel:
        if not wait_ready(channel, _DIAL):
            raise PluginError(f"failed to dial socket {path}")
        yield channel


def _notify(stub: registration_grpc.RegistrationStub, refusal: str | None) -> None:
    status = registration.RegistrationStatus(plugin_registered=refusal is None, error=refusal or "")
    stub.NotifyRegistrationStatus(status, timeout=_NOTIFY)
