"""The writer on file systems that refuse: full, without inodes, read-only. Real tmpfs mounts."""

import errno
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdi.errors import WriteError
from cdi.models import ContainerEdits, Device, Spec
from cdi.read import read
from cdi.write import remove, write

pytestmark = pytest.mark.runtime

Mounted = Callable[[str], Path]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Mounted]:
    """Mount a small tmpfs with these options, or change them on a second call."""
    place = tmp_path / "cdi"

    def mount(options: str) -> Path:
        place.mkdir(exist_ok=True)
        again = "remount," if place.is_mount() else ""
        subprocess.run(["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", place], check=True)
        return place

    yield mount
    if place.is_mount():
        subprocess.run(["umount", place], check=True)


def _spec(size: int) -> Spec:
    device = Device(name="a", container_edits=ContainerEdits(env=("X=" + "x" * size,)))
    return Spec(cdi_version="0.5.0", kind="vendor.com/claim", devices=(device,))


@pytest.mark.parametrize("durable", [False, True])
def test_no_bytes_left(mounted: Mounted, *, durable: bool) -> None:
    directory = mounted("size=64k")
    path = directory / "a.json"
    write(_spec(10), path, durable=durable)
    with pytest.raises(WriteError, match="No space left on device; no bytes or no inodes are left") as caught:
        write(_spec(100_000), path, durable=durable)
    assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, path)
    assert read(path) == _spec(10)
    assert list(directory.iterdir()) == [path]


def test_no_inodes_left(mounted: Mounted) -> None:
    directory = mounted("size=64k,nr_inodes=2")
    write(_spec(10), directory / "a.json")
    with pytest.raises(WriteError, match="no inodes are left") as caught:
        write(_spec(10), directory / "b.json")
    assert caught.value.errno == errno.ENOSPC
    assert [path.name for path in directory.iterdir()] == ["a.json"]
    assert remove(directory / "a.json")
    assert write(_spec(10), directory / "b.json")


def test_read_only(mounted: Mounted) -> None:
    directory = mounted("size=64k")
    path = directory / "a.json"
    write(_spec(10), path)
    mounted("ro")
    with pytest.raises(WriteError, match="mounted read-only: mount it writable") as caught:
        write(_spec(20), path)
    assert caught.value.errno == errno.EROFS
    with pytest.raises(WriteError, match=r"can't remove CDI spec .*Read-only file system"):
        remove(path)
    assert write(_spec(10), path) is False  # what is there already needs no write
    mounted("rw")
    assert write(_spec(20), path) is True
