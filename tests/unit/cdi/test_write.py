"""The writer: whole files, quiet when nothing changes, plain about failures."""

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cdi.errors import CdiError, InvalidSpecError, WriteError
from cdi.models import ContainerEdits, Device, Spec
from cdi.read import read
from cdi.registry import load
from cdi.write import remove, remove_leftovers, write


def _with_env(spec: Spec, value: str) -> Spec:
    device = Device(name="a", container_edits=ContainerEdits(env=(f"X={value}",)))
    return spec.model_copy(update={"devices": (device,)})


@pytest.mark.parametrize("durable", [False, True])
def test_write_read_remove(tmp_path: Path, spec: Spec, *, durable: bool) -> None:
    path = tmp_path / "made" / "too" / "a.json"
    assert write(spec, path, durable=durable) is True
    assert read(path) == spec
    assert sorted(path.parent.iterdir()) == [path]
    assert remove(path, durable=durable) is True
    assert remove(path, durable=durable) is False
    assert list(path.parent.iterdir()) == []


def test_remove_where_there_is_no_directory(tmp_path: Path) -> None:
    assert remove(tmp_path / "absent" / "a.json") is False


def test_equal_content_is_not_written_again(tmp_path: Path, spec: Spec) -> None:
    path = tmp_path / "a.json"
    write(spec, path)
    before = path.stat()
    assert write(spec, path) is False
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert write(_with_env(spec, "2"), path) is True
    assert path.stat().st_ino != before.st_ino


def test_a_damaged_file_is_written_again(tmp_path: Path, spec: Spec) -> None:
    path = tmp_path / "a.json"
    write(spec, path)
    path.write_bytes(path.read_bytes()[:20])
    assert write(spec, path) is True
    assert read(path) == spec


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_bc010_modes_do_not_depend_on_the_umask(tmp_path: Path, spec: Spec, umask: int) -> None:
    """A file that everybody may read is of no use in a directory that only root may enter."""
    old = os.umask(umask)
    try:
        write(spec, tmp_path / "cdi/a.json")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "cdi/a.json").stat().st_mode) == 0o644
    assert stat.S_IMODE((tmp_path / "cdi").stat().st_mode) == 0o755


def test_a_directory_that_is_there_keeps_its_mode(tmp_path: Path, spec: Spec) -> None:
    (tmp_path / "cdi").mkdir(mode=0o700)
    write(spec, tmp_path / "cdi/a.json")
    assert stat.S_IMODE((tmp_path / "cdi").stat().st_mode) == 0o700


def test_an_invalid_spec_is_refused_and_the_old_file_stays(tmp_path: Path, spec: Spec) -> None:
    path = tmp_path / "a.json"
    write(spec, path)
    with pytest.raises(InvalidSpecError, match=r"a\.json is not valid: devices: there must be"):
        write(spec.model_copy(update={"devices": ()}), path)
    assert read(path) == spec
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_a_part(tmp_path: Path, spec: Spec) -> None:
    path = tmp_path / "a.json"
    specs = [_with_env(spec, letter * 50_000) for letter in "ab"]
    allowed = {one.to_json() for one in specs}
    write(specs[0], path)
    seen: set[bytes] = set()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=look)
    reader.start()
    for count in range(400):
        write(specs[count % 2], path)
    stop.set()
    reader.join()
    assert seen
    assert seen <= allowed


