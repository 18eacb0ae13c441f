"""The node's hardware as the rest of the daemon sees it: one snapshot, replaced as a whole at each scan."""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dra_driver.claims.hardware import Snapshot
from dra_driver.errors import NeuronError
from dra_driver.findings import Finding
from dra_driver.inventory.devices import Device, devices, physical_cores
from dra_driver.neuron import lnc as neuron_lnc
from dra_driver.neuron import now
from dra_driver.neuron.catalogue import instance_is_neuron
from dra_driver.neuron.machine import Chip, Machine, Problem
from dra_driver.neuron.sysfs import read_machine

log = logging.getLogger(__name__)


class NodeHardware:
    """Implements `claims.hardware.Hardware` on sysfs. Raises NeuronError where the first scan fails."""

    def __init__(
        self, *, sysfs_root: Path, proc_root: Path, lnc: Callable[[Machine], int] = neuron_lnc.default
    ) -> None:
        """`lnc` tells the LNC in force on that machine now; asked at every look, it must not block."""
        self._lnc = lnc
        self._sysfs_root = sysfs_root
        self._proc_root = proc_root
        self._lock = threading.Lock()
        self._unreadable = ""  # why the last scan failed
        self._scan = self._look()
        self._report(Machine())

    def rescan(self) -> bool:
        """Look again; whether anything is different. An unreadable tree leaves the last snapshot."""
        with self._lock:
            before = self._scan
            try:
                found = self._look()
                self._unreadable = ""
            except NeuronError as error:
                if str(error) != self._unreadable:
                    log.error("the machine can't be scanned, what is known of it stays: %s", error)  # noqa: TRY400
                self._unreadable = str(error)
                return False
            if found.machine == before.machine:
                return False
            self._scan = found
            self._report(before.machine)
            return True

    def snapshot(self) -> Snapshot:
        """The last scan, all of one moment; its devices at the LNC in force now."""
        scan = self._scan
        if self._lnc(scan.machine) == scan.lnc:
            return scan
        with self._lock:
            self._scan = self._cut(self._scan.machine)
            return self._scan

    def machine(self) -> Machine:
        """The machine of the last scan."""
        return self._scan.machine

    def devices(self) -> Mapping[str, Device]:
        """All devices of the last scan, by name, in publishing order."""
        return self.snapshot().devices

    def missing(self) -> str | None:
        """Why a machine that DMI calls a Neuron instance shows no chip; None when it does, or is another kind."""
        machine = self.machine()
        if machine.chips or not instance_is_neuron(machine.instance_type):
            return None
        why = "; ".join(map(_told, machine.problems))
        return (
            f"a {machine.instance_type} has Neuron chips, but sysfs shows none that can be used ({why}): "
            "is the neuron kernel module loaded?"
        )

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with the hardware, or with what can be seen of it, as of the last scan."""
        if self._unreadable:
            return (Finding("HardwareUnreadable", f"{self._unreadable}; what was published before stays"),)
        if missing := self.missing():
            return (Finding("HardwareMissing", missing),)
        return tuple(Finding("HardwareProblem", _told(problem)) for problem in self.machine().problems)

    def changed(self, chip: Chip) -> str | None:
        """What sysfs says otherwise of a chip now."""
        return now.changed(chip, sysfs_root=self._sysfs_root)

    def busy(self, device: Device) -> str | None:
        """Which of its cores, as sysfs counts them, a process holds device memory on."""
        machine, cores = self.machine(), physical_cores(device)
        for index in device.chips:
            chip = machine.chip(index)
            own = sorted(core for of, core in cores if of == index)
            if chip and (held := now.memory_held(chip, _in_sysfs(machine, chip, own), sysfs_root=self._sysfs_root)):
                return held
        return None

    def _look(self) -> Snapshot:
        machine = read_machine(sysfs_root=self._sysfs_root, proc_root=self._proc_root)
        return self._cut(machine)

    def _cut(self, machine: Machine) -> Snapshot:
        lnc = self._lnc(machine)
        return Snapshot(machine, {device.name: device for device in devices(machine, lnc=lnc)})

    def _report(self, before: Machine) -> None:
        machine = self.machine()
        for problem in machine.problems:
            if problem not in before.problems:
                log.warning("%s", _told(problem))
        if machine.chips != before.chips or not machine.chips:
            log.info(
                "machine scanned",
                extra={
                    "instance_type": machine.instance_type,
                    "chips": len(machine.chips),
                    "cores": sum(chip.physical_cores for chip in machine.chips),
                    "driver_version": machine.driver_version,
                },
            )


def _told(problem: Problem) -> str:
    return f"{problem.path} {problem.reason}"


def _in_sysfs(machine: Machine, chip: Chip, cores: Sequence[int]) -> Sequence[int]:
    """These cores by their numbers in sysfs; all of the chip where the order that workloads count in isn't known."""
    order = neuron_lnc.order(machine, chip)
    return sorted(order[core] for core in cores) if order else range(chip.physical_cores)
