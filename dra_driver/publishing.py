"""What this node publishes, and whether it does: hardware, records and neighbours put together for the publisher.

Also what people are told of it: metrics of what stands in the API, Events where less is offered than could be.

A look at the API costs two requests, and a claim that comes or goes changes nothing while what is held is listed all
the same. So each build leaves what it depended on, and `outdated` compares that with how it is now.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.claims.hardware import Snapshot
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

Wires = Mapping[str, Mapping[str, Any]]  # device name → the device as it was published


@dataclass(frozen=True)
class _Basis:
    """What a decision about the slices depended on. Without a layout it was to publish nothing."""

    snapshot: Snapshot
    layout: slices.Layout | None
    shaping: Wires  # what is held and shapes them

    def holds(self, snapshot: Snapshot, held: Wires) -> bool:
        """Whether the same would be decided of these, everything else being equal."""
        return snapshot is self.snapshot and _shaping(snapshot, self.layout, held) == self.shaping


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
        self._basis: _Basis | None = None  # of the newest decision; None before the first

    def outdated(self) -> bool:
        """Whether the slices have to be looked at again, now that what is held has changed. Asks neither API nor disk.

        While a look is under way this is told by what the one before depended on, since `_decide` looks twice.
        """
        basis = self._basis
        return basis is None or not basis.holds(self._hardware.snapshot(), self._ledger.held_here())

    def build(self, server: Server, generation: int, owner: Owner) -> list[dict[str, Any]]:
        """The slices of this node as it is now."""
        layout = slices.Layout(server.minor, server.counters, DeviceType(self._granularity.value))
        self._tell_unused_counters(server, layout)
        snapshot, held = self._decide(layout)
        built = slices.build(
            self.pool,
            list(snapshot.devices.values()),
            totals(snapshot.machine),
            layout=layout,
            generation=generation,
            held=held,
            owner=slices.NodeOwner(owner.name, owner.uid),
        )
        self._built = _by_type(built)
        return built

    def withhold(self, node: dict[str, Any]) -> str:
        """Why nothing may be published; the Node object was just read. When something may, `build` follows."""
        self._neighbours.node_read(node)
        snapshot, held = self._decide(None)
        if not snapshot.machine.chips and not held:
            return self._hardware.missing() or "no Neuron hardware on this node"
        return self._neighbours.withheld()

    def _decide(self, layout: slices.Layout | None) -> tuple[Snapshot, Wires]:
        """Hardware and what is held, for a decision that `outdated` knows of before it is made.

        A claim that changes after both were read either finds this basis, or is found here by the second look.
        """
        while True:
            snapshot, held = self._hardware.snapshot(), self._ledger.held()
            self._basis = basis = _Basis(snapshot, layout, _shaping(snapshot, layout, held))
            if basis.holds(self._hardware.snapshot(), self._ledger.held_here()):
                return snapshot, held

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


def _shaping(snapshot: Snapshot, layout: slices.Layout | None, held: Wires) -> Wires:
    """What of `held` makes the slices others than they are with nothing held: all of it, or nothing.

    Nothing while each of these devices is listed anyway, as it was published. As soon as one isn't, the others count
    too: a counter is as large as all that is held on it. Where nothing is published it matters only without chips.
    """
    if layout is None:
        return {} if snapshot.machine.chips else held
    return {} if all(_listed(snapshot, layout, name, wire) for name, wire in held.items()) else held


def _listed(snapshot: Snapshot, layout: slices.Layout, name: str, wire: Mapping[str, Any]) -> bool:
    """Whether the machine offers it now, just so: with counters anything, without them only one granularity."""
    device = snapshot.devices.get(name)
    if device is None or not (layout.counted or device.type is layout.granularity):
        return False
    return wire is device.wire or wire == device.wire


def _by_type(built: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    """Devices of these slices by their published type."""
    devices = (device for each in built for device in each["spec"].get("devices") or ())
    return Counter(str(device["attributes"]["type"]["string"]) for device in devices)
