"""The pod side of a simulated kubelet: bound pods are started, deleted ones ended, and the node's status is kept.

No container runs. What one would see is computed from what the drivers said: CDI ids are resolved and
applied as a runtime does it, a device plugin's answer is added. Failures are told as the kubelet tells
them: an Event, the pod stays Pending; the next try comes with `resync`, which stands for the kubelet's
minute, so that nothing here waits.

A finalizer stands for graceful deletion: a pod that was bound is gone only when its devices have been given
back.
"""

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cdi.errors import CdiError
from dra_driver.errors import CoresliceError
from dra_driver.kubelet.types import ClaimRef
from dra_driver.simulator import extended_resources
from dra_driver.simulator.allocator import results
from dra_driver.simulator.apiserver.store import Store
from dra_driver.simulator.container import BASE_SPEC, ContainerView, SeenNode, see
from dra_driver.simulator.kubelet import AllocationError, FakeKubelet, PrepareError
from dra_driver.simulator.kubelet_devices import Allocation
from dra_driver.simulator.objects import Obj, claim_names, containers, find, set_status, warn

_log = logging.getLogger(__name__)

FINALIZER = "simulator.coreslice.dev/graceful-deletion"
_WORKERS = 32  # pods are prepared at the same time, as in the real one


@dataclass
class _Pod:
    """A pod that this node has to do with."""

    pod: Obj
    state: str = "starting"  # starting, running, failed, stopping, stuck
    views: dict[str, ContainerView] = field(default_factory=dict)
    allocations: list[Allocation] = field(default_factory=list)


