"""The daemon: its parts, wired; started and stopped in order.

Start: hardware and records are read, the CDI directory is brought in step, then the DRA socket, then the registration
socket; slices follow the kubelet's confirmation, since slices without a reachable driver bind pods to a dead end
(BC-028). Stop: the reverse, with slices and records left as they are. Nothing here ends the process but `stop`: a lost
or refused registration is reported and tried again, and undoing a claim needs neither API nor hardware.
"""

import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver import coexistence
from dra_driver.claims import reconcile
from dra_driver.claims.ledger import Boot, Ledger
from dra_driver.claims.planning import Planning
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.service import ClaimService, Hooks
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore
from dra_driver.cluster.client import Api
from dra_driver.cluster.events import EventRecorder
from dra_driver.cluster.reads import ClaimReader
from dra_driver.cluster.slices import Owner, Phase, PublishState, Server, SlicePublisher
from dra_driver.coexistence import Neighbours
from dra_driver.errors import CoresliceError
from dra_driver.hardware import Finding, NodeHardware
from dra_driver.inventory import slices
from dra_driver.inventory.devices import DeviceType, totals
from dra_driver.kubelet.plugin import KubeletPlugin
from dra_driver.kubelet.probes import ProbeServer
from dra_driver.kubelet.sockets import prepare_plugin_dir
from dra_driver.kubelet.types import ClaimRef, DeviceHealth, DeviceState, RegistrationState, RegistrationStatus
from dra_driver.measured import MeasuredClaims
from dra_driver.observe.metrics import Labels, Metrics, MetricsServer
from dra_driver.settings import Settings

log = logging.getLogger(__name__)

PODS_TOLD = 8  # a shared claim may be reserved for 256


@dataclass(frozen=True)
class Readiness:
    """Whether pods may count on this node now, and why or why not."""

    ready: bool
    text: str


