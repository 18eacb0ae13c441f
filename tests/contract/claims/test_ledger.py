"""Records, CDI files and hardware in step: what is refused, what comes back, and what survives what.

Long, since every check under the one lock is told here, beside the same few fixtures.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from cdi.errors import UnresolvableError
from dra_driver.claims.refusals import Reason
from dra_driver.simulator.machines import make_unreadable, put, use_memory
from dra_driver.simulator.samples import DRIVER, POOL, claim, pod, ref, result

Obj = dict[str, Any]
Node = Any  # as conftest.py makes it
ReadOnly = Callable[[Path], AbstractContextManager[None]]

ONE = claim("a", "core-0-0", owner="p")
TWO = claim("b", "core-0-1", owner="q")
CHIP = claim("c", "chip-0", owner="r")


@pytest.fixture
def held(node: Node) -> Node:
    """A node on which pod p holds core-0-0."""
    node.api.put(ONE, TWO, CHIP)
    node.prepared(ONE)
    return node


def serial(node: Node, chip: int, text: str) -> None:
    put(node.machine.chip(chip) / "info/serial_number", f"{text}\n")


def contents(node: Node) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in node.cdi.iterdir()}


# What is answered and what a container sees


def test_an_answer_names_request_pool_device_and_one_cdi_id_each(node: Node) -> None:
    node.api.put(one := claim("a", result("core-0-0", "req/small"), owner="p"))
    (device,) = node.prepared(one)["a"].devices
    assert (device.requests, device.pool, device.device) == (("req",), POOL, "core-0-0")
    assert device.cdi_ids == (f"{DRIVER}/claim=uid-a-core-0-0",)
    assert node.spec(one).exists()


def test_a_container_sees_its_core_and_nothing_else(held: Node) -> None:
    view = held.see(held.prepared(TWO)["b"])
    assert [(node.path, node.host_path, node.major, node.minor, node.permissions) for node in view.nodes] == [
        ("/dev/neuron0", "/dev/neuron0", 243, 0, "rw")
    ]
    assert view.variable("NEURON_RT_VISIBLE_CORES") == "1"


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_several_devices_say_the_same_in_whatever_order_a_runtime_applies_them(
    node: Node, order: tuple[int, int]
) -> None:
    two = [claim("a", "core-1-1", owner="p"), claim("b", "core-2-0", owner="p")]
    node.api.put(*two, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    answers = node.prepared(*two)
    view = node.see(*(answers["ab"[index]] for index in order))
    assert [node.host_path for node in view.nodes] == ["/dev/neuron1", "/dev/neuron2"]
    assert view.variable("NEURON_RT_VISIBLE_CORES") == "1-2"


def test_bc044_a_claim_of_other_drivers_is_prepared_with_nothing_and_leaves_nothing(node: Node) -> None:
    node.api.put(one := claim("a", result("core-0-0", driver="nic.example.com", pool="x"), owner="p"))
    assert node.prepared(one)["a"].devices == ()
    assert node.files() == []
    assert node.unprepare(one) == {"a": ""}


def test_32_results_in_one_claim(node: Node) -> None:
    """The most that the API allows."""
    own = [f"core-{chip}-{core}" for chip in range(4) for core in range(2)]
    watched = [result(name, admin=True) for _ in range(3) for name in own]
    node.api.put(one := claim("a", *own, *watched, owner="p"))
    answer = node.prepared(one)["a"]
    assert len(answer.devices) == 32
    view = node.see(answer)
    assert len(view.nodes) == 4
    assert view.variable("NEURON_RT_VISIBLE_CORES") == "0-7"


# What is held


@pytest.mark.parametrize(("wanted", "told"), [("chip-0", "chip-0"), ("core-0-0", "core-0-0")])
def test_bc038_a_held_core_is_not_given_again_not_even_after_a_restart(held: Node, wanted: str, told: str) -> None:
    held.api.put(over := claim("x", wanted, owner="y"))
    for _ in range(2):
        error = held.refused(over)
        assert error.startswith(Reason.DEVICE_HELD.code)
        assert f"wants {told}" in error
        assert "claim default/a (uid-a) (pod p) holds core-0-0" in error
        held.start()
    assert not held.record(over).exists()
    assert held.unprepare(ONE) == {"a": ""}
    held.prepared(over)


def test_a_core_of_a_held_chip_is_not_given(node: Node) -> None:
    node.api.put(CHIP, TWO)
    node.prepared(CHIP)
    assert "holds chip-0" in node.refused(TWO)


def test_monitoring_access_goes_beside_whoever_holds_the_device_in_both_orders(held: Node) -> None:
    held.api.put(watch := claim("w", result("chip-0", admin=True), owner="m"))
    held.prepared(watch)
    held.prepared(TWO)
    assert sorted(held.ledger.held()) == ["core-0-0", "core-0-1"]
    held.unprepare(ONE, TWO, watch)
    held.prepared(watch)
    held.prepared(CHIP)


def test_devices_that_overlap_in_one_pod_are_refused(node: Node) -> None:
    """As an allocator without counters would give them."""
    over = claim("x", "core-0-0", "chip-0", owner="p")
    two = [claim("y", "core-1-0", owner="p"), claim("z", "chip-1", owner="p")]
    node.api.put(over, *two, pod("p", {"main": ["y", "z"]}, own=["y", "z"]))
    assert node.refused(over).startswith(Reason.OVERLAP.code)
    assert all(answer.error.startswith(Reason.OVERLAP.code) for answer in node.prepare(*two).values())
    assert node.files() == []


def test_what_records_hold_is_told_as_it_was_published(held: Node) -> None:
    assert held.ledger.held() == {"core-0-0": held.hardware.devices()["core-0-0"].wire}


def test_a_unit_is_prepared_whole_or_not_at_all(node: Node) -> None:
    two = [claim("x", "core-1-0", owner="y"), claim("z", "core-1-1", owner="y")]
    node.api.put(other := claim("s", "core-1-1", owner="t"), *two, pod("y", {"main": ["x", "z"]}, own=["x", "z"]))
    node.prepared(other)
    answers = node.prepare(*two)
    assert all(answer.error.startswith(Reason.DEVICE_HELD.code) for answer in answers.values())
    assert node.files() == sorted([node.record(other).name, node.spec(other).name])


# The same claim again


def test_bc040_prepared_for_two_pods_undone_and_prepared_again_it_is_the_same(node: Node) -> None:
    node.api.put(shared := claim("s", "core-0-0", users=["p", "q"]))
    first, view = node.prepared(shared), node.see(node.prepared(shared)["s"])
    files = contents(node)
    node.unprepare(shared)
    assert node.prepared(shared) == first
    assert node.see(first["s"]) == view
    assert contents(node) == files


def test_another_allocation_under_the_same_uid_replaces_the_old_one(held: Node) -> None:
    held.api.put(claim("a", "core-1-0", owner="p"))
    answer = held.prepared(ONE)["a"]
    assert [device.device for device in answer.devices] == ["core-1-0"]
    assert [node.host_path for node in held.see(answer).nodes] == ["/dev/neuron1"]
    assert list(held.ledger.held()) == ["core-1-0"]
    held.api.put(again := claim("x", "core-0-0", owner="y"))
    held.prepared(again)


def test_another_allocation_waits_while_a_process_uses_the_old_device(held: Node) -> None:
    use_memory(held.machine, 0, 0, 4096)
    held.api.put(claim("a", "core-1-0", owner="p"))
    error = held.refused(ONE)
    assert error.startswith(Reason.STILL_IN_USE.code)
    assert "core 0 of chip 0" in error
    assert list(held.ledger.held()) == ["core-0-0"]
    use_memory(held.machine, 0, 0, 0)
    held.prepared(ONE)


def test_another_allocation_does_not_wait_for_what_was_only_watched(node: Node) -> None:
    node.api.put(claim("w", result("chip-0", admin=True), owner="m"))
    watch = claim("w", result("chip-1", admin=True), owner="m")
    node.prepared(watch)
    use_memory(node.machine, 0, 0, 4096)
    node.api.put(watch)
    assert [device.device for device in node.prepared(watch)["w"].devices] == ["chip-1"]


def test_a_record_planned_with_other_claims_is_planned_anew(node: Node) -> None:
    one, two = claim("a", "core-0-0", owner="p"), claim("b", "core-0-1", owner="p")
    node.api.put(one, two, pod("p", {"main": ["a", "b"]}, own=["a", "b"]))
    node.prepared(one)
    assert node.see(node.prepared(one, two)["a"]).variable("NEURON_RT_VISIBLE_CORES") == "0-1"
    assert json.loads(node.record(one).read_bytes().splitlines()[0])["unit"] == ["uid-a", "uid-b"]


# Hardware that changes


def test_bc022_a_chip_that_is_another_one_than_was_scanned_is_refused(node: Node) -> None:
    node.api.put(ONE)
    serial(node, 0, "00000000deadbeef")
    error = node.refused(ONE)
    assert error.startswith(Reason.SCAN_OUTDATED.code)
    assert "00000000deadbeef" in error
    assert node.files() == []
    node.hardware.rescan()
    node.prepared(ONE)


def test_another_device_number_than_was_scanned_is_refused(node: Node) -> None:
    node.api.put(ONE)
    put(node.machine.chip(0) / "dev", "240:0\n")
    assert "240:0" in node.refused(ONE)


def test_a_chip_that_is_gone_from_sysfs_is_refused(node: Node) -> None:
    node.api.put(ONE)
    shutil.rmtree(node.machine.chip(0))
    assert "kernel module" in node.refused(ONE)
    node.hardware.rescan()
    assert node.refused(ONE).startswith(Reason.UNKNOWN_DEVICE.code)


def test_bc096_another_serial_under_a_held_name_is_refused_within_the_boot(held: Node) -> None:
    serial(held, 0, "00000000deadbeef")
    held.start()
    error = held.refused(ONE)
    assert error.startswith(Reason.CHIP_CHANGED.code)
    assert "00000000deadbeef" in error
    assert held.unprepare(ONE) == {"a": ""}


def test_bc096_across_a_boot_the_name_decides_and_the_numbers_are_new(held: Node) -> None:
    held.reboot(major=240)
    serial(held, 0, "00000000deadbeef")
    held.start()
    (node,) = held.see(held.prepared(ONE)["a"]).nodes
    assert (node.major, node.minor) == (240, 0)
    assert held.ledger.of_earlier_boot() == []


def test_a_serial_that_cannot_be_read_changes_nothing(held: Node) -> None:
    serial(held, 0, "")
    held.start()
    held.prepared(ONE)


# Start again


def test_bc053_the_cdi_directory_is_brought_back_at_the_start_with_the_same_bytes(held: Node) -> None:
    held.prepared(TWO)
    before = contents(held)
    shutil.rmtree(held.cdi)
    held.start()
    assert contents(held) == before
    assert held.spec(ONE).stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("spoil", [Path.unlink, lambda path: path.write_text("{}"), lambda path: path.write_text("")])
def test_bc053_a_file_that_is_missing_or_differs_is_applied_again_when_it_is_asked_for(
    held: Node, spoil: Callable[[Path], Any]
) -> None:
    before, record = contents(held), held.record(ONE).stat()
    spoil(held.spec(ONE))
    held.prepared(ONE)
    assert contents(held) == before
    assert held.record(ONE).stat().st_mtime_ns == record.st_mtime_ns


def test_bc037_after_a_reboot_nothing_is_taken_for_prepared_and_all_is_held(held: Node) -> None:
    held.reboot(major=240)
    before = held.cdi.stat().st_mtime_ns
    held.start()
    assert contents(held) == {}
    assert held.cdi.stat().st_mtime_ns == before, "not even for a moment"
    assert [record.claim.uid for record in held.ledger.of_earlier_boot()] == ["uid-a"]
    assert held.refused(CHIP).startswith(Reason.DEVICE_HELD.code)
    held.prepared(ONE)
    assert held.spec(ONE).exists()


def test_a_file_of_an_earlier_boot_goes_where_the_directory_outlives_it(held: Node) -> None:
    """Its device numbers are that boot's."""
    content = held.spec(ONE).read_bytes()
    held.reboot()
    held.spec(ONE).write_bytes(content)
    held.start()
    assert contents(held) == {}
    assert held.record(ONE).exists()


