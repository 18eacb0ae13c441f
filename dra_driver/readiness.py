"""Readiness: whether pods may count on this node now, and why or why not.

Ready: the kubelet has confirmed the registration and the published generation was read back, or nothing is published on
purpose. Not ready: registration or publishing fails, or a Neuron instance shows no chips.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from dra_driver.cluster.rights import RightsCheck, told
from dra_driver.cluster.slices import SlicePublisher
from dra_driver.hardware import NodeHardware
from dra_driver.kubelet.plugin import KubeletPlugin

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verdict:
    """One answer, with its reason in words."""

    ready: bool
    text: str


class Readiness:
    """Asks the parts; all of it is local."""

    def __init__(
        self,
        hardware: NodeHardware,
        plugin: KubeletPlugin,
        publisher: SlicePublisher,
        rights: RightsCheck,
        *,
        pending: Callable[[], str],
    ) -> None:
        """`pending` tells in words what is to change but can't yet; empty: nothing."""
        self._pending = pending
        self._hardware = hardware
        self._plugin = plugin
        self._publisher = publisher
        self._rights = rights
        self._lock = threading.Lock()
        self._told: Verdict | None = None

    def now(self) -> Verdict:
        """The answer of this moment."""
        if missing := self._hardware.missing():
            return Verdict(ready=False, text=missing)
        if not self._plugin.confirmed:
            return Verdict(ready=False, text=str(self._plugin.state))
        state = self._publisher.state
        texts = (state.text, told(self._rights.missing), self._pending())
        return Verdict(ready=state.ready, text="; ".join(filter(None, texts)))

    def tell(self) -> None:
        """A log line when it has changed; called by whoever may have changed it, from any thread."""
        with self._lock:
            now = self.now()
            if now != self._told:
                self._told = now
                log.info("ready" if now.ready else "not ready", extra={"why": now.text})
