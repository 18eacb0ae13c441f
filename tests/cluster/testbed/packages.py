"""What a machine needs beside the Go builds: Debian packages, root, a Go toolchain.

Each package has a file that proves it is there, so a machine that has them (from
whatever source) is left alone and nothing is asked of apt.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A Debian package and the file patterns of which one proves it is installed."""

    name: str
    proofs: tuple[str, ...]

    def present(self) -> bool:
        """Whether one of the proofs exists."""
        return any(next(Path("/").glob(pattern.lstrip("/")), None) for pattern in self.proofs)


NEEDED = (
    Package("containernetworking-plugins", ("/usr/lib/cni/bridge", "/opt/cni/bin/bridge")),
    Package("libseccomp-dev", ("/usr/include/seccomp.h",)),
    Package("pkg-config", ("/usr/bin/pkg-config",)),
    Package("gcc", ("/usr/bin/gcc",)),
    Package("libc6-dev", ("/usr/lib/*/libc.a",)),
    Package("iptables", ("/usr/sbin/iptables", "/sbin/iptables")),
    Package("iproute2", ("/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip")),
    Package("conntrack", ("/usr/sbin/conntrack",)),
    Package("openssl", ("/usr/bin/openssl",)),
    Package("busybox-static", ("/usr/share/doc/busybox-static",)),
    Package("buildah", ("/usr/bin/buildah",)),
    Package("mmdebstrap", ("/usr/bin/mmdebstrap",)),
    Package("podman", ("/usr/bin/podman",)),
    Package("runc", ("/usr/sbin/runc", "/usr/bin/runc")),
)


def obstacle() -> str | None:
    """Why no real node can run on this machine whatever is installed; None if one can."""
    if sys.platform != "linux":
        return "it needs Linux"
    if os.geteuid() != 0:
        return "it needs root, for namespaces, mounts, cgroups and device nodes"
    if not shutil.which("go"):
        return "it needs a Go toolchain on PATH, to build the Kubernetes programs"
    if missing() and not shutil.which("apt-get"):
        return f"it needs what Debian has in these packages: {' '.join(missing())}"
    return None


def missing() -> list[str]:
    """Names of the packages that are not there."""
    return [package.name for package in NEEDED if not package.present()]


def install() -> list[str]:
    """Install what is missing and return the names. Needs root and apt, else SystemExit says so."""
    names = missing()
    if not names:
        return []
    if os.geteuid() != 0:
        raise SystemExit(f"the cluster tests need these Debian packages (install them as root): {' '.join(names)}")
    apt = ["apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300"]
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run([*apt, "update"], check=True, env=quiet)
    subprocess.run([*apt, "install", "--no-install-recommends", *names], check=True, env=quiet)
    still = missing()
    if still:
        raise SystemExit(f"apt installed these packages, but their files are not where expected: {still}")
    return names
