"""The stop on a node that is being drained: who evicts this driver before its consumers leaves them in Terminating.

A pod with a claim is gone only after the kubelet's Unprepare, and that needs a registered driver (BC-095). The
DaemonSet keeps the driver where a drain by the book takes only the others; this is for whoever removes it on cordon,
such as a controller that takes the node's label away. There is no shell in the image for a preStop hook, and no need.

Invariants: bounded; a restart or a rolling update doesn't wait: the node isn't cordoned, or the next instance serves it
already. The wait ends with the last record, or when another instance appears. What can't be told is a reason not to
wait: records that can't be read, an API that is away.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from dra_driver.claims.ledger import Ledger
from dra_driver.claims.refusals import Refusal
from dra_driver.cluster import node as node_object
from dra_driver.cluster.client import Api, Timeout
from dra_driver.cluster.errors import ApiError
from dra_driver.errors import KubeletError
from dra_driver.kubelet import foreign
from dra_driver.kubelet.plugin import KubeletPlugin
from dra_driver.settings import Settings

log = logging.getLogger(__name__)

_ASK: Final = Timeout(connect=1.0, read=2.0)
_LOOK: Final = 0.1  # seconds between looks, which are local


class Drain:
    """Decides at a stop whether to serve on, and serves on. The plugin has to be running meanwhile."""

    def __init__(self, settings: Settings, api: Api, ledger: Ledger, plugin: KubeletPlugin) -> None:
        self._settings = settings
        self._api = api
        self._ledger = ledger
        self._plugin = plugin

    def wait(self) -> None:
        """Return at once, or when nothing is prepared any more, another instance serves, or `drain_wait` is over."""
        bound = self._settings.drain_wait
        if not bound or not self._needed() or not self._plugin.confirmed or not self._cordoned():
            return
        log.info(
            "the node is cordoned and claims are prepared: serving on until they are not, at most %g s",
            bound,
            extra={"claims": self._held()},
        )
        began = time.monotonic()
        _until(lambda: not self._needed(), within=bound)
        log.info(
            "serving on has ended",
            extra={"claims": self._held(), "duration_s": round(time.monotonic() - began, 3)},
        )

    def _needed(self) -> bool:
        """Whether claims are prepared that nobody else on this node would unprepare."""
        return bool(self._held()) and self._alone()

    def _held(self) -> list[str]:
        try:
            claims = [record.claim for record in self._ledger.records()]
        except Refusal as refusal:
            log.warning("what is prepared can't be told: %s", refusal.detail)
            return []
        return sorted(f"{claim.namespace}/{claim.name}" for claim in claims)

    def _alone(self) -> bool:
        """Somebody who listens on another registration socket of this driver is, or will be, the kubelet's choice."""
        folder, name = self._settings.kubelet_registrar_dir, self._settings.driver_name
        try:
            return not foreign.of_other_instances(name, folder, own=self._plugin.sockets[1])
        except KubeletError as error:
            log.warning("whether another instance serves this node can't be told: %s", error)
            return False

    def _cordoned(self) -> bool:
        try:
            node = self._api.get(node_object.path(self._settings.node_name), timeout=_ASK)
        except ApiError as error:
            log.info("whether the node is being drained can't be told, so claims aren't waited for: %s", error)
            return False
        return node_object.cordoned(node)


def _until(done: Callable[[], bool], *, within: float) -> None:
    deadline, pause = time.monotonic() + within, threading.Event()
    while not done() and (left := deadline - time.monotonic()) > 0:
        pause.wait(min(_LOOK, left))
