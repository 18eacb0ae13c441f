"""What a node could leave behind on the machine, and the proof that it did not.

``snapshot`` before and after; ``added`` is what is there afterwards and was not
before. Sandboxes of other runs that come and go meanwhile are told apart by name.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from testbed.waiting import until

# Where kubelets, runtimes, network plugins and drivers keep things.
FOLDERS = (
    *("/etc/cdi", "/etc/cni", "/opt/cni", "/run/cdi", "/run/containerd", "/run/netns"),
    *("/var/lib/cni", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/containers", "/var/log/pods"),
)
SYSCTLS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
    *("net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "net/bridge/bridge-nf-call-iptables"),
)
COUNTERS = re.compile(r" ?\[\d+:\d+\]")
SANDBOX = re.compile(r"cs-[0-9a-f]{6}")

Snapshot = Mapping[str, frozenset[str]]


def snapshot() -> Snapshot:
    """The machine's state by category."""
    sources: dict[str, Callable[[], list[str]]] = {
        "mounts": mounts,
        "links": links,
        "cgroups": cgroups,
        "firewall rules": rules,
        "sysctls": sysctls,
        "processes": processes,
        "files": files,
    }
    return {category: frozenset(source()) for category, source in sources.items()}


def added(before: Snapshot, after: Snapshot, own: str) -> dict[str, list[str]]:
    """What is new, by category. ``own``: name of the sandbox; what belongs to others is left out."""
    fresh = {
        category: sorted(item for item in after[category] - before[category] if not foreign(item, own))
        for category in after
    }
    return {category: items for category, items in fresh.items() if items}


def foreign(item: str, own: str) -> bool:
    """Whether an entry belongs to another sandbox, or to tests that need none and mount what they like."""
    named = set(SANDBOX.findall(item))
    return own not in named and (bool(named) or "/pytest-of-" in item)


def assert_nothing_left(before: Snapshot, own: str) -> None:
    """Wait until nothing of the sandbox is left (what ended a moment ago may still be going)."""
    until(
        lambda: not added(before, snapshot(), own),
        what=f"nothing left of {own}",
        timeout=20,
        seen=lambda: added(before, snapshot(), own),
    )


def mounts() -> list[str]:
    """Mount points with their types."""
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [f"{entry[1]} ({entry[2]})" for entry in lines]


def links() -> list[str]:
    """Network devices."""
    done = subprocess.run(["ip", "-j", "link"], check=True, capture_output=True, text=True)
    return [entry["ifname"] for entry in json.loads(done.stdout)]


def cgroups() -> list[str]:
    """Every cgroup of every hierarchy."""
    return [str(path) for path in Path("/sys/fs/cgroup").rglob("*/") if path.is_dir()]


def rules() -> list[str]:
    """Chains and rules of both firewalls, without packet counters and comments."""
    found = []
    for command in ("iptables-save", "ip6tables-save"):
        if shutil.which(command):
            text = subprocess.run([command], check=True, capture_output=True, text=True).stdout
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            found += [f"{command}: " + COUNTERS.sub("", line) for line in lines]
    return found


def sysctls() -> list[str]:
    """The sysctls that node programs set."""
    paths = [Path("/proc/sys") / name for name in SYSCTLS]
    return [f"{path}={path.read_text().strip()}" for path in paths if path.exists()]


def processes() -> list[str]:
    """Command lines that name a sandbox."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if SANDBOX.search(command):
            found.append(f"{path.parent.name} {command}")
    return found


def files() -> list[str]:
    """Files in the usual folders, scratch folders, Neuron devices."""
    found = [str(path) for folder in FOLDERS for path in (Path(folder), *Path(folder).rglob("*")) if path.exists()]
    scratch = [path for path in Path("/tmp").glob("cs-*") if SANDBOX.fullmatch(path.name)]
    return found + [str(path) for path in (*scratch, *Path("/dev").glob("neuron*"))]
