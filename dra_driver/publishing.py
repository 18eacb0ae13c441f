"""What this node publishes, and whether it does: hardware, records and neighbours put together for the publisher.

Also what people are told of it: metrics of what stands in the API, Events where less is offered than could be.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.claims.ledger import Ledger
from dra_driver.cluster.slices import Owner, Phase, PublishState, Server
from dra_driver.coexistence import Neighbours
from dra_driver.hardware import NodeHardware
from dra_driver.inventory import slices
from dra_driver.inventory.devices import DeviceType, totals
from dra_driver.notices import Notices
from dra_driver.observe.metrics import Metrics
from dra_driver.settings import Granularity, Settings

log = logging.getLogger(__name__)


class Publishing:
    """`build`, `withhold` and `on_state` of a SlicePublisher."""

    def __init__(
        self,
        settings: Settings,
        hardware: NodeHardware,
        ledger: Ledger,
        neighbours: Neighbours,
        notices: Notices,
        metrics: Metrics,
    ) -> None:
        self.pool = slices.Pool(settings.driver_name, settings.node_name)
        self._granularity = settings.granularity_without_counters
        self._hardware = hardware
        self._ledger = ledger
        self._neighbours = neighbours
        self._notices = notices
        self._metrics = metrics
        self._minor_told: int | None = None
        self._built: Mapping[str, int] = {}  # devices by type in the newest build

    def build(self, server: Server, generation: int, owner: Owner) -> list[dict[str, Any]]:
        """The slices of this node as it is now."""
        layout = slices.Layout(server.minor, server.counters, DeviceType(self._granularity.value))
        self._tell_unused_counters(server, layout)
        built = slices.build(
            self.pool,
            list(self._hardware.devices().values()),
            totals(self._hardware.machine()),
            layout=layout,
            generation=generation,
            held=self._ledger.held(),
            owner=slices.NodeOwner(owner.name, owner.uid),
        )
        self._built = _by_type(built)
        return built

    def withhold(self, node: dict[str, Any]) -> str:
        """Why nothing may be published; the Node object was just read."""
        self._neighbours.node_read(node)
        if not self._hardware.machine().chips and not self._ledger.held():
            return self._hardware.missing() or "no Neuron hardware on this node"
        return self._neighbours.withheld()

    def published(self, state: PublishState) -> None:
        """What went wrong with publishing is an Event; readiness and log have all of it."""
        if state.ready:
            withheld = state.phase is Phase.WITHHELD
            built = {} if withheld else self._built
            self._metrics.published(built, withheld=withheld, counters_dropped=state.counters is False)
        if state.counters is False and state.phase is Phase.PUBLISHED:
            self._notices.on_node("CountersDropped", self._without_counters(state.why_no_counters))
        elif state.phase is Phase.FAILED:
            self._notices.on_node("PublishFailed", state.text)

    def _without_counters(self, why: str) -> str:
        """The same for as long as the cause is, or each change of the slices would be another Event."""
        whole = self._granularity is Granularity.CHIP
        return (
            f"only {'whole chips' if whole else 'single cores'} are offered here, since nothing would keep chips and "
            f"their cores apart: {why}; turn the gate on for API server, scheduler, controller manager and kubelet, "
            "or choose what is offered by --granularity-without-counters"
        )

    def _tell_unused_counters(self, server: Server, layout: slices.Layout) -> None:
        """Once for each version of the server: it would keep counters, but in a layout that isn't built (BC-032)."""
        minor = server.minor if server.counters and not layout.counted else None
        if minor is not None and minor != self._minor_told:
            text = (
                f"only one granularity ({layout.granularity.value}) is offered here: Kubernetes 1.{minor} has counters "
                "beside the devices only, and this release publishes them in slices of their own, as from 1.35 on"
            )
            log.warning("%s", text)
            self._notices.on_node("CountersUnused", text)
        self._minor_told = minor


def _by_type(built: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    """Devices of these slices by their published type."""
    devices = (device for each in built for device in each["spec"].get("devices") or ())
    return Counter(str(device["attributes"]["type"]["string"]) for device in devices)
