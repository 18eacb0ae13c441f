"""The daemon: its parts, wired; started and stopped in order.

Start: hardware and records are read, the CDI directory is brought in step, then the DRA socket, then the registration
socket; slices follow the kubelet's confirmation, since slices without a reachable driver bind pods to a dead end
(BC-028). Stop: the reverse, with slices and records left as they are. Nothing here ends the process but `stop`: a lost
or refused registration is reported and tried again, and undoing a claim needs neither API nor hardware.
"""

import logging
import secrets
import threading
from collections.abc import Callable, Sequence
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
from dra_driver.cluster.rights import CREATE_EVENTS, Right, RightsCheck, needed
from dra_driver.cluster.slices import PublishState, SlicePublisher
from dra_driver.coexistence import Neighbours
from dra_driver.drain import Drain
from dra_driver.errors import CoresliceError
from dra_driver.findings import Findings, damaged_records
from dra_driver.hardware import NodeHardware
from dra_driver.inventory.devices import DeviceType
from dra_driver.kubelet.plugin import KubeletPlugin
from dra_driver.kubelet.probes import ProbeServer
from dra_driver.kubelet.sockets import prepare_plugin_dir
from dra_driver.kubelet.types import ClaimRef, DeviceHealth, DeviceState, RegistrationState, RegistrationStatus
from dra_driver.lnc import NodeLnc
from dra_driver.measured import MeasuredClaims
from dra_driver.notices import Notices
from dra_driver.observe.metrics import Labels, Metrics, MetricsServer
from dra_driver.publishing import Publishing
from dra_driver.readiness import Readiness
from dra_driver.settings import Settings

log = logging.getLogger(__name__)


