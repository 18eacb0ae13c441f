"""A cluster of one node in this process: API server, scheduler, controllers and kubelet, over real HTTP and sockets.

Drivers are not part of it: they connect as on a real node, with `kubeconfig` and the kubelet's folders. One
thread runs the control loops to rest after every change of the store; `wait` is how everybody else sees an
effect.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from dra_driver.errors import CoresliceError
from dra_driver.neuron.machine import Machine
from dra_driver.simulator import controllers
from dra_driver.simulator.apiserver.resources import RESOURCES
from dra_driver.simulator.apiserver.server import ApiServer
from dra_driver.simulator.container import ContainerView
from dra_driver.simulator.kubelet import FakeKubelet, Timing
from dra_driver.simulator.node import FINALIZER, Node
from dra_driver.simulator.objects import Obj, condition, find
from dra_driver.simulator.scheduler import Scheduler

_log = logging.getLogger(__name__)

_TICK = 0.05  # how soon a change that isn't in the store is seen: devices that a device plugin lists
_PLURALS = {resource.kind: resource.plural for resource in RESOURCES.values()}
T = TypeVar("T")


class WaitError(CoresliceError):
    """Something that was waited for didn't come; the text says what and how things stand."""


@dataclass(frozen=True)
class NodePaths:
    """The folders of a node under one root. Keep the root short: a socket's path has at most 107 bytes."""

    root: Path

    @property
    def plugins(self) -> Path:
        """`--kubelet-plugins-dir`."""
        return self.root / "plugins"

    @property
    def registry(self) -> Path:
        """`--kubelet-registrar-dir`."""
        return self.root / "reg"

    @property
    def device_plugins(self) -> Path:
        """Where device plugins register."""
        return self.root / "dp"

    @property
    def pod_resources(self) -> Path:
        """Where the kubelet tells which container holds what."""
        return self.root / "pr"

    @property
    def cdi(self) -> Path:
        """`--cdi-root`."""
        return self.root / "cdi"