def test_a_file_without_a_record_goes_and_others_files_stay(held: Node) -> None:
    held.spec(TWO).write_bytes(held.spec(ONE).read_bytes().replace(b"uid-a", b"uid-b"))
    other = held.cdi / "other-claim_uid-b.json"
    other.write_bytes(b"{}")
    held.start()
    assert not held.spec(TWO).exists()
    assert other.exists()
    assert held.spec(ONE).exists()


def test_bc046_what_was_answered_needs_only_the_file(held: Node) -> None:
    answer = held.prepared(ONE)["a"]
    shutil.rmtree(held.state)
    assert held.see(answer).variable("NEURON_RT_VISIBLE_CORES") == "0"


def test_an_unknown_boot_is_never_taken_for_another_one(held: Node) -> None:
    (held.machine.proc / "sys/kernel/random/boot_id").unlink()
    held.start()
    assert held.ledger.of_earlier_boot() == []
    held.api.put(claim("b", "core-0-1", owner="q"))
    held.prepared(TWO)
    put(held.machine.proc / "sys/kernel/random/boot_id", "known-again\n")
    held.start()
    assert [record.claim.uid for record in held.ledger.of_earlier_boot()] == ["uid-a"]
    assert held.spec(TWO).exists()


# Records that can't be read


@pytest.fixture
def damaged(held: Node) -> Node:
    held.record(ONE).write_bytes(held.record(ONE).read_bytes()[:-20])
    held.start()
    return held


