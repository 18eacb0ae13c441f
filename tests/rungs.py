"""Run the tests, rung by rung: everything that this machine can, and a line about what it can't.

    python tests/rungs.py [--full] [RUNG…]      unit contract oracle runtime cluster install; else all

Without --full, tests marked `full` are left for `make test-full`: what takes minutes beside a shorter test of the
same, and the allocators and validations of other Kubernetes versions than the newest. Under CI=true nothing may be
left out: a missing tool is a failure there.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
PARALLEL = ("-n", "2")


def root() -> str:
    """Why containers can't be made here; empty when they can."""
    if os.geteuid() != 0:
        return "needs root"
    return "" if shutil.which("apt-get") or shutil.which("podman") else "needs Debian's packages"


def go() -> str:
    """Why programs of the real Kubernetes can't be built here; empty when they can."""
    return "" if shutil.which("go") else "needs a Go toolchain"


def root_and_go() -> str:
    """Why the real node can't be built here; empty when it can."""
    return root() or go()


def anywhere() -> str:
    """No condition."""
    return ""


RUNGS: dict[str, tuple[Callable[[], str], tuple[str, ...]]] = {
    "unit": (anywhere, PARALLEL),
    "contract": (anywhere, PARALLEL),
    "oracle": (go, PARALLEL),
    "runtime": (root, ()),
    "cluster": (root_and_go, ()),
    "install": (root_and_go, ()),
}
FULL = "--full"


def main(names: list[str]) -> int:
    """Exit status: 0 when all that ran passed and nothing was missing that CI demands."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it is ignored, and by what tests start
    full = FULL in names
    names = [name for name in names if name != FULL]
    wanted = names or list(RUNGS)
    if unknown := [name for name in wanted if name not in RUNGS]:
        print(f"no rung {', '.join(unknown)}; there are {', '.join(RUNGS)}", file=sys.stderr)
        return 2
    missing = {name: why for name in wanted if (why := RUNGS[name][0]())}
    if missing:
        print("left out: " + ", ".join(f"{name} ({why})" for name, why in missing.items()), flush=True)
    possible = [name for name in wanted if name not in missing]
    prepare(possible)
    failed = [name for name in possible if not run(name, full=full)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed or (missing and os.environ.get("CI")) else 0


def prepare(names: list[str]) -> None:
    """Install and build what the rungs with containers need; both are quick when it is there."""
    if {"runtime", "cluster", "install"} & set(names):
        node("packages")
    if {"cluster", "install"} & set(names):
        node("build")
    if "install" in names:
        node("image")


def node(action: str) -> None:
    """One step of setting up the real node."""
    started = time.monotonic()
    print(f"node {action} …", flush=True)
    subprocess.run([sys.executable, str(HERE / "cluster" / "node.py"), action], check=True)
    print(f"node {action}: {time.monotonic() - started:.0f} s", flush=True)


def run(name: str, *, full: bool) -> bool:
    """One rung in a pytest of its own, so that none sees another's processes."""
    print(f"\n{name}", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", *RUNGS[name][1], *marks(full=full), str(HERE / name)]
    return subprocess.run(command, check=False).returncode == 0


def marks(*, full: bool) -> tuple[str, ...]:
    """Single tests that need Go, or that take minutes, say so themselves."""
    without = [] if full else ["not full"]
    if not shutil.which("go"):
        print("left out: tests marked go (needs a Go toolchain)", flush=True)
        without.append("not go")
    return ("-m", " and ".join(without)) if without else ()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
