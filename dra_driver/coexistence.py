"""Who else hands out this node's chips, and what about the node itself speaks against publishing.

Two ledgers for the same silicon give one core to two pods (BC-105). So nothing is published while a device plugin or
another DRA driver offers the chips, nor while a container that the plugin served still runs: it outlives the plugin.
Evidence is local (sockets, the kubelet's podresources) plus the Node object, which whoever reads it hands in.

Invariants: state, not events, decides; a trigger only makes the next look earlier. What isn't there is a normal state.
What was told once stays until it is told otherwise: a kubelet that is away has freed nothing.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from dra_driver.cluster import node as node_object
from dra_driver.cluster.backoff import Backoff
from dra_driver.errors import KubeletError
from dra_driver.findings import Finding
from dra_driver.kubelet import foreign, podresources
from dra_driver.kubelet.watch import FolderWatch
from dra_driver.settings import Coexistence, Settings

log = logging.getLogger(__name__)

PLUGIN: Final = "DevicePluginActive"
CONTAINERS: Final = "DevicePluginContainers"
UNKNOWN: Final = "DevicePluginsUnknown"
DRIVER: Final = "OtherDriverActive"
RUNTIME: Final = "RuntimeWithoutCDI"
KUBELET: Final = "KubeletDeadlocks"
CONFLICTS: Final = (PLUGIN, CONTAINERS, UNKNOWN, DRIVER)
REASONS: Final = (*CONFLICTS, RUNTIME, KUBELET)

_SHOWN = 4  # containers that are named
_DEBOUNCE = 0.1  # seconds: a plugin makes several sockets, and registers after that
_NONE_FOR = 5.0  # seconds
_FIRST_PAUSE = 1.0  # seconds after a trigger; doubling, so that what follows on the sockets is seen soon


class Neighbours:
    """Looks around from a thread of its own, between `start` and `stop`.

    `changed` is called from that thread when something else than before is found: it must not block.
    """

    def __init__(self, settings: Settings, *, changed: Callable[[], None]) -> None:
        self._settings = settings
        self._changed = changed
        self._told: podresources.Told | None = None
        self._none_since: float | None = None  # since when the kubelet tells of no container any more
        self._silent = ""  # why the kubelet doesn't tell
        self._local: tuple[Finding, ...] = ()
        self._of_node: tuple[Finding, ...] = ()
        self._offered_by_node: dict[str, str] = {}
        self._backoff = Backoff(first=_FIRST_PAUSE, limit=settings.rescan_interval)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        folders = (settings.kubelet_device_plugins_dir, settings.kubelet_registrar_dir)
        self._watch = FolderWatch(folders, self._wake.set)
        self._thread = threading.Thread(target=self._run, name="neighbours", daemon=True)

    def start(self) -> None:
        """Look once, so that nothing is published before, then go on looking."""
        if self._settings.coexistence is Coexistence.IGNORE:
            return
        self._look()
        self._watch.start()
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a question to the kubelet under way may outlive this by its timeout."""
        self._stopping.set()
        self._wake.set()
        self._watch.stop()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def look_again(self) -> None:
        """Soon: something may have changed, such as the kubelet."""
        self._wake.set()

    def node_read(self, node: dict[str, Any]) -> None:
        """Take what the Node object says, as it was just read."""
        looked_for = self._settings.coexistence is not Coexistence.IGNORE
        names = self._settings.legacy_resource_names if looked_for else ()
        self._offered_by_node = node_object.allocatable(node, names)
        self._of_node = tuple(_about_node(node, assume_cdi=self._settings.assume_cdi))

    def findings(self) -> tuple[Finding, ...]:
        """All that was found, whatever the policy makes of it."""
        others = [finding for finding in self._local if finding.reason != PLUGIN]
        return (*self._plugins(), *others, *self._of_node)

    def withheld(self) -> str:
        """Why nothing may be published now; empty where it may."""
        found = [finding.text for finding in self.findings() if self._blocks(finding)]
        return "; ".join(found)

    def holders(self) -> str:
        """Containers that hold chips of a device plugin, where the policy is to respect them; else empty."""
        if self._settings.coexistence is not Coexistence.REFUSE:
            return ""
        return next((finding.text for finding in self._local if finding.reason == CONTAINERS), "")

    def _blocks(self, finding: Finding) -> bool:
        if finding.reason in CONFLICTS:
            return self._settings.coexistence is Coexistence.REFUSE
        return finding.reason == RUNTIME

    def _plugins(self) -> list[Finding]:
        """One finding of all witnesses, or each of them would be an Event. The kubelet knows first and best."""
        by_kubelet = self._told.offered if self._told else {}
        by_node = {name: amount for name, amount in self._offered_by_node.items() if name not in by_kubelet}
        evidence = [f"{name} {amount}" for name, amount in sorted(by_kubelet.items())]
        evidence += [f"{name} {amount} in the node's status" for name, amount in sorted(by_node.items())]
        if not evidence:
            return [finding for finding in self._local if finding.reason == PLUGIN]
        return [_plugin(f"offers the same chips ({', '.join(evidence)})")]

    # the thread

    def _run(self) -> None:
        while not self._stopping.is_set():
            pause = self._backoff.next()
            if self._wake.wait(pause if self._none_since is None else min(pause, _NONE_FOR)):
                self._stopping.wait(_DEBOUNCE)
                self._wake.clear()
                self._backoff.reset()
            if self._stopping.is_set():
                return
            self._watch.rearm()
            try:
                self._look()
            except Exception:
                log.exception("a look at who else serves this node failed")
            if self._node_is_due():
                self._changed()

    def _node_is_due(self) -> bool:
        """Whether to have the Node read again: it lags behind, and is spared while the plugin is seen from here.

        Its containers and other drivers tell nothing of the plugin: what the Node said of it would stand until they go.
        """
        if (self._told and self._told.offered) or any(finding.reason == PLUGIN for finding in self._local):
            return False
        return bool(self._offered_by_node) or (self._told is None and not self._local and not self._backoff.full)

    def _look(self) -> None:
        before = self._local, self._told
        self._ask()
        self._local = tuple(self._containers() + self._sockets())
        if (self._local, self._told) != before:
            self._changed()

    def _ask(self) -> None:
        silent = ""
        try:
            told = podresources.ask(self._settings.pod_resources_socket, self._settings.legacy_resource_names)
            self._told = self._believed(told) if told else self._told
        except KubeletError as error:
            silent = str(error)
        if silent and silent != self._silent:
            log.warning("containers of a device plugin can't be looked for: %s", silent)
        self._silent = silent

    def _believed(self, told: podresources.Told) -> podresources.Told:
        """A kubelet that has just started knows no pods yet: no containers at all has to stay so for a while."""
        before = self._told.holders if self._told else ()
        if told.holders or not before:
            self._none_since = None
            return told
        now = time.monotonic()
        self._none_since = self._none_since or now
        return told if now - self._none_since >= _NONE_FOR else replace(told, holders=before)

    def _containers(self) -> list[Finding]:
        if self._told is None:
            return [_unknown(self._silent)] if self._silent else []
        return [_containers(self._told.holders)] if self._told.holders else []

    def _sockets(self) -> list[Finding]:
        folder, names = self._settings.kubelet_device_plugins_dir, self._settings.legacy_resource_names
        others = [name for name in self._settings.other_drivers if name != self._settings.driver_name]
        try:
            found = [_other_driver(name, paths) for name in others if (paths := self._of_driver(name))]
            if paths := foreign.of_device_plugin(folder, names):
                found.append(_plugin(f"serves {', '.join(paths)}"))
        except KubeletError as error:
            return [_unknown(str(error))]
        return found

    def _of_driver(self, name: str) -> list[str]:
        return foreign.of_driver(name, self._settings.kubelet_plugins_dir, self._settings.kubelet_registrar_dir)


