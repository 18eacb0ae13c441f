"""Namespaces of one test node, as the harness sees them.

A sandbox is a scratch folder, namespaces kept by ``guard.py``, a cgroup, and a pair
of network devices: the machine's end is named like the scratch folder, the node's
end is ``eth0``. Programs run inside by ``spawn`` or ``run``. ``close`` takes all of
it away; if the harness dies without it, the guard does the same.
"""

import ipaddress
import json
import os
import random
import secrets
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from testbed.waiting import until

HERE = Path(__file__).parent
# Reserved for tests of network devices (RFC 2544): nobody's own addresses.
NETWORKS = ipaddress.ip_network("198.18.0.0/15")
STOP_SECONDS = 40.0


@dataclass(frozen=True)
class Sandbox:
    """A running sandbox.

    ``init`` is the machine's number of the process 1 inside; ``process`` is the guard
    where this process started it.
    """

    name: str
    scratch: Path
    address: str  # the node's
    gateway: str  # the machine's end of the same cable: where a server of a test can listen for the node
    guard: int
    init: int
    process: subprocess.Popen[bytes] | None = field(default=None, compare=False)

    @property
    def root(self) -> Path:
        """The node's root folder as the machine can reach it, with the node's own mounts."""
        return Path(f"/proc/{self.init}/root")

    @property
    def logs(self) -> Path:
        """Folder with one log for each program."""
        return self.scratch / "logs"

    def enter(self, *argv: str) -> list[str]:
        """The command line that runs ``argv`` inside."""
        return ["nsenter", f"--target={self.init}", "--mount", "--net", "--pid", "--", *argv]

    def run(self, *argv: str) -> str:
        """Run a program inside to its end; its output. CalledProcessError if it fails."""
        return subprocess.run(self.enter(*argv), check=True, capture_output=True, text=True).stdout

    def close(self) -> None:
        """End everything inside and wait until nothing is left."""
        if guard_alive(self.guard, self.scratch):
            os.kill(self.guard, signal.SIGTERM)
        until(lambda: not guard_alive(self.guard, self.scratch), what="end of the node", timeout=STOP_SECONDS)
        if self.process:
            self.process.communicate(timeout=STOP_SECONDS)

    def dump(self) -> str:
        """What another process needs to get hold of this sandbox again (JSON)."""
        fields = ("name", "address", "gateway", "guard", "init")
        known = {field: getattr(self, field) for field in fields}
        return json.dumps(known | {"scratch": str(self.scratch)})


def load(text: str) -> Sandbox:
    """A sandbox from what ``dump`` gave."""
    known = json.loads(text)
    return Sandbox(**known | {"scratch": Path(known["scratch"])})


def guard_alive(pid: int, scratch: Path) -> bool:
    """Whether process ``pid`` is still the guard of this scratch folder."""
    try:
        return str(scratch).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False


def open_sandbox(*, detached: bool = False) -> Sandbox:
    """Make a sandbox. ``detached``: it stays when this process ends. Needs root."""
    if os.geteuid() != 0:
        raise PermissionError("a test node needs root: namespaces, mounts, cgroups, device nodes")
    name = f"cs-{secrets.token_hex(3)}"
    scratch = Path("/tmp") / name  # short: unix socket paths below it end at 107 bytes
    scratch.mkdir(mode=0o755)
    (scratch / "logs").mkdir()
    guard = start_guard(name, scratch, detached=detached)
    try:
        until(lambda: b"ready" in guard_log(scratch), what="namespaces of the node", timeout=20)
        init = only_child(only_child(guard.pid))
        sandbox = Sandbox(name, scratch, *connect(name, init), guard.pid, init, guard)
    except BaseException as error:
        error.add_note(guard_log(scratch).decode(errors="replace"))
        guard.terminate()
        guard.communicate()
        raise
    return sandbox


def start_guard(name: str, scratch: Path, *, detached: bool) -> subprocess.Popen[bytes]:
    """The guard process; in a session of its own, so that Ctrl-C does not reach it."""
    options = ["--detached"] if detached else []
    with (scratch / "logs" / "guard.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, str(HERE / "guard.py"), str(scratch), name, *options],
            stdin=subprocess.DEVNULL if detached else subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd="/",
        )


def guard_log(scratch: Path) -> bytes:
    """What guard and inside have said so far."""
    path = scratch / "logs" / "guard.log"
    return path.read_bytes() if path.exists() else b""


def only_child(pid: int) -> int:
    """The one child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def connect(name: str, init: int) -> tuple[str, str]:
    """Join machine and node by a pair of devices; the node's address and the machine's."""
    here, there = free_pair()
    ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(init))
    ip("addr", "add", f"{here}/30", "dev", name)
    ip("link", "set", name, "up")
    inside = ["nsenter", f"--target={init}", "--net", "--", "ip"]
    for command in (
        f"addr add {there}/30 dev eth0",
        "link set eth0 up",
        f"route add default via {here}",
    ):
        subprocess.run([*inside, *command.split()], check=True)
    return there, here


def free_pair() -> tuple[str, str]:
    """Two neighbouring addresses that this machine has no address or route for."""
    taken = [ipaddress.ip_network(entry["dst"]) for entry in known_routes()]
    while True:
        start = int(NETWORKS.network_address) + 4 * random.randrange(NETWORKS.num_addresses // 4)
        network = ipaddress.ip_network((start, 30))
        if not any(network.overlaps(other) for other in taken):
            first, second = network.hosts()
            return str(first), str(second)


def known_routes() -> list[Mapping[str, str]]:
    """The machine's IPv4 routes but the default one."""
    done = subprocess.run(["ip", "-j", "-4", "route"], check=True, capture_output=True, text=True)
    return [entry for entry in json.loads(done.stdout) if entry["dst"] != "default"]


def ip(*arguments: str) -> None:
    """``ip`` with these arguments."""
    subprocess.run(["ip", *arguments], check=True)


def environment(*folders: Path) -> dict[str, str]:
    """An environment for programs inside: ``folders`` come first on PATH; no proxy settings."""
    path = os.pathsep.join([*map(str, folders), "/usr/sbin:/usr/bin:/sbin:/bin"])
    return {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8"}
