"""What this node publishes, and whether it does: hardware, records and neighbours put together for the publisher.

Also what people are told of it: metrics of what stands in the API, Events where less is offered than could be.

A look at the API costs two requests, and a claim that comes or goes changes nothing while what is held is listed all
the same. So each build leaves what it depended on, and `outdated` compares that with how it is now.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.claims.hardware import Snapshot
from dra_driver.claims.ledger import Ledger
from dra_driver.cluster.slices import Owner, Phase, PublishState, Server
from dra_driver.coexistence import Neighbours
from dra_driver.hardware import NodeHardware
from dra_driver.inventory import slices
from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.devices import DeviceType, InventoryError, totals
from dra_driver.inventory.lint import repair, repairer
from dra_driver.inventory.lint.server import PARTITIONABLE
from dra_driver.notices import Notices
from dra_driver.observe.metrics import Metrics
from dra_driver.settings import Settings

log = logging.getLogger(__name__)

Wire = Mapping[str, Any]
Wires = Mapping[str, Wire]  # device name → the device as it was published


@dataclass(frozen=True)
class _Basis:
    """What a decision about the slices depended on."""

    snapshot: Snapshot
    listed: Wires | None  # what is listed with nothing held; None where what is held makes no difference
    shaping: Wires  # what is held and shapes them

    def holds(self, snapshot: Snapshot, held: Wires) -> bool:
        """Whether the same would be decided of these, everything else being equal."""
        return snapshot is self.snapshot and _shaping(self.listed, held) == self.shaping


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
        self._granularity = DeviceType(settings.granularity_without_counters.value)
        self._offer = settings.offer
        self._hardware = hardware
        self._ledger = ledger
        self._neighbours = neighbours
        self._notices = notices
        self._metrics = metrics
        self._notes_told: Sequence[slices.Note] = ()
        self._repairer = repairer.Repairer(COMMON)
        self._faults_told: Sequence[str] = ()
        self._built: Mapping[str, int] = {}  # devices by type in the newest build
        self._basis: _Basis | None = None  # of the newest decision; None before the first

    def outdated(self) -> bool:
        """Whether the slices have to be looked at again, now that what is held has changed. Asks neither API nor disk.

        While a look is under way this is told by what the one before depended on, since `_decide` looks twice.
        """
        basis = self._basis
        return basis is None or not basis.holds(self._hardware.snapshot(), self._ledger.held_here())

    def build(self, server: Server, generation: int, owner: Owner) -> list[dict[str, Any]]:
        """The slices of this node as it is now, as far as the server takes them.

        Raises InventoryError for a fault that can't be left out; what stands in the API then stays.
        """
        layout = slices.Layout(server.minor, server.counters, self._granularity)

        def slices_of(snapshot: Snapshot, held: Wires) -> list[dict[str, Any]]:
            return slices.build(
                self.pool,
                snapshot.devices.values(),
                totals(snapshot.machine),
                layout=layout,
                generation=generation,
                offer=self._offer,
                held=held,
                owner=slices.NodeOwner(owner.name, owner.uid),
            )

        snapshot, held = self._decide(lambda snapshot: self._listed(slices_of(snapshot, {}), layout))
        self._tell(slices.notes(snapshot.devices.values(), layout=layout, offer=self._offer, held=held))
        built, faults = self._repaired(slices_of(snapshot, held), layout, held)
        self._metrics.slice_faults(len(faults))
        self._tell_faults(faults)
        _check(faults)
        self._built = Counter(str(wire["attributes"]["type"]["string"]) for wire in _devices(built).values())
        return built

    def _repaired(self, built: Sequence[Wire], layout: slices.Layout, held: Wires) -> repairer.Repaired:
        features = {PARTITIONABLE: layout.counters}
        return self._repairer.repair(built, layout.minor, features=features, held=held.keys())

    def _listed(self, built: Sequence[Wire], layout: slices.Layout) -> Wires:
        """The devices that would be listed of these; as records have them, so with what is left out of each.

        One that is left out as a whole isn't listed: with a claim on it, it would have to be.
        """
        _, faults = self._repaired(built, layout, {})
        gone = {fault.device for fault in faults if fault.repaired and not fault.attribute}
        return {name: wire for name, wire in _devices(built).items() if name not in gone}

    def withhold(self, node: dict[str, Any]) -> str:
        """Why nothing may be published; the Node object was just read. When something may, `build` follows."""
        self._neighbours.node_read(node)
        snapshot, held = self._decide(lambda snapshot: None if self._offers(snapshot) else {})
        if not self._offers(snapshot) and not held:
            return self._nothing(snapshot)
        return self._neighbours.withheld()

    def _offers(self, snapshot: Snapshot) -> bool:
        return bool(snapshot.machine.chips and self._offer.types)

    def _nothing(self, snapshot: Snapshot) -> str:
        if snapshot.machine.chips:
            return "this node's settings offer nothing (--offer-types)"
        return self._hardware.missing() or "no Neuron hardware on this node"

    def _decide(self, listed: Callable[[Snapshot], Wires | None]) -> tuple[Snapshot, Wires]:
        """Hardware and what is held, for a decision that `outdated` knows of before it is made.

        A claim that changes after both were read either finds this basis, or is found here by the second look.
        """
        while True:
            held = self._ledger.held()  # first: the LNC in force is read with the records
            snapshot = self._hardware.snapshot()
            plain = listed(snapshot)
            self._basis = basis = _Basis(snapshot, plain, _shaping(plain, held))
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
        kind = slices.granularity(slices.Layout(0, counters=False, granularity=self._granularity), self._offer)
        offered = "whole chips" if kind is DeviceType.CHIP else "single cores"
        return (
            f"only {offered} are offered here, since nothing would keep chips and "
            f"their cores apart: {why}; turn the gate on for API server, scheduler, controller manager and kubelet, "
            "or choose what is offered by --granularity-without-counters"
        )

    def _tell(self, notes: Sequence[slices.Note]) -> None:
        """What this server's layout has no room for: each when it is new (BC-032)."""
        for note in notes:
            if note not in self._notes_told:
                log.warning("%s", note.text)
                self._notices.on_node(note.reason, note.text)
        self._notes_told = notes

    def _tell_faults(self, faults: Sequence[repair.Note]) -> None:
        """What the server would refuse (BC-014): one Event for each kind of fault, when it is new."""
        told = _by_kind(fault for fault in faults if fault.repaired)
        for text in told:
            if text not in self._faults_told:
                log.warning("%s", text)
                self._notices.on_node("SliceRepaired", text)
        self._faults_told = told


