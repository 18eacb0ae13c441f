"""A sysfs tree that is half there, not there, or comes late: what can be served is served, and somebody is told."""

import shutil

import pytest

from dra_driver.simulator import machines
from dra_driver.simulator.kubelet import PrepareError
from tests.contract.driver.conftest import DRIVER, POOL, Rig, eventually


def test_bc026_chips_that_appear_after_the_start_are_published_without_a_restart(rig: Rig) -> None:
    """DMI says that the machine has chips, but the kernel module isn't loaded yet."""
    hidden = rig.machine.sysfs / "class" / "later"
    rig.machine.class_entry(0).parent.rename(hidden)
    rig.launch("--rescan-interval=1")
    rig.kubelet.wait_registered(DRIVER)

    why = rig.wait_not_ready("sysfs shows none")
    assert "a trn1.2xlarge has Neuron chips" in why
    assert "is the neuron kernel module loaded?" in why
    assert rig.health("readiness") == "NOT_SERVING"
    assert rig.health("liveness") == "SERVING"
    assert why in rig.wait_events("HardwareMissing")
    assert rig.device_names() == []

    hidden.rename(rig.machine.class_entry(0).parent)
    eventually(lambda: len(rig.device_names()) == 3, "devices", seen=rig.process.tail)
    rig.wait_ready()
    rig.prepare(rig.core("a"))


def test_node_without_neuron_is_ready_with_nothing_to_publish(rig: Rig) -> None:
    """A rollout must not stall on the nodes that have none."""
    shutil.rmtree(rig.machine.class_entry(0).parent)
    machines.put(rig.machine.sysfs / "devices/virtual/dmi/id/product_name", "m5.large\n")
    rig.start()
    (line,) = rig.said("^ready$")
    assert line["why"] == "withheld: no Neuron hardware on this node"
    assert rig.slices() == []
    assert rig.server.audit.writes() == []
    assert [row for row in rig.server.audit.rows() if row.dry_run] == []


@pytest.mark.parametrize("missing", ["class/neuron_device", "module/neuron", "all of both"])
def test_bc118_node_without_neuron_costs_nothing(rig: Rig, missing: str) -> None:
    """No write ever, no request while nothing changes, no line in the log; and it is Ready."""
    for part in ("class/neuron_device", "module/neuron") if missing == "all of both" else (missing,):
        shutil.rmtree(rig.machine.sysfs / part)
    if missing == "module/neuron":
        shutil.rmtree(rig.machine.class_entry(0).parent)
    machines.put(rig.machine.sysfs / "devices/virtual/dmi/id/product_name", "m5.large\n")
    rig.start("--rescan-interval=1")
    rig.wait_ready_because("no Neuron hardware on this node")
    looks = rig.kubelet.pod_resources
    assert looks
    before, lines, seen = rig.wait_idle(), len(rig.lines()), looks.lists
    eventually(lambda: looks.lists >= seen + 3, "looked again and again")
    assert rig.server.audit.rows()[before:] == []
    assert rig.lines()[lines:] == []
    assert rig.server.audit.writes() == []
    assert [line for line in rig.lines() if line["level"] != "INFO"] == []
    assert rig.events("HardwareMissing") == []


def test_half_made_chip_is_left_out_and_named(rig: Rig) -> None:
    machines.make_unreadable(rig.machine, 0)
    rig.launch()
    rig.kubelet.wait_registered(DRIVER)
    why = rig.wait_not_ready("core_count")
    path = str(rig.machine.chip(0) / "core_count")
    assert path in why
    assert "chip left out" in why
    assert any(path in text for text in rig.wait_events("HardwareMissing"))
    assert rig.said("core_count can't be read")[0]["level"] == "WARNING"
    assert rig.device_names() == []


def test_problem_of_a_chip_that_can_still_be_used_is_an_event(rig: Rig) -> None:
    machines.put(rig.machine.sysfs / "module/neuron/version", "experimental\n")
    rig.start()
    (text,) = rig.wait_events("HardwareProblem")
    assert "module/neuron/version is 'experimental'" in text
    assert len(rig.device_names()) == 3


def test_chip_that_goes_while_the_driver_runs(rig: Rig) -> None:
    """What is free goes from the slices; what a record holds stays, or its counters would count as free."""
    rig.start("--rescan-interval=1")
    rig.prepare(ref := rig.core("a"))
    machines.remove_chip(rig.machine, 0)
    eventually(lambda: rig.device_names() == ["core-0-0"], "only what is held", seen=rig.device_names)
    assert "sysfs shows none" in rig.wait_not_ready("trn1.2xlarge")
    health = rig.kubelet.health
    eventually(lambda: health.states(DRIVER)[POOL, "core-0-0"] == "UNHEALTHY", "unhealthy", seen=rig.process.tail)
    rig.unprepare(ref)
    assert (rig.records(), rig.specs()) == ([], [])
    eventually(lambda: rig.device_names() == [], "nothing left", seen=rig.device_names)


def test_unreadable_tree_while_the_driver_runs_changes_nothing(rig: Rig) -> None:
    """An outage of sysfs isn't a loss of hardware; what can't be checked isn't granted meanwhile."""
    rig.start("--rescan-interval=1", "--prepare-wait=0")
    rig.prepare(held := rig.core("held"))
    slices, folder = rig.slices(), rig.machine.class_entry(0).parent
    folder.rename(folder.with_name("aside"))
    folder.write_text("no folder")

    rig.wait_said("the machine can't be scanned, .* can't list")
    assert any("can't list" in text for text in rig.wait_events("HardwareUnreadable"))
    assert rig.slices() == slices
    assert rig.health("readiness") == "SERVING"
    with pytest.raises(PrepareError, match=r"ScanOutdated: .* chip 0: .*neuron0 is gone or can't be read"):
        rig.prepare(rig.core("a", "core-0-1"))
    rig.unprepare(held)

    folder.unlink()
    folder.with_name("aside").rename(folder)
    rig.prepare(rig.core("b"))
    assert rig.slices() == slices


def test_bc085_a_machine_that_contradicts_itself_is_served_and_told_everywhere(rig: Rig) -> None:
    """Two cores by the count, three by their folders: the count is served; log, Event and metric say so."""
    rig.start("--rescan-interval=1")
    names = rig.device_names()
    eventually(lambda: rig.metrics("coreslice_hardware_problems") == [({}, 0)], "a sound machine")
    shutil.copytree(rig.machine.chip(0) / "neuron_core1", rig.machine.chip(0) / "neuron_core2")
    (text,) = rig.wait_events("HardwareProblem")
    assert "core_count is 2, but there are 3 folders neuron_core<M>" in text
    assert rig.wait_said("but there are 3 folders")["level"] == "WARNING"
    eventually(lambda: rig.metrics("coreslice_hardware_problems") == [({}, 1)], "the metric")
    assert rig.device_names() == names
    shutil.rmtree(rig.machine.chip(0) / "neuron_core2")
    eventually(lambda: rig.metrics("coreslice_hardware_problems") == [({}, 0)], "sound again")
