"""Keeper of a test node's namespaces: makes them, outlives the harness, cleans up.

Starts ``inside.py`` in new namespaces and waits until it ends, for whatever reason:
the harness closed the pipe, was killed, or asked this process to stop (SIGTERM).
Then it removes the two things the kernel does not: the node's cgroups and the scratch
folder. There is no other clean-up, so it is the same after success, failure,
Ctrl-C and ``kill -9``. Usage: ``guard.py SCRATCH CGROUP [--detached]``.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

CLEAN_UP_SECONDS = 30


def hierarchies(*kinds: str) -> list[Path]:
    """Mount points of cgroup hierarchies of these file system types."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(entry[1]) for entry in mounts if entry[2] in kinds]


def make_cgroups(name: str) -> None:
    """The node's own group, usable by a kubelet as its root: in v1 where there is v1, else in v2."""
    for root in hierarchies("cgroup") or hierarchies("cgroup2"):
        group = root / name
        if (root / "cgroup.subtree_control").exists():
            controllers = (root / "cgroup.controllers").read_text().split()
            (root / "cgroup.subtree_control").write_text(" ".join(f"+{item}" for item in controllers))
        group.mkdir()
        if (root / "cpuset.effective_cpus").exists():  # a new v1 cpuset is empty and takes no process
            for setting in ("cpuset.cpus", "cpuset.mems"):
                (group / setting).write_text((root / setting).read_text())


def remove_cgroups(name: str) -> bool:
    """Remove the groups, innermost first; False while one is still busy.

    In every hierarchy: where v1 and v2 are both mounted, runc makes groups in both.
    """
    groups = [root / name for root in hierarchies("cgroup", "cgroup2") if (root / name).exists()]
    try:
        for group in groups:
            for folder, _, _ in os.walk(group, topdown=False):
                Path(folder).rmdir()
    except OSError:
        return False
    return True


def remove_tree(scratch: Path) -> bool:
    """Remove the scratch folder; False while something holds it."""
    shutil.rmtree(scratch, ignore_errors=True)
    return not scratch.exists()


def insist(attempt: Callable[[], bool], what: str) -> None:
    """Repeat ``attempt`` until it succeeds: the kernel takes namespaces apart a little later."""
    deadline = time.monotonic() + CLEAN_UP_SECONDS
    while not attempt():
        if time.monotonic() > deadline:
            print(f"test node: could not remove {what}", file=sys.stderr)
            return
        time.sleep(0.05)  # between looks: the kernel tells nobody when it is done


def main(scratch: Path, cgroup: str, options: list[str]) -> None:
    """Namespaces up, wait, clean up."""
    inside = [sys.executable, str(Path(__file__).parent / "inside.py"), str(scratch), *options]
    # fmt: off
    unshare = [
        "unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
        "--propagation", "private", *inside,
    ]
    # fmt: on
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    make_cgroups(cgroup)
    child = subprocess.Popen(unshare)

    def stop(_number: int, _frame: FrameType | None) -> None:
        child.kill()

    signal.signal(signal.SIGTERM, stop)
    child.wait()
    insist(lambda: remove_cgroups(cgroup), f"cgroup {cgroup}")
    insist(lambda: remove_tree(scratch), str(scratch))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
