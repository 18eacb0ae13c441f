"""Folders that refuse and records that can't be read: what isn't written down isn't granted, and nothing gets stuck."""

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.simulator.kubelet import PrepareError, UnprepareError
from tests.contract.driver.conftest import DRIVER, Rig, eventually

mounts = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
CLAIMS_FOLDER = f"{DRIVER}/claims"


class Small:
    """A file system of 16 pages over a folder."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self.mount("size=64k")

    def mount(self, options: str) -> None:
        """Mount it, or change its options."""
        again = "remount," if self.place.is_mount() else ""
        subprocess.run(["mount", "-t", "tmpfs", "-o", again + options, "tmpfs", self.place], check=True)

    def fill(self) -> None:
        """Leave no byte."""
        with self._filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 -- the loop is the statement

    def drain(self) -> None:
        """Give it all back."""
        self._filler.unlink()

    @property
    def _filler(self) -> Path:
        return self.place / "filler"


@pytest.fixture
def small_cdi(rig: Rig) -> Iterator[Small]:
    """The CDI directory of the rig on a small file system."""
    small = Small(rig.paths.cdi)
    yield small
    subprocess.run(["umount", "--lazy", small.place], check=True)


@pytest.fixture
def small_state(rig: Rig) -> Iterator[Small]:
    """Its records on one."""
    small = Small(rig.paths.plugins / CLAIMS_FOLDER)
    yield small
    subprocess.run(["umount", "--lazy", small.place], check=True)


@mounts
def test_full_cdi_directory(rig: Rig, small_cdi: Small) -> None:
    """The record stays, as the claim stays allocated; the same call works once there is room."""
    rig.start("--prepare-wait=0")
    small_cdi.fill()
    ref = rig.core("a")
    with pytest.raises(PrepareError) as caught:
        rig.prepare(ref)
    text = str(caught.value)
    assert [
        part for part in ("StorageFailed", str(small_cdi.place), "No space left", ref.uid) if part not in text
    ] == []
    assert "no inodes are left" in text, "what to do stands there"
    assert any("No space left" in message for message in rig.wait_events("StorageFailed", ref.uid))
    assert [path.name for path in rig.specs()] == ["filler"], "no half of a file"
    small_cdi.drain()
    rig.prepare(ref)
    assert [path.suffix for path in rig.specs()] == [".json"]
    rig.unprepare(ref)
    assert (rig.records(), rig.specs()) == ([], [])


@mounts
def test_full_cdi_directory_inside_the_wait(rig: Rig, small_cdi: Small) -> None:
    """Room that comes while the call waits is found: an error would cost the pod more than a minute."""
    rig.start()
    small_cdi.fill()
    ref = rig.core("a")
    call = rig.in_background(lambda: rig.prepare(ref))
    eventually(rig.records, "the record", seen=rig.process.tail)
    small_cdi.drain()
    assert [device.device for device in call.result()] == ["core-0-0"]


@mounts
def test_refused_for_a_full_directory_and_given_up(rig: Rig, small_cdi: Small) -> None:
    rig.start("--prepare-wait=0")
    small_cdi.fill()
    ref = rig.core("a")
    with pytest.raises(PrepareError, match="StorageFailed"):
        rig.prepare(ref)
    rig.unprepare(ref)
    assert rig.records() == []
    small_cdi.drain()
    rig.prepare(rig.core("b"))


@mounts
def test_read_only_cdi_directory(rig: Rig, small_cdi: Small) -> None:
    """BC-036: what was never written needs no removing; what was is held until it can be removed."""
    rig.start("--prepare-wait=0")
    rig.prepare(held := rig.core("held"))
    small_cdi.mount("ro")
    ref = rig.core("a", "core-0-1")
    with pytest.raises(PrepareError, match=r"StorageFailed: .*Read-only file system"):
        rig.prepare(ref)
    rig.unprepare(ref)
    with pytest.raises(UnprepareError, match=r"StorageFailed: .*Read-only file system"):
        rig.unprepare(held)
    assert len(rig.records()) == len(rig.specs()) == 1
    small_cdi.mount("rw")
    rig.unprepare(held)
    assert (rig.records(), rig.specs()) == ([], [])


@mounts
def test_full_state_directory(rig: Rig, small_state: Small) -> None:
    """Nothing is told to the runtime that isn't written down first."""
    rig.start("--prepare-wait=0")
    small_state.fill()
    ref = rig.core("a")
    with pytest.raises(PrepareError) as caught:
        rig.prepare(ref)
    text = str(caught.value)
    told = ("StorageFailed", str(small_state.place), "No space left", "free space there", "ResourceClaim a")
    assert [part for part in told if part not in text] == [], text
    assert rig.specs() == []
    assert [path.name for path in rig.records()] == ["filler"]
    rig.unprepare(ref)
    small_state.drain()
    rig.prepare(rig.core("b"))


