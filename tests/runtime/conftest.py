"""A real container engine as the consumer of CDI specs: podman with runc, busybox as its whole image.

Podman 4.3 reads /etc/cdi and /var/run/cdi, always; so files there have names and vendors of this
process only, and go at the end of each test. All else of podman lies in a scratch folder, its cgroups
below a parent of our own. At the end of the session nothing may be left of either. The two folders are the
machine's: run this rung in one process.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cdi.models import Spec
from cdi.registry import DEFAULT_DIRECTORIES

_TAG = f"coreslice-test-{os.getpid()}"
_CGROUPS = Path("/sys/fs/cgroup")
_CONFIG = """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
lock_type = "file"
runtime = "runc"
"""
# What a container says of itself: its environment, then a line for each device node.
_LOOK = """
env
for node in $(find /dev -type c -o -type b); do stat -c 'node|%n|%F|%t|%T|%a|%u|%g' $node; done
"""


@dataclass(frozen=True)
class Node:
    """A device node as stat shows it."""

    type: str
    major: int
    minor: int
    mode: int
    uid: int
    gid: int


@dataclass(frozen=True)
class Seen:
    """What a container saw, or why it didn't start."""

    status: int
    error: str
    output: str = ""
    env: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)


class Podman:
    """Runs one short-lived container per call."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._root = work / "fs"
        (work / "containers.conf").write_text(_CONFIG)
        for name in ("bin", "dev", "proc", "sys", "tmp", "etc", "run"):
            (self._root / name).mkdir(parents=True)
        busybox = shutil.which("busybox")
        assert busybox, "busybox-static is needed"
        shutil.copy(busybox, self._root / "bin" / "busybox")
        for name in ("sh", "env", "stat", "find", "mknod", "cat", "id", "ls"):
            (self._root / "bin" / name).symlink_to("busybox")

    def run(self, script: str, devices: Sequence[str] = (), options: Sequence[str] = ()) -> Seen:
        """Run a shell script in a container with these CDI devices."""
        asked = [part for name in devices for part in ("--device", name)]
        done = subprocess.run(
            [*self._command(), *options, *asked, "--rootfs", self._root, "/bin/sh", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "CONTAINERS_CONF": str(self._work / "containers.conf")},
        )
        return Seen(done.returncode, done.stderr, done.stdout)

    def look(self, devices: Sequence[str] = (), options: Sequence[str] = ()) -> Seen:
        """Environment and device nodes of a container with these CDI devices."""
        seen = self.run(_LOOK, devices, options)
        env: dict[str, str] = {}
        nodes: dict[str, Node] = {}
        for line in seen.output.splitlines():
            if line.startswith("node|"):
                _, path, kind, major, minor, mode, uid, gid = line.split("|")
                numbers = int(major, 16), int(minor, 16), int(mode, 8), int(uid), int(gid)
                nodes[path] = Node(kind[0], *numbers)
            else:
                name, _, value = line.partition("=")
                env[name] = value
        return Seen(seen.status, seen.error, seen.output, env, nodes)

    def _command(self) -> list[str | Path]:
        # The overlay driver would leave a mount of its folder on itself.
        folders = ("--root", self._work / "root", "--runroot", self._work / "run", "--storage-driver", "vfs")
        # Without CAP_SYS_RESOURCE podman dies of its own default limits.
        limits = ("--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096")
        parent = ("--cgroup-parent", f"/{_TAG}", "--network", "none", "--hostname", "box")
        return ["podman", *folders, "--tmpdir", self._work / "tmp", "run", "--rm", *parent, *limits]


def _traces() -> set[str]:
    """What podman and these tests could leave behind on the machine."""
    places = ("/dev/shm", "/run", "/var/lib", "/etc")
    found = {str(path) for place in places for path in Path(place).iterdir() if _ours(path.name)}
    for directory in DEFAULT_DIRECTORIES:
        found |= {str(path) for path in directory.glob(f"{_TAG}*")}
    found |= {str(path) for path in _CGROUPS.glob("*/libpod_parent")}
    found |= {str(path) for path in (*_CGROUPS.glob(f"*/{_TAG}"), *_CGROUPS.glob(_TAG))}
    return found | {line for line in Path("/proc/self/mounts").read_text().splitlines() if _TAG in line}


def _ours(name: str) -> bool:
    return name.startswith(("libpod", "containers", "runc", "crun", "cni"))


def _remove_cgroups() -> None:
    for top in (*_CGROUPS.glob(f"*/{_TAG}"), *_CGROUPS.glob(_TAG)):
        for path in sorted(top.rglob("*/"), reverse=True):
            path.rmdir()
        top.rmdir()


@pytest.fixture(scope="session")
def podman() -> Iterator[Podman]:
    """The engine; at the end its traces are removed, and it is an error if one is left."""
    missing = [name for name in ("podman", "conmon", "runc", "busybox") if shutil.which(name) is None]
    assert not missing, f"the runtime rung needs {', '.join(missing)} (Debian packages of these names)"
    assert os.geteuid() == 0, "the runtime rung needs root"
    before = _traces()
    work = Path(tempfile.mkdtemp(prefix=_TAG))  # podman takes no run root above 50 characters
    yield Podman(work)
    _remove_cgroups()
    if "/run/runc" not in before and Path("/run/runc").is_dir():
        Path("/run/runc").rmdir()  # empty, or somebody else's containers are in it
    shutil.rmtree(work)
    assert _traces() - before == set()


@pytest.fixture(scope="session")
def bare(podman: Podman) -> Seen:
    """What a container without CDI devices sees."""
    seen = podman.look()
    assert seen.status == 0, seen.error
    return seen


class SpecFiles:
    """Puts specs where runtimes read them and takes them away again."""

    def __init__(self, number: int) -> None:
        self.vendor = f"{_TAG}-{number}.example.com"
        self._files: list[Path] = []
        self._made: list[Path] = []

    def put(self, content: Spec | str | bytes, *, etc: bool = False, suffix: str = ".json") -> Path:
        """Write a spec, or any content, to /var/run/cdi (or /etc/cdi) under a name of our own."""
        directory = DEFAULT_DIRECTORIES[0 if etc else 1]
        if not directory.exists():
            directory.mkdir(parents=True)
            self._made.append(directory)
        path = directory / f"{self.vendor}-{len(self._files)}{suffix}"
        data = content.to_json() if isinstance(content, Spec) else content
        self._files.append(path)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def clean(self) -> None:
        """Remove the files, and the directories that were made for them if nobody else uses them."""
        for path in self._files:
            path.unlink(missing_ok=True)
        for directory in self._made:
            if not any(directory.iterdir()):
                directory.rmdir()


_numbers = iter(range(10**6))


@pytest.fixture
def specs() -> Iterator[SpecFiles]:
    """A place for specs with a vendor of this test's own."""
    files = SpecFiles(next(_numbers))
    yield files
    files.clean()


@pytest.fixture(scope="session")
def free_major() -> Callable[[str], int]:
    """A major number of type c or b that no driver has: opening such a node gives ENXIO."""
    characters, blocks = Path("/proc/devices").read_text().split("Block devices:")

    def find(kind: str) -> int:
        listed = blocks if kind == "b" else characters
        taken = {int(line.split()[0]) for line in listed.splitlines() if line.strip()[:1].isdigit()}
        return max(set(range(234, 255)) - taken)

    return find
