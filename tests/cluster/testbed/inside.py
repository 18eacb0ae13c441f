"""First process of a test node's namespaces: makes the node's own view of the machine.

Runs as process 1 of new mount, network and process namespaces (``guard.py`` makes
them). What a node would otherwise change on the machine it finds here as its own:
``/run``, ``/var/lib``, ``/var/log``, ``/dev``, the loopback device and those sysctls
that a kubelet sets. Prints ``ready`` and stays until its standard input ends (or for
ever with ``--detached``). When it goes, the kernel ends every process, mount, network
device and firewall rule of the node with it. Usage: ``inside.py SCRATCH [--detached]``.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "kmsg")
LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
# What a kubelet wants and would write on the host, where it would stay.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def mount(*arguments: str) -> None:
    """``mount`` with these arguments."""
    subprocess.run(["mount", *arguments], check=True)


def own_run_and_logs() -> None:
    """An empty ``/run``: runtime sockets, network namespaces, locks; and ``/var/log``: links to containers' logs."""
    for folder in ("/run", "/var/log"):
        mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    Path("/run/lock").mkdir()


def own_var_lib(scratch: Path) -> None:
    """``/var/lib`` with every write below the scratch folder.

    The device plugin folder is always /var/lib/kubelet/device-plugins. It is a plain
    bind mount, so that its sockets can be reached from outside by the scratch path.
    """
    layers = [scratch / "varlib" / name for name in ("upper", "work")]
    kubelet = scratch / "varlib" / "kubelet"
    for folder in (*layers, kubelet):
        folder.mkdir(parents=True)
    options = f"lowerdir=/var/lib,upperdir={layers[0]},workdir={layers[1]}"
    mount("-t", "overlay", "-o", options, "overlay", "/var/lib")
    Path("/var/lib/kubelet").mkdir(exist_ok=True)
    mount("--bind", str(kubelet), "/var/lib/kubelet")


def own_dev(scratch: Path) -> None:
    """A ``/dev`` in which a test can make device nodes of its own."""
    dev = scratch / "dev"
    dev.mkdir()
    mount("-t", "tmpfs", "-o", "mode=755,dev", "tmpfs", str(dev))
    for name in DEVICES:
        status = Path("/dev", name).stat()
        os.mknod(dev / name, status.st_mode, status.st_rdev)
        (dev / name).chmod(0o666)
    for name, target in LINKS.items():
        (dev / name).symlink_to(target)
    for name in ("pts", "shm"):
        (dev / name).mkdir()
        mount("--bind", f"/dev/{name}", str(dev / name))
    mount("--rbind", str(dev), "/dev")


def own_sysctls(scratch: Path) -> None:
    """Plain files over the sysctls that a kubelet sets and leaves set."""
    for name, value in SYSCTLS.items():
        stand_in = scratch / "sysctl" / name
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text(value + "\n")
        mount("--bind", str(stand_in), f"/proc/sys/{name}")


def main(scratch: Path, *, detached: bool) -> None:
    """Set the view up, say so, stay."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    own_run_and_logs()
    own_var_lib(scratch)
    own_dev(scratch)
    own_sysctls(scratch)
    mount("--make-rshared", "/")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the node end up here: the kernel reaps them
    print("ready", flush=True)
    if detached:
        signal.pause()
    sys.stdin.buffer.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]), detached="--detached" in sys.argv)