class Driver:
    """One instance of the daemon. Raises CoresliceError where it can't be what its settings say."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool = slices.Pool(settings.driver_name, settings.node_name)
        self._hardware = NodeHardware(sysfs_root=settings.sysfs_root, proc_root=settings.proc_root)
        self._api = Api(kubeconfig=settings.kubeconfig)
        self._metrics = Metrics(
            Labels([kind.value for kind in DeviceType], [reason.code for reason in Reason], coexistence.REASONS),
            ready=lambda: self.readiness().ready,
        )
        self._neighbours = Neighbours(settings, changed=self._neighbours_changed)
        prepare_plugin_dir(settings.kubelet_plugins_dir / settings.driver_name)  # a wrong path isn't made, but told
        self._store = RecordStore(settings.records_dir)
        specs = SpecDirectory(settings.cdi_root, driver=settings.driver_name)
        boot = Boot.read(settings.proc_root)
        self._ledger = Ledger(self._store, specs, self._hardware, boot, elsewhere=self._neighbours.holders)
        self._reader = ClaimReader(self._api)
        self._events = EventRecorder(self._api, component=settings.driver_name, host=settings.node_name)
        self._publisher = SlicePublisher(
            self._api,
            driver=settings.driver_name,
            node_name=settings.node_name,
            build=self._build,
            may_publish=lambda: self._plugin.confirmed,
            withhold=self._withhold,
            on_state=self._published,
            on_publish=lambda done: self._metrics.publish(done=done),
        )
        self._plugin = KubeletPlugin(
            driver_name=settings.driver_name,
            plugins_dir=settings.kubelet_plugins_dir,
            registry_dir=settings.kubelet_registrar_dir,
            instance=settings.pod_uid or secrets.token_hex(4),
            service=MeasuredClaims(self._claims(), self._metrics),
            health=self._health,
            on_registration=self._registered,
        )
        self._probes = ProbeServer(
            {"": self._alive, "liveness": self._alive, "readiness": lambda: self.readiness().ready},
            host=settings.healthcheck_address,
            port=max(settings.healthcheck_port, 0),
        )
        self._metrics_server = MetricsServer(
            self._metrics, host=settings.metrics_address, port=max(settings.metrics_port, 0)
        )
        self._stopping = threading.Event()
        self._scanner = threading.Thread(target=self._scan, name="scan", daemon=True)
        self._telling = threading.Lock()
        self._finding = threading.Lock()
        self._orphans_reported = False
        self._told: Readiness | None = None
        self._notes_told: Sequence[slices.Note] = ()
        self._found: Sequence[Finding] = ()
        self._built: Mapping[str, int] = {}  # devices by type in the newest build

    def run(self, until_the_end: Callable[[], object]) -> None:
        """Serve until that returns."""
        self.start()
        try:
            until_the_end()
        finally:
            self.stop()

    def start(self) -> None:
        """Come up; what was started is stopped again where a later part fails."""
        log.info("effective configuration", extra={"settings": self._settings.model_dump(mode="json")})
        self._restore()
        try:
            self._serve_those_who_look()
            self._neighbours.start()  # before the first slice
            self._plugin.start()
        except BaseException:
            self.stop()
            raise
        self._scanner.start()

    def _serve_those_who_look(self) -> None:
        if self._settings.healthcheck_port >= 0:
            self._probes.start()
            log.info("health is served", extra={"port": self._probes.port})
        if self._settings.metrics_port >= 0:
            self._metrics_server.start()
            log.info("metrics are served", extra={"port": self._metrics_server.port})

    def _restore(self) -> None:
        try:
            self._ledger.restore()
        except Refusal as refusal:
            raise CoresliceError(f"can't start: {refusal.detail}") from refusal

    def stop(self) -> None:
        """Go down: answer what is in flight, leave no socket; slices and records stay."""
        self._stopping.set()
        self._publisher.stop(timeout=1.0)  # a request that hangs would only shorten what the kubelet's calls have
        self._plugin.stop()
        self._neighbours.stop()
        self._probes.stop()
        self._metrics_server.stop()
        self._events.stop()
        self._store.close()
        log.info("stopped")

    def readiness(self) -> Readiness:
        """Registered and the published generation read back, or nothing to publish on purpose."""
        if missing := self._hardware.missing():
            return Readiness(ready=False, text=missing)
        if not self._plugin.confirmed:
            return Readiness(ready=False, text=str(self._plugin.state))
        state = self._publisher.state
        return Readiness(ready=state.ready, text=state.text)

    def _claims(self) -> ClaimService:
        settings = self._settings
        return ClaimService(
            planning=Planning(self._reader, settings.driver_name, self._pool.name, settings.read_pods),
            ledger=self._ledger,
            hardware=self._hardware,
            hooks=Hooks(refused=self._refused, changed=self._claims_changed),
            wait=settings.prepare_wait,
            visible_cores_on_chips=settings.visible_cores_on_chips,
        )

    def _build(self, server: Server, generation: int, owner: Owner) -> list[dict[str, Any]]:
        layout = self._layout(server)
        devices, held, offer = list(self._hardware.devices().values()), self._ledger.held(), self._settings.offer
        self._tell_notes(slices.notes(devices, layout=layout, offer=offer, held=held))
        built = slices.build(
            self._pool,
            devices,
            totals(self._hardware.machine()),
            layout=layout,
            generation=generation,
            offer=offer,
            held=held,
            owner=slices.NodeOwner(owner.name, owner.uid),
        )
        self._built = _by_type(built)
        return built

    def _layout(self, server: Server) -> slices.Layout:
        return slices.Layout(
            server.minor, server.counters, DeviceType(self._settings.granularity_without_counters.value)
        )

    def _withhold(self, node: dict[str, Any]) -> str:
        """Why nothing may be published; the Node object was just read."""
        self._neighbours.node_read(node)
        self._tell_findings()
        if not self._hardware.machine().chips and not self._ledger.held():
            return self._hardware.missing() or "no Neuron hardware on this node"
        if not self._settings.offer_types and not self._ledger.held():
            return "this node's settings offer nothing (--offer-types)"
        return self._neighbours.withheld()

    def _neighbours_changed(self) -> None:
        """Somebody else came or went: what that means is decided where slices are made."""
        self._publisher.poke()
        self._tell_findings()

    def _registered(self, state: RegistrationState) -> None:
        self._metrics.registered(confirmed=state.status is RegistrationStatus.CONFIRMED)
        if state.status is RegistrationStatus.CONFIRMED:
            self._neighbours.look_again()  # perhaps it is another kubelet than before
            self._publisher.start()
            self._publisher.poke()
        elif state.status is RegistrationStatus.REFUSED:
            self._on_node("RegistrationRefused", state.text)
        self._tell_readiness()

    def _published(self, state: PublishState) -> None:
        """What went wrong with publishing is an Event; readiness and log have all of it."""
        if state.ready:
            withheld = state.phase is Phase.WITHHELD
            built = {} if withheld else self._built
            self._metrics.published(built, withheld=withheld, counters_dropped=state.counters is False)
        if state.counters is False and state.phase is Phase.PUBLISHED:
            self._on_node("CountersDropped", self._without_counters(state.why_no_counters))
        elif state.phase is Phase.FAILED:
            self._on_node("PublishFailed", state.text)
        self._tell_readiness()

    def _without_counters(self, why: str) -> str:
        """The same for as long as the cause is, or each change of the slices would be another Event."""
        kind = slices.granularity(self._layout(Server(0, counters=False)), self._settings.offer)
        offered = "whole chips" if kind is DeviceType.CHIP else "single cores"
        return (
            f"only {offered} are offered here, since nothing would keep chips and "
            f"their cores apart: {why}; turn the gate on for API server, scheduler, controller manager and kubelet, "
            "or choose what is offered by --granularity-without-counters"
        )

    def _tell_notes(self, notes: Sequence[slices.Note]) -> None:
        """What this server's layout has no room for: each when it is new (BC-032)."""
        for note in notes:
            if note not in self._notes_told:
                log.warning("%s", note.text)
                self._on_node(note.reason, note.text)
        self._notes_told = notes

    def _claims_changed(self) -> None:
        """What is held shapes the slices where counters don't hold, and where hardware has gone."""
        self._publisher.poke()

    def _refused(self, claim: ClaimRef, refusal: Refusal) -> None:
        """On the claim, and on its pods, where people look; the kubelet's own Event comes beside it."""
        self._metrics.refused(refusal.reason.code)
        involved = [("resource.k8s.io/v1", "ResourceClaim", claim.name, claim.uid)]
        involved += [("v1", "Pod", pod.name, pod.uid) for pod in refusal.pods[:PODS_TOLD]]
        for version, kind, name, uid in involved:
            obj = {"apiVersion": version, "kind": kind, "namespace": claim.namespace, "name": name, "uid": uid}
            self._events.warning(obj, refusal.reason.code, str(refusal))

    def _on_node(self, reason: str, text: str) -> None:
        name = self._settings.node_name
        self._events.warning({"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}, reason, text)

    def _health(self) -> Sequence[DeviceHealth]:
        """Every device of the pool: healthy is what the last scan could read, what is held and gone is not."""
        present = self._hardware.devices()
        gone = [name for name in self._ledger.held() if name not in present]
        pool = self._pool.name
        return [
            *(DeviceHealth(pool, name, DeviceState.HEALTHY) for name in present),
            *(DeviceHealth(pool, name, DeviceState.UNHEALTHY, "its chip is gone from sysfs") for name in gone),
        ]

    def _alive(self) -> bool:
        """Can still serve: the watch over the sockets runs. Never asks the API or a device (BC-086)."""
        return self._plugin.alive

    def _scan(self) -> None:
        """The slow timer; whatever fails is tried again at the next turn."""
        while True:
            try:
                self._look_around()
            except Refusal as refusal:
                log.error("the records can't be looked at: %s", refusal.detail)  # noqa: TRY400
            except Exception:
                log.exception("a look at the node failed")
            if self._stopping.wait(self._settings.rescan_interval):
                return

    def _look_around(self) -> None:
        """Hardware, readiness told when it changes, records that are damaged or of earlier boots."""
        if self._hardware.rescan():
            self._publisher.poke()
            self._plugin.health_changed()
        self._tell_readiness()
        self._tell_findings()
        self._free_orphans()
        if not self._orphans_reported and self._plugin.confirmed:
            self._orphans_reported = True
            reconcile.report_orphans(self._ledger, self._reader, driver=self._settings.driver_name)

    def _tell_findings(self) -> None:
        """New ones as Events; the log has them from whoever found them."""
        with self._finding:
            around = self._neighbours.findings()
            hardware = self._hardware.findings()
            now = [*hardware, *self._damaged_records(), *around]
            for finding in now:
                if finding not in self._found:
                    self._on_node(finding.reason, finding.text)
            self._found = now
            self._metrics.hardware_problems(len(hardware))
            self._metrics.conflicts(finding.reason for finding in around)

    def _damaged_records(self) -> list[Finding]:
        with self._store.locked():
            damaged = self._store.damaged()
        return [
            Finding(
                Reason.RECORD_UNREADABLE.code,
                f"record {bad.path} can't be read ({bad.reason}): what it may hold isn't given to anybody; "
                f"delete the pod of claim {bad.uid}, or remove the file once nothing of it runs",
            )
            for bad in damaged
        ]

    def _tell_readiness(self) -> None:
        """A log line when it has changed; called by whoever may have changed it, from any thread."""
        with self._telling:
            now = self.readiness()
            if now != self._told:
                self._told = now
                log.info("ready" if now.ready else "not ready", extra={"why": now.text})

    def _free_orphans(self) -> None:
        """Records of an earlier boot whose claim has gone: the kubelet may have lost its own state."""
        if reconcile.free_orphans(self._ledger, self._reader, driver=self._settings.driver_name):
            self._claims_changed()


def _by_type(built: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    """Devices of these slices by their published type."""
    devices = (device for each in built for device in each["spec"].get("devices") or ())
    return Counter(str(device["attributes"]["type"]["string"]) for device in devices)