class Node:
    """`step` is called by one thread, everything else by any."""

    def __init__(
        self,
        store: Store,
        kubelet: FakeKubelet,
        *,
        name: str,
        cdi_dirs: Sequence[Path],
        numbers: Mapping[str, tuple[int, int]] | None = None,
    ) -> None:
        """`numbers` gives (major, minor) of host nodes that a device plugin names, -1 where unknown."""
        self._store = store
        self._kubelet = kubelet
        self._name = name
        self._cdi_dirs = cdi_dirs
        self._numbers = numbers or {}
        self._lock = threading.Lock()
        self._pods: dict[str, _Pod] = {}
        self._device_manager = threading.Lock()  # admission is one pod at a time in the real one too
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="node")

    def stop(self) -> None:
        """Wait for what is under way; pods stay as they are."""
        self._workers.shutdown()

    def views(self, uid: str) -> dict[str, ContainerView]:
        """What each container of a running pod sees, by container name."""
        with self._lock:
            return dict(self._pods[uid].views) if uid in self._pods else {}

    def allocations(self, uid: str) -> list[Allocation]:
        """What device plugins gave to a running pod."""
        with self._lock:
            return list(self._pods[uid].allocations) if uid in self._pods else []

    def step(self) -> None:
        """Start and stop what is due, and show what the device plugins offer."""
        self._publish_allocatable()
        there = {pod["metadata"]["uid"]: pod for pod in self._store.list("pods", fields={"spec.nodeName": self._name})}
        with self._lock:
            for uid, pod in there.items():
                self._look(uid, pod)
            for uid in self._pods.keys() - there.keys():
                self._end(self._pods[uid])

    def resync(self) -> None:
        """Try again what failed, as the kubelet does once a minute."""
        with self._lock:
            for pod in self._pods.values():
                if pod.state == "failed":
                    self._begin(pod)
                elif pod.state == "stuck":
                    pod.state = "failed"
                    self._end(pod)

    def _look(self, uid: str, pod: Obj) -> None:
        known = self._pods.get(uid)
        if pod["metadata"].get("deletionTimestamp"):
            self._end(known or self._pods.setdefault(uid, _Pod(pod, "failed")))
        elif known is None and (pod.get("status") or {}).get("phase") not in {"Succeeded", "Failed"}:
            self._begin(self._pods.setdefault(uid, _Pod(pod)))

    def _begin(self, pod: _Pod) -> None:
        pod.state = "starting"
        self._workers.submit(self._guarded, self._start, pod)

    def _end(self, pod: _Pod) -> None:
        if pod.state in {"running", "failed"}:
            pod.state = "stopping"
            self._workers.submit(self._guarded, self._finish, pod)

    def _guarded(self, work: Any, pod: _Pod) -> None:
        try:
            work(pod)
        except Exception:  # noqa: BLE001 -- it is told, and the pod marked
            _log.exception("pod %s: unexpected failure", pod.pod["metadata"]["name"])
            pod.state = "stuck"

    def _start(self, pod: _Pod) -> None:
        """Admission, Prepare, containers; each with the kubelet's own way to fail."""
        try:
            self._hold(pod)
            self._admit(pod)
            uses = self._prepare(pod)
            views = {one["name"]: self._view(one, uses, pod) for one in containers(pod.pod)}
        except AllocationError as error:
            self._fail(pod, "UnexpectedAdmissionError", f"Allocate failed due to {error}", phase="Failed")
        except PrepareError as error:
            self._fail(pod, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
        except (CdiError, CoresliceError) as error:
            self._fail(pod, "Failed", f"Error: {error}")
        else:
            with self._lock:
                pod.views, pod.state = views, "running"
            self._set_running(pod)

    def _hold(self, pod: _Pod) -> None:
        """From now on the pod object stays until the devices are given back."""
        current = find(self._store, "pods", pod.pod["metadata"]["name"], pod.pod["metadata"]["namespace"])
        if current is None or current["metadata"]["uid"] != pod.pod["metadata"]["uid"]:
            raise CoresliceError("the pod is gone")
        kept = current["metadata"].get("finalizers") or []
        if FINALIZER not in kept and not current["metadata"].get("deletionTimestamp"):
            meta = {**current["metadata"], "finalizers": [*kept, FINALIZER]}
            current = self._store.update("pods", {**current, "metadata": meta})
        pod.pod = current

    def _admit(self, pod: _Pod) -> None:
        """What device plugins serve; a pod that is tried again keeps what it has."""
        if pod.allocations:
            return
        by_claim = {(mapping["containerName"], mapping["resourceName"]) for mapping in _mappings(pod.pod)}
        with self._device_manager:
            for container in containers(pod.pod):
                for resource, amount in extended_resources.asked(container).items():
                    if amount and (container["name"], resource) not in by_claim:
                        allocation = self._kubelet.allocate(resource, amount, pod=pod.pod["metadata"]["name"])
                        pod.allocations.append(allocation)
                        pod.views[container["name"]] = self._plus(
                            pod.views.get(container["name"], ContainerView((), ())), allocation
                        )

    def _plus(self, view: ContainerView, allocation: Allocation) -> ContainerView:
        nodes = [
            SeenNode(
                path=node.container_path,
                host_path=node.host_path,
                type="c",
                major=self._numbers.get(node.host_path, (-1, -1))[0],
                minor=self._numbers.get(node.host_path, (-1, -1))[1],
                permissions=node.permissions,
                file_mode=None,
            )
            for node in allocation.devices
        ]
        return ContainerView((*view.nodes, *nodes), (*view.env, *sorted(allocation.envs.items())))

    def _prepare(self, pod: _Pod) -> dict[str, Obj]:
        """Prepare all claims of the pod, one call for each driver; gives the claims by their entry's name."""
        claims = self._claims(pod.pod)
        for driver in sorted({result["driver"] for claim in claims.values() for result in results(claim)}):
            refs = [
                ClaimRef(claim["metadata"]["namespace"], claim["metadata"]["name"], claim["metadata"]["uid"])
                for claim in claims.values()
                if any(result["driver"] == driver for result in results(claim))
            ]
            self._kubelet.prepare_pod(pod.pod["metadata"]["uid"], refs, driver=driver)
        return claims

    def _claims(self, pod: Obj) -> dict[str, Obj]:
        names = claim_names(pod)
        special = (pod.get("status") or {}).get("extendedResourceClaimStatus")
        if special:
            names[extended_resources.IN_MEMORY] = special["resourceClaimName"]
        return {entry: self._claim(pod, name) for entry, name in names.items()}

    def _claim(self, pod: Obj, name: str | None) -> Obj:
        """The claim as the kubelet checks it before it calls anybody."""
        claim = find(self._store, "resourceclaims", name or "", pod["metadata"]["namespace"])
        if claim is None:
            raise PrepareError(f"prepare dynamic resources: ResourceClaim {name} not found")
        users = (claim.get("status") or {}).get("reservedFor") or ()
        if all(user["uid"] != pod["metadata"]["uid"] for user in users):
            raise PrepareError(f"prepare dynamic resources: pod is not allowed to use ResourceClaim {name}")
        return claim

    def _view(self, container: Obj, claims: Mapping[str, Obj], pod: _Pod) -> ContainerView:
        uses = [
            (claims[used["name"]]["metadata"]["uid"], used.get("request"))
            for used in (container.get("resources") or {}).get("claims") or ()
        ]
        uses += [
            (claims[extended_resources.IN_MEMORY]["metadata"]["uid"], mapping["requestName"])
            for mapping in _mappings(pod.pod)
            if mapping["containerName"] == container["name"]
        ]
        own = [f"{one['name']}={one.get('value', '')}" for one in container.get("env") or ()]
        process = {**BASE_SPEC["process"], "env": [*BASE_SPEC["process"]["env"], *own]}
        seen = see(self._kubelet.cdi_ids(uses), cdi_dirs=self._cdi_dirs, base={**BASE_SPEC, "process": process})
        plugged = pod.views.get(container["name"], ContainerView((), ()))
        return replace(seen, nodes=(*seen.nodes, *plugged.nodes), env=(*seen.env, *plugged.env))

    def _set_running(self, pod: _Pod) -> None:
        statuses = [
            {"name": one["name"], "ready": True, "state": {"running": {}}}
            for one in pod.pod["spec"].get("containers") or ()
        ]
        self._write(pod, {"phase": "Running", "containerStatuses": statuses})

    def _fail(self, pod: _Pod, reason: str, message: str, *, phase: str = "Pending") -> None:
        with self._lock:
            pod.state = "failed"
        warn(self._store, pod.pod, reason, message)
        self._write(pod, {"phase": phase, "reason": reason, "message": message})

    def _write(self, pod: _Pod, status: Obj) -> None:
        meta = pod.pod["metadata"]
        current = find(self._store, "pods", meta["name"], meta["namespace"])
        if current is not None and current["metadata"]["uid"] == meta["uid"]:
            set_status(self._store, "pods", current, {"reason": None, "message": None, **status})

    def _finish(self, pod: _Pod) -> None:
        """Give everything back, then let the pod object go."""
        try:
            self._kubelet.unprepare_pod(pod.pod["metadata"]["uid"])
        except CoresliceError as error:
            with self._lock:
                pod.state = "stuck"
            warn(self._store, pod.pod, "FailedKillPod", f"error killing pod: {error}")
            return
        for allocation in pod.allocations:
            self._kubelet.free(allocation)
        with self._lock:
            self._pods.pop(pod.pod["metadata"]["uid"], None)
        meta = pod.pod["metadata"]
        current = find(self._store, "pods", meta["name"], meta["namespace"])
        if current is not None and current["metadata"]["uid"] == meta["uid"]:
            rest = [one for one in current["metadata"].get("finalizers") or () if one != FINALIZER]
            self._store.update("pods", {**current, "metadata": {**current["metadata"], "finalizers": rest}})

    def _publish_allocatable(self) -> None:
        node = find(self._store, "nodes", self._name)
        offered = {name: str(count) for name, count in self._kubelet.allocatable().items()}
        if node is None:
            return
        shown = (node.get("status") or {}).get("allocatable") or {}
        if {**shown, **offered} != shown:
            set_status(self._store, "nodes", node, {"allocatable": offered, "capacity": offered})


def _mappings(pod: Mapping[str, Any]) -> Sequence[Mapping[str, str]]:
    status = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    mappings: Sequence[Mapping[str, str]] = status.get("requestMappings") or ()
    return mappings