def _by_kind(faults: Iterable[repair.Note]) -> list[str]:
    """The first of each rule and attribute, and how many there are: a fault in a text is on every chip."""
    kinds: dict[tuple[str, str], list[repair.Note]] = {}
    for fault in faults:
        kinds.setdefault((fault.rule, fault.attribute), []).append(fault)
    return [_one_and_more([str(fault) for fault in alike]) for alike in kinds.values()]


def _one_and_more(texts: Sequence[str]) -> str:
    return f"{texts[0]} (and {len(texts) - 1} more)" if texts[1:] else texts[0]


def _check(faults: Iterable[repair.Note]) -> None:
    """What nothing can be left out for, an API server would only answer worse."""
    if fatal := [str(fault) for fault in faults if not fault.repaired]:
        raise InventoryError(f"the API server would refuse this node's slices: {_one_and_more(fatal)}")


def _shaping(listed: Wires | None, held: Wires) -> Wires:
    """What of `held` makes the slices others than they are with nothing held: all of it, or nothing.

    Nothing while each of these devices is listed anyway, as it was published. As soon as one isn't, the others count
    too: a counter is as large as all that is held on it.
    """
    return {} if listed is None or all(_same(listed.get(name), wire) for name, wire in held.items()) else held


def _same(listed: Mapping[str, Any] | None, wire: Mapping[str, Any]) -> bool:
    """Apart from what it draws, which follows from the rest."""
    return listed is not None and all(listed.get(key) == wire.get(key) for key in ("attributes", "capacity"))


def _devices(built: Sequence[Mapping[str, Any]]) -> Wires:
    """The devices of these slices, by name."""
    return {str(wire["name"]): wire for each in built for wire in each["spec"].get("devices") or ()}