def _plugin(does: str) -> Finding:
    return Finding(
        PLUGIN, f"a device plugin {does}: take it off this node, since two ledgers would give one core to two pods"
    )


def _containers(holders: Sequence[podresources.Holder]) -> Finding:
    named = ", ".join(map(str, holders[:_SHOWN]))
    more = f" and {len(holders) - _SHOWN} more" if len(holders) > _SHOWN else ""
    return Finding(CONTAINERS, f"containers that a device plugin served still hold chips until they end: {named}{more}")


def _unknown(why: str) -> Finding:
    return Finding(UNKNOWN, f"whether others hand out this node's chips can't be told: {why}")


def _other_driver(name: str, paths: Sequence[str]) -> Finding:
    return Finding(
        DRIVER,
        f"the DRA driver {name} serves this node ({', '.join(paths)}): take one of the two off it, "
        "since both publish the same chips",
    )


def _about_node(node: dict[str, Any], *, assume_cdi: bool) -> list[Finding]:
    found = []
    if (runtime := node_object.without_cdi(node)) and not assume_cdi:
        text = (
            f"the container runtime {runtime} has CDI off by default, and without it containers start without their "
            "devices: use containerd 2.0, or switch CDI on there and say so by --assume-cdi (ASSUME_CDI)"
        )
        found.append(Finding(RUNTIME, text))
    if kubelet := node_object.deadlocking_kubelet(node):
        text = (
            f"kubelet {kubelet} stops calling drivers after half an hour without a pod that has claims "
            "(kubernetes#133920) until it is restarted: update it to 1.34.2 or later"
        )
        found.append(Finding(KUBELET, text))
    return found