@mounts
def test_start_on_a_read_only_state_directory(rig: Rig, small_state: Small) -> None:
    small_state.mount("ro")
    daemon = rig.launch()
    eventually(lambda: daemon._process and daemon._process.poll() is not None, "the end", seen=daemon.tail)
    assert daemon.stop() == 1
    last = daemon.tail().splitlines()[-1]
    assert f"can't use the state directory {small_state.place}: Read-only file system" in last
    assert "must be writable" in last
    assert rig.sockets() == set()


def cut_off(rig: Rig) -> None:
    """The one record, as a power cut may leave it."""
    (path,) = rig.records()
    path.write_bytes(path.read_bytes()[:-100])


def test_record_that_is_cut_off_blocks_its_devices_until_its_unprepare(rig: Rig) -> None:
    """Which they are stands in the CDI file of the same claim; all others are free to be given."""
    rig.start("--prepare-wait=0")
    rig.prepare(broken := rig.core("broken"))
    cut_off(rig)
    same, other = rig.core("same"), rig.core("other", "core-0-1")

    with pytest.raises(PrepareError) as caught:
        rig.prepare(same)
    text = str(caught.value)
    assert [part for part in ("RecordUnreadable", broken.uid, "core-0-0", ".record") if part not in text] == [], text
    assert "delete that claim's pod" in text, "what to do"
    rig.prepare(other)
    assert any(broken.uid in message for message in rig.wait_events("RecordUnreadable", same.uid))

    rig.unprepare(broken)
    assert len(rig.records()) == len(rig.specs()) == 1
    rig.prepare(same)


def test_record_that_is_cut_off_over_a_restart(rig: Rig) -> None:
    """Its CDI file is kept, since a container may run by it."""
    rig.start("--prepare-wait=0")
    rig.prepare(broken := rig.core("broken"))
    specs = [path.read_bytes() for path in rig.specs()]
    cut_off(rig)
    rig.process.stop()
    rig.start("--prepare-wait=0")
    (line,) = rig.said("record .* can't be read")
    assert (line["level"], line["claim_uid"]) == ("ERROR", broken.uid)
    assert "cut off" in line["message"]
    assert any(broken.uid in message for message in rig.wait_events("RecordUnreadable"))
    assert [path.read_bytes() for path in rig.specs()] == specs
    with pytest.raises(PrepareError, match="RecordUnreadable"):
        rig.prepare(rig.core("same"))
    rig.unprepare(broken)
    rig.prepare(rig.core("again"))


def test_record_and_cdi_file_both_lost_block_the_node_until_the_unprepare(rig: Rig) -> None:
    """Within one boot: what it held can't be told, and may be in use."""
    rig.start("--prepare-wait=0")
    rig.prepare(broken := rig.core("broken"))
    cut_off(rig)
    rig.specs()[0].unlink()
    for device in ("core-0-0", "core-0-1"):
        with pytest.raises(PrepareError, match=f"RecordUnreadable: .*{broken.uid}"):
            rig.prepare(rig.core(f"wants-{device}", device))
    rig.unprepare(broken)
    rig.tidy()
    assert (rig.records(), rig.specs()) == ([], [])
    rig.prepare(rig.core("good"))


def test_cdi_file_that_somebody_removed_is_written_again(rig: Rig) -> None:
    """By the kubelet's next call, or at the next start."""
    rig.start()
    rig.prepare(ref := rig.core("a"))
    (path,) = rig.specs()
    content = path.read_bytes()
    path.unlink()
    rig.kubelet.restart()
    rig.kubelet.wait_registered(DRIVER)
    rig.prepare(ref)
    assert path.read_bytes() == content
    path.unlink()
    rig.process.stop()
    rig.start()
    assert path.read_bytes() == content
