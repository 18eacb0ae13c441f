"""The simulated kubelet's claims: which pod uses which, what is prepared, when a driver is called.

As in Kubernetes 1.37: one call per driver with those claims of the pod that aren't prepared yet; pods are
remembered before the call, so that Unprepare follows also after a failure; any error leaves every claim of the
call unprepared; the flag "prepared" doesn't survive a restart; a claim is unprepared when its last pod goes.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import grpc

from dra_driver.errors import CoresliceError
from dra_driver.kubelet.api import dra_v1_pb2 as dra
from dra_driver.kubelet.types import ClaimRef, PreparedDevice
from dra_driver.simulator.kubelet_plugins import PluginError, PluginManager

CALL_TIMEOUT: Final = 45.0


class PrepareError(CoresliceError):
    """A pod can't start; the text is what the kubelet's event on it says."""


class UnprepareError(CoresliceError):
    """A pod stays Terminating; the text is the kubelet's."""


@dataclass
class _Claim:
    """One claim in the kubelet's cache."""

    ref: ClaimRef
    driver: str
    pods: set[str] = field(default_factory=set)
    prepared: bool = False
    unpreparing: bool = False
    devices: tuple[PreparedDevice, ...] = ()


class ClaimManager:
    """The cache of claims, by UID."""

    def __init__(self) -> None:
        self._claims: dict[str, _Claim] = {}
        self._lock = threading.Lock()

    def restarted(self) -> None:
        """Keep what the checkpoint keeps."""
        with self._lock:
            for claim in self._claims.values():
                claim.prepared = claim.unpreparing = False

    def prepare(
        self, plugins: PluginManager, driver: str, pod_uid: str, claims: Sequence[ClaimRef]
    ) -> dict[str, tuple[PreparedDevice, ...]]:
        """Prepare a pod's claims of one driver and give each claim's devices; raises PrepareError."""
        try:
            plugin = plugins.plugin(driver)
            wanted = self._attach(driver, pod_uid, claims)
            if wanted:
                request = dra.NodePrepareResourcesRequest(claims=[_wire(claim.ref) for claim in wanted])
                response = plugin.dra.NodePrepareResources(request, timeout=CALL_TIMEOUT)
                self._take(wanted, response)
        except PluginError as error:
            raise PrepareError(f"prepare dynamic resources: {error}") from error
        except (grpc.RpcError, ValueError) as error:
            raise PrepareError(f"prepare dynamic resources: NodePrepareResources: {rpc_text(error)}") from error
        return self.devices([claim.uid for claim in claims])

    def _attach(self, driver: str, pod_uid: str, claims: Sequence[ClaimRef]) -> list[_Claim]:
        """Remember the pod with each claim, and give the claims that aren't prepared."""
        with self._lock:
            for ref in claims:
                self._refuse_clash(ref)
            for ref in claims:
                self._claims.setdefault(ref.uid, _Claim(ref, driver)).pods.add(pod_uid)
            return [self._claims[ref.uid] for ref in claims if not self._claims[ref.uid].prepared]

    def _refuse_clash(self, ref: ClaimRef) -> None:
        for claim in self._claims.values():
            if claim.ref.uid == ref.uid and claim.unpreparing:
                raise PluginError(f"ResourceClaim {ref.name} is being unprepared")
            same_name = (claim.ref.namespace, claim.ref.name) == (ref.namespace, ref.name)
            if same_name and claim.ref.uid != ref.uid:
                raise PluginError(
                    f"old ResourceClaim with same name {ref.name} and different UID {claim.ref.uid} still exists"
                )

    def _take(self, wanted: Sequence[_Claim], response: dra.NodePrepareResourcesResponse) -> None:
        by_uid = {claim.ref.uid: claim for claim in wanted}
        for uid, answer in response.claims.items():
            if uid not in by_uid:
                raise PluginError(f"NodePrepareResources returned ResourceClaim {uid}, which wasn't asked for")
            if answer.error:
                name = by_uid[uid].ref.name
                raise PluginError(f"NodePrepareResources failed for ResourceClaim {name}: {answer.error}")
        if skipped := len(set(by_uid) - set(response.claims)):
            raise PluginError(f"NodePrepareResources skipped {skipped} ResourceClaims")
        with self._lock:
            for claim in wanted:
                claim.devices = tuple(map(_device, response.claims[claim.ref.uid].devices))
                claim.prepared = True

    def devices(self, uids: Sequence[str]) -> dict[str, tuple[PreparedDevice, ...]]:
        """Devices of prepared claims, by claim UID."""
        with self._lock:
            return {uid: self._claims[uid].devices for uid in uids}

    def cdi_ids(self, uses: Sequence[tuple[str, str | None]]) -> list[str]:
        """What the runtime is told for a container that uses (claim UID, request or None for all)."""
        return [
            cdi_id
            for uid, request in uses
            for device in self.devices([uid])[uid]
            if request is None or not device.requests or request in device.requests
            for cdi_id in device.cdi_ids
        ]

    def held(self) -> dict[str, set[str]]:
        """Pods by claim UID."""
        with self._lock:
            return {uid: set(claim.pods) for uid, claim in self._claims.items()}

    def unprepare(self, plugins: PluginManager, pod_uid: str) -> None:
        """Let a pod go, and unprepare those claims that no other pod uses; raises UnprepareError."""
        last = self._detach(pod_uid)
        for driver in sorted({claim.driver for claim in last}):
            mine = [claim for claim in last if claim.driver == driver]
            try:
                self._call_unprepare(plugins, driver, mine)
            except PluginError as error:
                raise UnprepareError(f"unprepare dynamic resources: {error}") from error
            except (grpc.RpcError, ValueError) as error:
                text = f"unprepare dynamic resources: NodeUnprepareResources: {rpc_text(error)}"
                raise UnprepareError(text) from error
            with self._lock:
                for claim in mine:
                    self._claims.pop(claim.ref.uid)

    def _detach(self, pod_uid: str) -> list[_Claim]:
        """Drop the pod from shared claims, and give those that it was the last to use.

        The mark is not taken back when the driver fails: such a claim stays blocked until a try succeeds.
        """
        with self._lock:
            used = [claim for claim in self._claims.values() if pod_uid in claim.pods]
            last = [claim for claim in used if claim.pods == {pod_uid}]
            for claim in used:
                if claim in last:
                    claim.unpreparing = True
                else:
                    claim.pods.discard(pod_uid)
            return last

    def _call_unprepare(self, plugins: PluginManager, driver: str, claims: Sequence[_Claim]) -> None:
        request = dra.NodeUnprepareResourcesRequest(claims=[_wire(claim.ref) for claim in claims])
        response = plugins.plugin(driver).dra.NodeUnprepareResources(request, timeout=CALL_TIMEOUT)
        by_uid = {claim.ref.uid: claim for claim in claims}
        for uid, answer in response.claims.items():
            if uid not in by_uid:
                raise PluginError(f"NodeUnprepareResources returned ResourceClaim {uid}, which wasn't asked for")
            if answer.error:
                name = by_uid[uid].ref.name
                raise PluginError(f"NodeUnprepareResources failed for ResourceClaim {name}: {answer.error}")
        if skipped := len(set(by_uid) - set(response.claims)):
            raise PluginError(f"NodeUnprepareResources skipped {skipped} ResourceClaims")


def _wire(ref: ClaimRef) -> dra.Claim:
    return dra.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid)


def _device(device: dra.Device) -> PreparedDevice:
    return PreparedDevice(
        requests=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        cdi_ids=tuple(device.cdi_device_ids),
    )


def rpc_text(error: Exception) -> str:
    """A failed call as the kubelet words it; a ValueError is a call on a connection that was closed."""
    if isinstance(error, grpc.Call):
        return f"rpc error: code = {_go_name(error.code())} desc = {error.details()}"
    return "rpc error: code = Canceled desc = grpc: the client connection is closing"


def _go_name(code: grpc.StatusCode) -> str:
    return "".join(part.capitalize() for part in code.name.split("_"))