def test_a_damaged_record_blocks_exactly_its_devices(damaged: Node) -> None:
    error = damaged.refused(CHIP)
    assert error.startswith(Reason.RECORD_UNREADABLE.code)
    assert str(damaged.record(ONE)) in error
    assert "may hold chip-0" in error
    damaged.prepared(TWO)


def test_a_damaged_record_without_its_cdi_file_blocks_what_is_new_and_nothing_else(damaged: Node) -> None:
    damaged.prepared(TWO)
    damaged.spec(ONE).unlink()
    damaged.api.put(far := claim("x", "core-3-0", owner="y"))
    assert "nobody knows what it holds" in damaged.refused(far)
    damaged.prepared(TWO)  # it holds its device already
    assert damaged.unprepare(ONE) == {"a": ""}
    damaged.prepared(far)


def test_a_damaged_record_of_the_claim_itself_is_written_anew(damaged: Node) -> None:
    damaged.prepared(ONE)
    assert damaged.refused(CHIP).startswith(Reason.DEVICE_HELD.code)


def test_a_damaged_record_of_an_earlier_boot_blocks_nothing(damaged: Node) -> None:
    damaged.reboot()
    before_boot = 999_999_999.0
    os.utime(damaged.record(ONE), (before_boot, before_boot))
    damaged.start()
    damaged.prepared(CHIP)


