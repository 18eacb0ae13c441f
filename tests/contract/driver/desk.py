"""The decision what to publish, by itself: no daemon, no publisher, no API."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from dra_driver.cluster.slices import Owner, Server
from dra_driver.coexistence import Neighbours
from dra_driver.hardware import NodeHardware
from dra_driver.inventory.devices import Device
from dra_driver.publishing import Publishing
from dra_driver.settings import Granularity, Settings
from dra_driver.simulator.machines import MachinePaths, make_machine
from tests.contract.driver.conftest import DRIVER, NODE

COUNTED, UNCOUNTED = Server(37, counters=True), Server(37, counters=False)
OWNER = Owner(NODE, "uid")


class Books:
    """A ledger as far as slices ask: what is held, and a moment just after somebody looked."""

    def __init__(self) -> None:
        self.now: dict[str, Mapping[str, Any]] = {}
        self.meanwhile: Callable[[], object] = lambda: None

    def held(self) -> dict[str, Mapping[str, Any]]:
        found = dict(self.now)
        self.meanwhile()
        return found

    def held_here(self) -> dict[str, Mapping[str, Any]]:
        return dict(self.now)


class Told:
    """Events, as reason and text."""

    def __init__(self, told: list[tuple[str, str]]) -> None:
        self._told = told

    def on_node(self, reason: str, text: str) -> None:
        self._told.append((reason, text))


class Faults:
    """The metric of faults, as set at each build."""

    def __init__(self, faults: list[int]) -> None:
        self._faults = faults

    def slice_faults(self, count: int) -> None:
        self._faults.append(count)


class Desk:
    """What publishes, without a publisher."""

    def __init__(
        self,
        root: Path,
        granularity: Granularity = Granularity.CHIP,
        *,
        size: str = "trn1.2xlarge",
        driver_version: str | None = None,
    ) -> None:
        self.machine: MachinePaths = make_machine(size, root / "m", driver_version=driver_version)
        self.hardware = NodeHardware(sysfs_root=self.machine.sysfs, proc_root=self.machine.proc)
        self.books = Books()
        settings = Settings(
            node_name=NODE,
            driver_name=DRIVER,
            granularity_without_counters=granularity,
            kubelet_plugins_dir=root,
            kubelet_registrar_dir=root,
        )
        neighbours = Neighbours(settings, changed=lambda: None)
        self.told: list[tuple[str, str]] = []
        self.faults: list[int] = []
        books, notices, metrics = (cast("Any", each) for each in (self.books, Told(self.told), Faults(self.faults)))
        self.publishing = Publishing(settings, self.hardware, books, neighbours, notices, metrics)

    def hold(self, *held: Device) -> None:
        self.books.now = {device.name: device.wire for device in held}

    def look(self, server: Server = COUNTED) -> list[dict[str, Any]]:
        """One pass of the publisher; nothing when it is to publish nothing."""
        node = {"metadata": {"name": NODE, "uid": "uid"}}
        return [] if self.publishing.withhold(node) else self.publishing.build(server, 1, OWNER)

    def device(self, name: str) -> Device:
        return self.hardware.devices()[name]
