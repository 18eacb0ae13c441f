"""The journal on a disk: one durable write, a lock between processes, and nothing that one bad file spoils."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.records import RecordError
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.claims.store import RecordStore, load
from dra_driver.simulator.samples import claim, ref

Obj = dict[str, Any]
Node = Any  # as conftest.py makes it
ReadOnly = Callable[[Path], AbstractContextManager[None]]
ONE = claim("a", "core-0-0", owner="p")
TWO = claim("b", "core-0-1", owner="q")

HOLD_THE_LOCK = """
import sys
from pathlib import Path
from dra_driver.claims.store import RecordStore
with RecordStore(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""
PREPARE_ONE = """
import sys
from pathlib import Path
from dra_driver.claims.ledger import Boot, Ledger
from dra_driver.claims.planning import Planning
from dra_driver.claims.service import ClaimService, Hooks
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore
from dra_driver.hardware import NodeHardware
from dra_driver.simulator.samples import DRIVER, POOL, Objects, claim, ref

class Call:
    def is_active(self): return True
    def time_remaining(self): return None

state, cdi, sysfs, proc = map(Path, sys.argv[1:])
hardware = NodeHardware(sysfs_root=sysfs, proc_root=proc)
ledger = Ledger(RecordStore(state), SpecDirectory(cdi, driver=DRIVER), hardware, Boot.read(proc))
api = Objects(one := claim("a", "core-0-0", owner="p"))
service = ClaimService(
    planning=Planning(api, DRIVER, POOL), ledger=ledger, hardware=hardware,
    hooks=Hooks(lambda *_: None, lambda: None),
)
for text in ("first", "again"):
    print(text, file=sys.stderr, flush=True)
    print(service.prepare([ref(one)], Call()))
print("undo", file=sys.stderr, flush=True)
print(service.unprepare([ref(one)]))
"""


@pytest.fixture
def held(node: Node) -> Node:
    """A node with one prepared claim."""
    node.api.put(ONE, TWO)
    node.prepared(ONE)
    return node


def identity(path: Path) -> tuple[int, int, bytes]:
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, path.read_bytes()


def test_one_durable_write_a_claim_and_none_when_it_is_asked_for_again(node: Node, tmp_path: Path) -> None:
    """Counted where it happens, in the system calls: the record, then its folder; undoing syncs the folder."""
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-o", str(trace), "-e", "trace=fsync,fdatasync,sync_file_range,sync,syncfs,write"]
    script = [sys.executable, "-c", PREPARE_ONE, node.state, node.cdi, node.machine.sysfs, node.machine.proc]
    done = subprocess.run([*command, *map(str, script)], capture_output=True, text=True, check=True)
    assert done.stdout.count("Prepared(") == 2
    phases = re.split(r'write\(2, "(?:first|again|undo)', trace.read_text())
    assert [len(re.findall(r"\b\w*sync\w*\(", phase)) for phase in phases] == [0, 2, 0, 1]


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_bc010_records_are_for_root_alone_whatever_the_umask(node: Node, umask: int) -> None:
    node.api.put(ONE)
    old = os.umask(umask)
    try:
        node.prepared(ONE)
    finally:
        os.umask(old)
    assert node.record(ONE).stat().st_mode & 0o777 == 0o600


def test_asked_again_nothing_is_written(held: Node) -> None:
    files = [held.record(ONE), *held.cdi.iterdir()]
    before = [identity(path) for path in files]
    first = held.prepared(ONE)
    assert [identity(path) for path in files] == before
    assert held.prepared(ONE) == first


def test_another_process_that_holds_the_lock_is_waited_for(held: Node) -> None:
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(held.state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdin
        assert other.stdout.readline() == "held\n"
        done = threading.Event()
        thread = threading.Thread(target=_prepare, args=(held, done))
        thread.start()
        assert not _free(held.state / "lock")
        assert not done.wait(0.2)
        assert not held.record(TWO).exists()
        other.stdin.close()
        assert done.wait(10)
        thread.join()
    assert held.record(TWO).exists()


@pytest.mark.parametrize("gone", ["lock", "folder"])
def test_a_lock_that_is_removed_under_the_driver_is_made_anew_and_excludes_another_process(
    held: Node, gone: str
) -> None:
    """Else the next instance locks another file, and each gives the cores that the other has given."""
    if gone == "lock":
        (held.state / "lock").unlink()
    else:
        shutil.rmtree(held.state)
        held.state.mkdir()
    command = [sys.executable, "-c", HOLD_THE_LOCK, str(held.state)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout
        assert other.stdin
        assert other.stdout.readline() == "held\n"
        done = threading.Event()
        thread = threading.Thread(target=_prepare, args=(held, done))
        thread.start()
        assert not done.wait(0.2)
        assert not held.record(TWO).exists()
        other.stdin.close()
        assert done.wait(10)
        thread.join()
    assert held.record(TWO).exists()


def _prepare(node: Node, done: threading.Event) -> None:
    node.prepared(TWO)
    done.set()


def _free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_the_lock_is_free_after_a_refusal(held: Node) -> None:
    held.api.put(over := claim("c", "chip-0", owner="r"))
    assert Reason.DEVICE_HELD.code in held.refused(over)
    assert _free(held.state / "lock")


def test_what_another_instance_writes_is_seen_and_what_it_removes_is_gone(held: Node) -> None:
    first = held.service
    held.start()
    held.prepared(TWO)
    with held.store.locked():
        assert held.store.records().keys() == {"uid-a", "uid-b"}
    assert first.unprepare([ref(TWO)]) == {"uid-b": None}
    with held.store.locked():
        assert held.store.records().keys() == {"uid-a"}


def test_a_file_is_read_again_only_when_it_is_another(held: Node) -> None:
    with held.store.locked():
        before = held.store.records()["uid-a"]
    with held.store.locked():
        assert held.store.records()["uid-a"] is before
    content = held.record(ONE).read_bytes()
    held.record(ONE).unlink()
    held.record(ONE).write_bytes(content)
    with held.store.locked():
        assert held.store.records()["uid-a"] is not before
        assert held.store.records()["uid-a"] == before


def test_one_bad_record_never_voids_another(held: Node) -> None:
    held.prepared(TWO)
    held.record(ONE).write_bytes(b"{}")
    with held.store.locked():
        assert held.store.records().keys() == {"uid-b"}
        (bad,) = held.store.damaged()
    assert (bad.uid, bad.path) == ("uid-a", held.record(ONE))
    assert "checksum" in bad.reason


def test_a_folder_in_a_records_place_is_damage_too(held: Node) -> None:
    (held.state / "uid-x.record").mkdir()
    with held.store.locked():
        assert [bad.uid for bad in held.store.damaged()] == ["uid-x"]


def test_other_files_are_nobodys_record(held: Node) -> None:
    for name in (".record", "uid-b.record.bak", ".uid-b.tmp", "README"):
        (held.state / name).write_text("x")
    with held.store.locked():
        assert held.store.records().keys() == {"uid-a"}
        assert held.store.damaged() == []


def test_people_who_look_change_nothing(held: Node, tmp_path: Path) -> None:
    held.prepared(TWO)
    held.record(TWO).write_bytes(b"x")
    before = held.files()
    good, bad = load(held.state)
    assert [record.claim.uid for record in good] == ["uid-a"]
    assert [damaged.uid for damaged in bad] == ["uid-b"]
    assert held.files() == before
    assert load(tmp_path / "nowhere") == ([], [])
    assert not (tmp_path / "nowhere").exists()


def test_a_state_directory_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match=rf"{tmp_path}/file/state.*writable"):
        RecordStore(tmp_path / "file/state")


def test_a_state_directory_that_went_away_refuses_with_its_name(held: Node) -> None:
    shutil.rmtree(held.state)
    error = held.refused(TWO)
    assert error.startswith(Reason.STORAGE.code)
    assert str(held.state) in error
    assert Reason.STORAGE.code in held.unprepare(ONE)["a"]


def test_a_write_that_fails_leaves_the_old_record_and_no_other_file(node: Node, small: Callable[..., None]) -> None:
    """The disk fills up in the middle of a record."""
    node.api.put(ONE, TWO)
    small(node.state, "16k")
    node.start()
    node.prepared(ONE)
    (node.state / "filler").write_bytes(b"x" * _room(node.state))
    before = [name for name in node.files() if "uid-b" not in name]
    error = node.refused(TWO)
    assert error.startswith(Reason.STORAGE.code)
    assert "No space left" in error
    assert node.files() == before
    (node.state / "filler").unlink()
    node.prepared(TWO)


def _room(folder: Path) -> int:
    """All but a fragment, which holds the name of a file and not its content."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize


def test_a_read_only_state_directory_refuses_to_undo_until_it_is_writable(held: Node, read_only: ReadOnly) -> None:
    with read_only(held.state):
        error = held.unprepare(ONE)["a"]
        assert Reason.STORAGE.code in error
        assert str(held.record(ONE)) in error
        assert held.refused(TWO).startswith(Reason.STORAGE.code)
    assert held.unprepare(ONE) == {"a": ""}
    assert held.files() == []


def test_leftovers_of_killed_writers_go_at_the_start(held: Node) -> None:
    (held.state / ".uid-x.tmp").write_text("half")
    (held.cdi / ".neuron.coreslice.dev-claim_uid-x.json.abc.tmp").write_text("half")
    (held.cdi / ".other-claim_uid-x.json.abc.tmp").write_text("not ours")
    held.start()
    assert [name for name in held.files() if name.endswith(".tmp")] == [".other-claim_uid-x.json.abc.tmp"]


def test_a_refusal_keeps_its_text_through_the_lock(held: Node) -> None:
    with pytest.raises(Refusal, match="DeviceHeld: x"), held.store.locked():
        raise Refusal(Reason.DEVICE_HELD, "x")


def test_what_was_written_here_is_known_as_a_reader_would_know_it_and_isn_t_read_again(node: Node) -> None:
    claims = [claim(name.replace("-", ""), name, owner=f"p{name}") for name in ("core-0-0", "core-1-1", "chip-2")]
    node.api.put(*claims)
    node.prepared(*claims[:1])
    for one in claims[1:]:
        node.prepared(one)
    known = node.store.records()
    with node.store.locked():
        assert all(record is known[uid] for uid, record in node.store.records().items())
    good, bad = load(node.state)
    assert ({record.claim.uid: record for record in good}, bad) == (known, [])
    node.unprepare(claims[0])
    assert node.store.records().keys() == {ref(one).uid for one in claims[1:]}


def test_what_somebody_else_puts_in_the_place_of_a_record_written_here_is_read(held: Node) -> None:
    with held.store.locked():
        content = held.record(ONE).read_bytes()
        held.store.save([held.store.records()["uid-a"]])
        held.record(ONE).write_bytes(content[:-1])
    with held.store.locked():
        assert [bad.uid for bad in held.store.damaged()] == ["uid-a"]