def test_a_damaged_record_that_only_seems_old_blocks_what_its_cdi_file_names(damaged: Node) -> None:
    """The clock was set forward after the claim was prepared: the same boot, but it began later by the new time."""
    put(damaged.machine.proc / "stat", f"btime {int(damaged.record(ONE).stat().st_mtime) + 1000}\n")
    damaged.start()
    assert damaged.spec(ONE).exists()
    assert damaged.refused(CHIP).startswith(Reason.RECORD_UNREADABLE.code)
    damaged.prepared(TWO)


def test_a_damaged_record_is_undone_by_its_uid(damaged: Node) -> None:
    assert damaged.unprepare(ONE) == {"a": ""}
    assert damaged.files() == []


# Undoing


def test_undone_nothing_is_left_and_again_is_a_success(held: Node) -> None:
    assert held.unprepare(ONE) == {"a": ""}
    assert held.files() == []
    assert held.unprepare(ONE) == {"a": ""}


def test_bc043_what_was_never_prepared_is_undone(node: Node) -> None:
    assert node.unprepare(ONE, TWO) == {"a": "", "b": ""}


def test_a_file_without_a_record_is_undone(held: Node) -> None:
    held.record(ONE).unlink()
    assert held.unprepare(ONE) == {"a": ""}
    assert held.files() == []


def test_bc041_undoing_needs_neither_api_nor_hardware(held: Node) -> None:
    held.api.remove(ONE)
    before = len(held.api.reads)
    for chip in range(4):
        make_unreadable(held.machine, chip)
    held.start()
    assert held.hardware.devices() == {}
    assert held.unprepare(ONE) == {"a": ""}
    assert held.files() == []
    assert len(held.api.reads) == before


def test_bc035_prepared_and_never_used_survives_restarts_and_is_undone(held: Node) -> None:
    held.start()
    held.start()
    assert held.unprepare(ONE) == {"a": ""}
    assert held.files() == []