def test_writers_of_one_file_at_once_leave_one_of_their_specs(tmp_path: Path, spec: Spec) -> None:
    path = tmp_path / "a.json"
    specs = [_with_env(spec, str(number)) for number in range(8)]
    start = threading.Barrier(len(specs))

    def run(one: Spec) -> None:
        start.wait()
        for _ in range(20):
            write(one, path)

    threads = [threading.Thread(target=run, args=(one,)) for one in specs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read(path) in specs
    assert list(tmp_path.iterdir()) == [path]


_KILLED = """
import os, pathlib, sys
from cdi.models import *
from cdi.write import write
device = Device(name="a", container_edits=ContainerEdits(env=("X=new",)))
real = pathlib.Path.replace
pathlib.Path.replace = lambda *_: os.kill(os.getpid(), 9)
write(Spec(cdi_version="0.5.0", kind="vendor.com/claim", devices=(device,)), pathlib.Path(sys.argv[1]))
"""


def test_killed_before_the_rename_leaves_the_old_file_and_a_leftover_nobody_reads(tmp_path: Path, spec: Spec) -> None:
    path = tmp_path / "vendor.com-claim_1.json"
    write(spec, path)
    done = subprocess.run([sys.executable, "-c", _KILLED, path], check=False)
    assert done.returncode == -9
    assert read(path) == spec
    (leftover,) = set(tmp_path.iterdir()) - {path}
    assert leftover.name.startswith(".vendor.com-claim_1.json.")
    registry = load([tmp_path])
    assert [file.path for file in registry.files] == [path]
    assert remove_leftovers(tmp_path, prefix="other") == 0
    assert remove_leftovers(tmp_path, prefix="vendor.com-claim_") == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_where_the_directory_should_be(tmp_path: Path, spec: Spec) -> None:
    (tmp_path / "cdi").write_text("")
    with pytest.raises(WriteError, match=r"can't write CDI spec .*/cdi/sub/a\.json") as caught:
        write(spec, tmp_path / "cdi" / "sub" / "a.json")
    assert caught.value.errno == errno.ENOTDIR
    assert caught.value.path == tmp_path / "cdi" / "sub" / "a.json"
    assert "remove or rename it" in str(caught.value)


def test_a_directory_where_the_file_should_be(tmp_path: Path, spec: Spec) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(WriteError) as caught:
        write(spec, tmp_path / "a.json")
    assert caught.value.errno == errno.EISDIR
    assert caught.value.reason == "Is a directory"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.json"]
    with pytest.raises(CdiError, match="can't remove CDI spec"):
        remove(tmp_path / "a.json")


def test_a_name_that_is_too_long(tmp_path: Path, spec: Spec) -> None:
    with pytest.raises(WriteError, match="use a shorter vendor, class or id") as caught:
        write(spec, tmp_path / ("a" * 250 + ".json"))
    assert caught.value.errno == errno.ENAMETOOLONG


_NO_ROOM = """
import pathlib, resource, signal, sys
from cdi.errors import WriteError
from cdi.read import read
from cdi.write import write
path = pathlib.Path(sys.argv[1])
spec = read(path)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
try:
    write(spec.model_copy(update={"kind": "other.com/claim"}), path)
except WriteError as error:
    sys.exit(f"errno {error.errno}")
"""


@pytest.mark.parametrize("durable", ["False", "True"])
def test_a_write_that_fails_half_way_leaves_the_old_file_only(tmp_path: Path, spec: Spec, durable: str) -> None:
    path = tmp_path / "a.json"
    write(spec, path)
    program = _NO_ROOM.replace("}), path)", f"}}), path, durable={durable})")
    done = subprocess.run([sys.executable, "-c", program, path], check=False, capture_output=True, text=True)
    assert done.stderr.strip() == f"errno {errno.EFBIG}"
    assert read(path) == spec
    assert list(tmp_path.iterdir()) == [path]


def test_remedies_are_said_for_a_full_and_a_read_only_file_system() -> None:
    full = WriteError("write", Path("/x/a.json"), OSError(errno.ENOSPC, "ignored"))
    assert str(full).startswith("can't write CDI spec /x/a.json: No space left on device; no bytes or no inodes")
    read_only = WriteError("remove", Path("/x/a.json"), OSError(errno.EROFS, "ignored"))
    assert "mounted read-only: mount it writable" in str(read_only)
    assert WriteError("write", Path("/x"), OSError("odd")).reason == "odd"
