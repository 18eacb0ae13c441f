"""A kubelet over real sockets, as far as device drivers see it: DRA plugins and device plugins.

It has no pods of its own: whoever drives it says which pod has which claims or wants how many devices, and
gets what the runtime would be told. It behaves as Kubernetes 1.37 does; the parts are `kubelet_plugins`
(registration, connections, slice wiping), `kubelet_health`, `kubelet_claims` and `kubelet_devices`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from dra_driver.kubelet.types import ClaimRef, PreparedDevice
from dra_driver.simulator.kubelet_claims import ClaimManager, PrepareError, UnprepareError
from dra_driver.simulator.kubelet_devices import Allocation, AllocationError, DeviceManager
from dra_driver.simulator.kubelet_health import HealthCache
from dra_driver.simulator.kubelet_plugins import PluginManager, Timing
from dra_driver.simulator.kubelet_pod_resources import PodResources

__all__ = ["AllocationError", "FakeKubelet", "PrepareError", "Timing", "UnprepareError"]


class FakeKubelet:
    """One kubelet. The folders are made as the real one makes them, 0750, when the object is.

    `pod_resources_dir` has the podresources socket, if one is wanted. `wipe_slices` gets a driver's name when its
    slices on this node have to go, None for those of all drivers; it may be called from any thread, and is called
    again when it raises.
    """

    def __init__(
        self,
        *,
        plugins_dir: Path,
        registry_dir: Path,
        device_plugins_dir: Path,
        pod_resources_dir: Path | None = None,
        wipe_slices: Callable[[str | None], None] = lambda _: None,
        timing: Timing | None = None,
    ) -> None:
        for folder in filter(None, (plugins_dir, registry_dir, device_plugins_dir, pod_resources_dir)):
            folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        self._registry_dir = registry_dir
        self._device_plugins_dir = device_plugins_dir
        self._wipe_slices = wipe_slices
        self._timing = timing or Timing()
        self.health = HealthCache()
        self.claims = ClaimManager()
        self.plugins = self._plugin_manager()
        self.devices = DeviceManager(device_plugins_dir)
        self._pod_resources_dir = pod_resources_dir
        self.pod_resources: PodResources | None = None  # while it runs, if a folder for it was given

    def _plugin_manager(self) -> PluginManager:
        return PluginManager(self._registry_dir, wipe=self._wipe_slices, timing=self._timing, health=self.health)

    def start(self) -> None:
        """Wipe the node's slices, find the plugins that are there already, and go on looking."""
        self.devices.start()
        if self._pod_resources_dir:
            self.pod_resources = PodResources(self._pod_resources_dir, self.devices)
            self.pod_resources.start()
        self.plugins.start()

    def stop(self) -> None:
        """Hang up on everybody without a word, as a kubelet that is stopped does."""
        self.plugins.stop()
        if self.pod_resources:
            self.pod_resources.stop()
        self.devices.stop()

    def restart(self) -> None:
        """Stop and start again with what the checkpoints keep; allocations of device plugins are not kept."""
        self.stop()
        self.claims.restarted()
        refuse = self.plugins.refuse
        self.plugins = self._plugin_manager()
        self.plugins.refuse = refuse
        self.devices = DeviceManager(self._device_plugins_dir)
        self.start()

    def refuse_registrations(self, text: str | None) -> None:
        """Refuse every plugin with that text from now on, or none any more."""
        self.plugins.refuse = text

    def wait_registered(self, driver: str, timeout: float = 10.0) -> None:
        """Wait until an instance of the driver is registered and connected; raises TimeoutError."""
        if not self.plugins.wait_for(lambda: self.plugins.connected(driver), timeout):
            known = ", ".join(self.plugins.drivers()) or "none"
            raise TimeoutError(f"{driver} isn't registered and connected after {timeout:g} s; known: {known}")

    def wait_allocatable(self, resource: str, count: int, timeout: float = 10.0) -> None:
        """Wait until the node shows so many healthy devices of a resource; raises TimeoutError."""
        if not self.devices.wait_for(lambda: self.allocatable().get(resource) == count, timeout):
            raise TimeoutError(f"not {count} of {resource} after {timeout:g} s but {self.allocatable()}")

    def prepare_pod(
        self, pod_uid: str, claims: Sequence[ClaimRef], *, driver: str | None = None
    ) -> dict[str, tuple[PreparedDevice, ...]]:
        """Prepare a pod's claims in one call; raises PrepareError with the text of the pod's event.

        Gives the devices of every claim by its UID, also of those that were prepared before. `driver` may be
        left out where only one is registered.
        """
        return self.claims.prepare(self.plugins, driver or self._only_driver(), pod_uid, claims)

    def unprepare_pod(self, pod_uid: str) -> None:
        """The pod has ended: unprepare claims that no other pod uses; raises UnprepareError."""
        self.claims.unprepare(self.plugins, pod_uid)

    def cdi_ids(self, uses: Sequence[tuple[str, str | None]]) -> list[str]:
        """CDI ids for a container that uses (claim UID, request name or None for all of the claim)."""
        return self.claims.cdi_ids(uses)

    def _only_driver(self) -> str:
        drivers = self.plugins.drivers()
        if len(drivers) != 1:
            raise PrepareError(f"say which driver: {', '.join(drivers) or 'none'} registered")
        return drivers[0]

    def allocatable(self) -> dict[str, int]:
        """Healthy devices of device plugins by resource name, as in the node's status."""
        return self.devices.allocatable()

    def allocate(self, resource: str, count: int, *, pod: str = "a-pod") -> Allocation:
        """Admit one container that asks for `count` of a resource; raises AllocationError."""
        return self.devices.allocate(resource, count, pod=pod)

    def free(self, allocation: Allocation) -> None:
        """That container has ended."""
        self.devices.free(allocation)