@pytest.mark.parametrize("uid", ["../../etc/passwd", "", "a/b"])
def test_a_uid_that_is_no_file_name_was_never_prepared(held: Node, uid: str) -> None:
    odd = claim("a", "core-0-0")
    odd["metadata"]["uid"] = uid
    others = held.files()
    assert held.service.unprepare([ref(odd)]) == {uid: None}
    assert held.files() == others
    assert held.service.unprepare([ref(odd), ref(ONE)]) == {uid: None, "uid-a": None}
    assert held.files() == []


# Directories that refuse


def test_bc036_a_read_only_cdi_directory_fails_those_claims_that_have_a_file(held: Node, read_only: ReadOnly) -> None:
    with read_only(held.cdi):
        answers = held.unprepare(ONE, TWO)
        assert answers["b"] == ""
        assert answers["a"].startswith(Reason.STORAGE.code)
        assert "read-only" in answers["a"]
        assert held.record(ONE).exists()
        assert held.refused(TWO).startswith(Reason.STORAGE.code)
        assert held.refused(CHIP).startswith(Reason.DEVICE_HELD.code)
    assert held.unprepare(ONE, TWO) == {"a": "", "b": ""}
    assert held.files() == []


def test_a_full_cdi_directory_is_named_and_nothing_half_is_left(node: Node, small: Callable[..., None]) -> None:
    node.api.put(ONE)
    small(node.cdi, "4k")
    (node.cdi / "filler").write_bytes(b"x" * 4096)
    error = node.refused(ONE)
    assert error.startswith(Reason.STORAGE.code)
    assert str(node.spec(ONE)) in error
    assert [path.name for path in node.cdi.iterdir()] == ["filler"]
    (node.cdi / "filler").unlink()
    node.see(node.prepared(ONE)["a"])


def test_a_file_in_the_cdi_directorys_place_is_named_and_start_and_undo_work(held: Node) -> None:
    shutil.rmtree(held.cdi)
    held.cdi.write_text("")
    held.start()
    error = held.refused(TWO)
    assert error.startswith(Reason.STORAGE.code)
    assert str(held.cdi) in error
    assert held.unprepare(ONE, TWO) == {"a": "", "b": ""}


def test_a_cdi_file_that_somebody_replaced_by_a_folder_is_named(held: Node) -> None:
    held.spec(ONE).unlink()
    held.spec(ONE).mkdir()
    assert held.refused(ONE).startswith(Reason.STORAGE.code)
    assert held.unprepare(ONE)["a"].startswith(Reason.STORAGE.code)


def test_a_file_that_somebody_else_writes_too_is_found_out(held: Node, tmp_path: Path) -> None:
    """What was answered has to be what a runtime reads."""
    other = tmp_path / "other.json"
    other.write_bytes(held.spec(ONE).read_bytes().replace(b"VISIBLE_CORES=0", b"VISIBLE_CORES=1"))
    script = (
        f"import os; content = open({str(other)!r}, 'rb').read()\n"
        f"while True: open('x', 'wb').write(content), os.replace('x', {str(held.spec(ONE))!r})"
    )
    end = time.monotonic() + 60
    with subprocess.Popen([sys.executable, "-c", script], cwd=tmp_path) as writer:
        try:
            while not (error := getattr(held.prepare(ONE)["a"], "error", "")):
                assert time.monotonic() < end
        finally:
            writer.kill()
    assert error.startswith(Reason.STORAGE.code)
    assert "somebody else writes it" in error


def test_after_undoing_no_runtime_resolves_the_device(held: Node) -> None:
    answer = held.prepared(ONE)["a"]
    held.unprepare(ONE)
    with pytest.raises(UnresolvableError):
        held.see(answer)


# Chips that a device plugin's containers hold


def test_bc105_a_claim_that_is_new_waits_for_containers_of_a_device_plugin(held: Node) -> None:
    """It may have been allocated before they were seen; which chips they have, nobody can say."""
    held.elsewhere = "containers that a device plugin served still hold chips: default/old"
    why = held.refused(TWO)
    assert why.startswith(Reason.HELD_ELSEWHERE.code)
    assert "default/b" in why
    assert "default/old" in why
    assert not held.record(TWO).exists()
    assert not held.spec(TWO).exists()
    held.elsewhere = ""
    held.prepared(TWO)


def test_bc105_a_claim_that_is_prepared_stays_so_beside_them(held: Node) -> None:
    held.elsewhere = "containers that a device plugin served still hold chips: default/old"
    before = held.files()
    held.prepared(ONE)
    assert held.files() == before
    assert held.unprepare(ONE) == {"a": ""}