class Cluster:
    """Use as a context; objects are plain dicts as the API has them."""

    def __init__(
        self, root: Path, *, node: str = "node-1", machine: Machine | None = None, timing: Timing | None = None
    ) -> None:
        """`machine` gives the numbers of the host's device nodes to containers of a device plugin."""
        self.paths = NodePaths(root)
        self.node_name = node
        self.api = ApiServer()
        self.store = self.api.store
        self.kubelet = FakeKubelet(
            plugins_dir=self.paths.plugins,
            registry_dir=self.paths.registry,
            device_plugins_dir=self.paths.device_plugins,
            pod_resources_dir=self.paths.pod_resources,
            wipe_slices=self._wipe_slices,
            timing=timing,
        )
        self.paths.cdi.mkdir(parents=True, exist_ok=True)
        numbers = {f"/dev/neuron{c.index}": (c.major, c.minor) for c in (machine.chips if machine else ())}
        self.node = Node(self.store, self.kubelet, name=node, cdi_dirs=[self.paths.cdi], numbers=numbers)
        self._scheduler = Scheduler(self.store)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="control-plane", daemon=True)
        self.kubeconfig = root / "kubeconfig"

    def __enter__(self) -> Self:
        self.api.start()
        self.api.kubeconfig(self.kubeconfig)
        self.store.create("nodes", {"metadata": {"name": self.node_name}})
        self.kubelet.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self.store.wake()
        self._thread.join()
        self.node.stop()
        self.kubelet.stop()
        self.api.stop()

    def _run(self) -> None:
        """Everything to rest, then again when something has changed."""
        while not self._stopping.is_set():
            version = self.store.version
            try:
                self._step()
            except Exception:  # noqa: BLE001 -- a loop that dies would make every wait a riddle
                _log.exception("simulated control plane: a step failed")
            self.store.wait(version, _TICK)

    def _step(self) -> None:
        controllers.make_claims(self.store)
        controllers.release_claims(self.store)
        self._scheduler.step()
        self.node.step()

    def create(self, obj: Mapping[str, Any]) -> Obj:
        """Create an object of any kind that is served, in its namespace or `default`."""
        return self.store.create(_PLURALS[obj["kind"]], dict(obj))

    def pod(self, name: str, namespace: str = "default") -> Obj | None:
        """A pod as it stands now."""
        return find(self.store, "pods", name, namespace)

    def delete_pod(self, name: str, namespace: str = "default", *, force: bool = False) -> None:
        """Delete a pod. By force its object is gone at once, before its devices are given back."""
        if force and (pod := self.pod(name, namespace)):
            rest = [one for one in pod["metadata"].get("finalizers") or () if one != FINALIZER]
            self.store.update("pods", {**pod, "metadata": {**pod["metadata"], "finalizers": rest}})
        self.store.delete("pods", name, namespace=namespace)

    def wait(self, what: str, found: Callable[[], T | None], timeout: float = 10.0) -> T:
        """What `found` gives as soon as it is something other than None or False; raises WaitError."""
        deadline = time.monotonic() + timeout
        while True:
            version = self.store.version
            result = found()
            if result is not None and result is not False:
                return result
            if (left := deadline - time.monotonic()) <= 0:
                raise WaitError(f"{what}: not within {timeout:g} s")
            self.store.wait(version, min(left, _TICK))

    def wait_running(self, name: str, namespace: str = "default", timeout: float = 10.0) -> Obj:
        """Wait until a pod runs; WaitError tells its last condition or failure."""
        try:
            return self.wait("runs", lambda: self._in_phase(name, namespace, "Running"), timeout)
        except WaitError:
            raise WaitError(f"pod {name} doesn't run within {timeout:g} s: {self.why(name, namespace)}") from None

    def wait_unschedulable(self, name: str, namespace: str = "default", timeout: float = 10.0) -> str:
        """Wait until the scheduler says why a pod waits; gives the reason. That its claim isn't made yet is none."""

        def reason() -> str | None:
            told = self._unschedulable(name, namespace) or ""
            return None if told.startswith("waiting for a resourceclaim to be created") else told or None

        return self.wait(f"pod {name} waits", reason, timeout)

    def wait_gone(self, name: str, namespace: str = "default", timeout: float = 10.0) -> None:
        """Wait until a pod's object is gone, its devices given back before."""
        self.wait(f"pod {name} is gone", lambda: self.pod(name, namespace) is None, timeout)

    def views(self, name: str, namespace: str = "default") -> dict[str, ContainerView]:
        """What each container of a running pod sees."""
        pod = self.pod(name, namespace)
        return self.node.views(pod["metadata"]["uid"]) if pod else {}

    def why(self, name: str, namespace: str = "default") -> str:
        """Why a pod isn't running, in the cluster's words."""
        pod = self.pod(name, namespace)
        if pod is None:
            return "it isn't there"
        status = pod.get("status") or {}
        waits = self._unschedulable(name, namespace)
        return status.get("message") or waits or f"phase {status.get('phase', 'Pending')}, nothing said"

    def _in_phase(self, name: str, namespace: str, phase: str) -> Obj | None:
        pod = self.pod(name, namespace)
        return pod if pod and (pod.get("status") or {}).get("phase") == phase else None

    def _unschedulable(self, name: str, namespace: str) -> str | None:
        pod = self.pod(name, namespace)
        scheduled = condition(pod, "PodScheduled") if pod else None
        return str(scheduled["message"]) if scheduled and scheduled["status"] == "False" else None

    def _wipe_slices(self, driver: str | None) -> None:
        fields = {"spec.nodeName": self.node_name} | ({"spec.driver": driver} if driver else {})
        for item in self.store.list("resourceslices", fields=fields):
            self.store.delete("resourceslices", item["metadata"]["name"])