class Driver:
    """One instance of the daemon. Raises CoresliceError where it can't be what its settings say."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = Api(kubeconfig=settings.kubeconfig)
        self._metrics = Metrics(
            Labels([kind.value for kind in DeviceType], [reason.code for reason in Reason], coexistence.REASONS),
            ready=lambda: self._readiness.now().ready,
        )
        self._neighbours = Neighbours(settings, changed=self._neighbours_changed)
        prepare_plugin_dir(settings.kubelet_plugins_dir / settings.driver_name)  # a wrong path isn't made, but told
        self._store = RecordStore(settings.records_dir)
        self._lnc = NodeLnc(self._store, setting=settings.lnc, file=settings.lnc_file)
        self._hardware = NodeHardware(
            sysfs_root=settings.sysfs_root, proc_root=settings.proc_root, lnc=self._lnc.in_force
        )
        specs = SpecDirectory(settings.cdi_root, driver=settings.driver_name)
        boot = Boot.read(settings.proc_root)
        self._ledger = Ledger(self._store, specs, self._hardware, boot, elsewhere=self._neighbours.holders)
        self._reader = ClaimReader(self._api)
        self._events = EventRecorder(self._api, component=settings.driver_name, host=settings.node_name)
        self._notices = Notices(self._events, node_name=settings.node_name)
        self._findings = Findings(
            (
                self._hardware.findings,
                lambda: damaged_records(self._store),
                self._neighbours.findings,
                self._lnc.findings,
            ),
            on_node=self._notices.on_node,
            metrics=self._metrics,
        )
        self._rights = RightsCheck(self._api, needed(read_pods=settings.read_pods), changed=self._rights_missing)
        self._publishing = Publishing(
            settings, self._hardware, self._ledger, self._neighbours, self._notices, self._metrics
        )
        self._publisher = SlicePublisher(
            self._api,
            driver=settings.driver_name,
            node_name=settings.node_name,
            build=self._publishing.build,
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
        self._readiness = Readiness(
            self._hardware, self._plugin, self._publisher, self._rights, pending=self._lnc.pending
        )
        self._drain = Drain(settings, self._api, self._ledger, self._plugin)
        self._probes = ProbeServer(
            {"": self._alive, "liveness": self._alive, "readiness": lambda: self._readiness.now().ready},
            host=settings.healthcheck_address,
            port=max(settings.healthcheck_port, 0),
        )
        self._metrics_server = MetricsServer(
            self._metrics, host=settings.metrics_address, port=max(settings.metrics_port, 0)
        )
        self._stopping = threading.Event()
        self._scanner = threading.Thread(target=self._scan, name="scan", daemon=True)
        self._looked_at = self._hardware.snapshot()
        self._orphans_reported = False

    def run(self, until_the_end: Callable[[], object]) -> None:
        """Serve until that returns, and on a node that is being drained until nothing is prepared."""
        self.start()
        try:
            until_the_end()
            self._drain.wait()
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

    def stop(self) -> None:
        """Go down: answer what is in flight, leave no socket; slices and records stay."""
        self._stopping.set()
        self._rights.stop()
        self._publisher.stop(timeout=1.0)  # a request that hangs would only shorten what the kubelet's calls have
        self._plugin.stop()
        self._neighbours.stop()
        self._probes.stop()
        self._metrics_server.stop()
        self._events.stop()
        self._store.close()
        log.info("stopped")

    def _restore(self) -> None:
        try:
            self._ledger.restore()
        except Refusal as refusal:
            raise CoresliceError(f"can't start: {refusal.detail}") from refusal
        self._settle_lnc()
        self._looked_at = self._hardware.snapshot()

    def _serve_those_who_look(self) -> None:
        if self._settings.healthcheck_port >= 0:
            self._probes.start()
            log.info("health is served", extra={"port": self._probes.port})
        if self._settings.metrics_port >= 0:
            self._metrics_server.start()
            log.info("metrics are served", extra={"port": self._metrics_server.port})

    def _claims(self) -> ClaimService:
        settings = self._settings
        return ClaimService(
            planning=Planning(self._reader, settings.driver_name, self._publishing.pool.name, settings.read_pods),
            ledger=self._ledger,
            hardware=self._hardware,
            hooks=Hooks(refused=self._refused, changed=self._claims_changed),
            wait=settings.prepare_wait,
            visible_cores_on_chips=settings.visible_cores_on_chips,
        )

    def _health(self) -> Sequence[DeviceHealth]:
        """Every device of the pool: healthy is what the last scan could read, what is held and gone is not."""
        present = self._hardware.devices()
        gone = [name for name in self._ledger.held() if name not in present]
        pool = self._publishing.pool.name
        return [
            *(DeviceHealth(pool, name, DeviceState.HEALTHY) for name in present),
            *(DeviceHealth(pool, name, DeviceState.UNHEALTHY, "its chip is gone from sysfs") for name in gone),
        ]

    def _alive(self) -> bool:
        """Can still serve: the watch over the sockets runs. Never asks the API or a device (BC-086)."""
        return self._plugin.alive

    # what one part tells the others

    def _registered(self, state: RegistrationState) -> None:
        self._metrics.registered(confirmed=state.status is RegistrationStatus.CONFIRMED)
        if state.status is RegistrationStatus.CONFIRMED:
            self._neighbours.look_again()  # perhaps it is another kubelet than before
            self._publisher.poke()  # before the start, which looks anyway
            self._publisher.start()
            self._rights.start()
        elif state.status is RegistrationStatus.REFUSED:
            self._notices.on_node("RegistrationRefused", state.text)
        self._readiness.tell()

    def _rights_missing(self, missing: Sequence[Right]) -> None:
        """The log has them already. What goes on without them decides readiness elsewhere, it only names them."""
        self._metrics.rights_missing(len(missing))
        for right in missing:
            if CREATE_EVENTS not in missing:
                self._notices.on_node("RightMissing", f"{right} (the account needs {right.rule})")
        self._readiness.tell()

    def _neighbours_changed(self) -> None:
        """Somebody else came or went: what that means is decided where slices are made."""
        self._publisher.poke()
        self._findings.tell()

    def _withhold(self, node: dict[str, Any]) -> str:
        why = self._publishing.withhold(node)
        self._findings.tell()  # the Node object has some too
        return why

    def _published(self, state: PublishState) -> None:
        self._rights.look_again()
        self._publishing.published(state)
        self._readiness.tell()

    def _refused(self, claim: ClaimRef, refusal: Refusal) -> None:
        self._metrics.refused(refusal.reason.code)
        self._notices.refused(claim, refusal)

    def _claims_changed(self) -> None:
        """What is held shapes the slices where counters don't hold, and where hardware has gone."""
        self._rights.look_again()
        if self._lnc.pending() and not self._ledger.any_here():
            self._settle_lnc()
            self._plugin.health_changed()
            self._readiness.tell()
            self._findings.tell()
        if self._publishing.outdated():
            self._publisher.poke()

    def _settle_lnc(self) -> None:
        """Whatever changes by that, `outdated` knows: the devices of the next snapshot are others."""
        machine = self._hardware.machine()
        self._lnc.look(machine)
        self._metrics.logical_neuron_core(self._lnc.in_force(machine), wished=self._lnc.wished(machine))

    # the slow timer

    def _scan(self) -> None:
        """Whatever fails is tried again at the next turn."""
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
        self._hardware.rescan()
        self._settle_lnc()
        if (snapshot := self._hardware.snapshot()) is not self._looked_at:  # by whomever it was changed
            self._looked_at = snapshot
            self._publisher.poke()
            self._plugin.health_changed()
        self._readiness.tell()
        self._findings.tell()
        self._free_orphans()
        if not self._orphans_reported and self._plugin.confirmed:
            self._orphans_reported = True
            reconcile.report_orphans(self._ledger, self._reader, driver=self._settings.driver_name)

    def _free_orphans(self) -> None:
        """Records of an earlier boot whose claim has gone: the kubelet may have lost its own state."""
        if reconcile.free_orphans(self._ledger, self._reader, driver=self._settings.driver_name):
            self._claims_changed()
