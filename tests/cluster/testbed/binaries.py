"""The node's programs, built by ``go build`` and cached outside the tree.

A build is keyed by everything that goes into it: go.mod, go.sum, sources of our own, flags,
Go version and architecture. A program is built under a temporary name and renamed, under a lock
that parallel runs share, so a cache never holds half a program and never builds one
twice. The cache is ``$CORESLICE_TESTBED_CACHE`` or
``${XDG_CACHE_HOME:-~/.cache}/coreslice-testbed``.
"""

import fcntl
import hashlib
import logging
import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

log = logging.getLogger(__name__)

GO_MODULES = Path(__file__).parents[2] / "go"


def cache_root() -> Path:
    """The folder of the cache; made if it is not there."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "coreslice-testbed"
    root = Path(os.environ.get("CORESLICE_TESTBED_CACHE") or default)
    root.mkdir(parents=True, exist_ok=True)
    return root


@dataclass(frozen=True)
class Module:
    """A Go module of the test bed and how its programs are built."""

    name: str
    folder: Path
    programs: Mapping[str, str]  # name of the program -> import path
    requires: str  # the required module whose version names the build
    ldflags: str = ""  # may hold {version}, {major}, {minor}
    tags: str = ""
    cgo: bool = False
    version: str = field(init=False)

    def __post_init__(self) -> None:
        text = (self.folder / "go.mod").read_text()
        found = re.search(rf"^(?:require )?\s*{re.escape(self.requires)} (v\S+)", text, flags=re.MULTILINE)
        if not found:
            raise ValueError(f"{self.folder}/go.mod does not require {self.requires}")
        object.__setattr__(self, "version", found[1])

    def flags(self) -> list[str]:
        """Flags of ``go build`` for every program of the module."""
        major, minor = self.version.removeprefix("v").split(".")[:2]
        linker = f"-s -w {self.ldflags}".format(version=self.version, major=major, minor=minor).strip()
        return ["-trimpath", "-ldflags", linker, *(["-tags", self.tags] if self.tags else [])]

    def home(self) -> Path:
        """The cache folder of this very build."""
        digest = hashlib.sha256()
        for part in ("go.mod", "go.sum"):
            digest.update((self.folder / part).read_bytes())
        for path in self.programs.values():
            if path.endswith(".go"):  # a program of our own, beside the module
                digest.update((self.folder / path).read_bytes())
        digest.update(repr((self.flags(), self.cgo, sorted(self.programs.items()), go_version())).encode())
        return cache_root() / f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"


@cache
def go_version() -> str:
    """Version and target of the Go toolchain, e.g. ``go1.26.8 linux amd64``."""
    asked = ["go", "env", "GOVERSION", "GOOS", "GOARCH"]
    return " ".join(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.split())


def kubernetes(folder: Path = GO_MODULES / "kubernetes") -> Module:
    """The Kubernetes programs; another version is another folder."""
    names = ("kubelet", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
    stamp = "-X k8s.io/component-base/version.git"
    return Module(
        name="kubernetes",
        folder=folder,
        programs={name: f"k8s.io/kubernetes/cmd/{name}" for name in names},
        requires="k8s.io/kubernetes",
        ldflags=f"{stamp}Version={{version}} {stamp}Major={{major}} {stamp}Minor={{minor}}",
    )


def tools() -> Module:
    """containerd with its shim and client, etcd, crictl."""
    containerd = "github.com/containerd/containerd/v2"
    return Module(
        name="tools",
        folder=GO_MODULES / "tools",
        programs={
            "etcd": "go.etcd.io/etcd/server/v3",
            **{name: f"{containerd}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")},
            "crictl": "sigs.k8s.io/cri-tools/cmd/crictl",
        },
        requires=containerd,
        ldflags=f"-X {containerd}/version.Version={{version}}",
    )


def helm() -> Module:
    """helm, for tests that install the chart. A module of its own: a node runs without it."""
    path = "helm.sh/helm/v3"
    stamp = f"-X {path}/internal/version.version={{version}}"
    return Module("helm", GO_MODULES / "helm", {"helm": f"{path}/cmd/helm"}, path, ldflags=stamp)


def runc() -> Module:
    """runc with seccomp, for which it needs cgo and Debian's libseccomp-dev."""
    path = "github.com/opencontainers/runc"
    return Module("runc", GO_MODULES / "runc", {"runc": path}, path, tags="seccomp", cgo=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on ``path``; waits for whoever has it."""
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build(module: Module) -> dict[str, Path]:
    """Build what the cache does not have yet; the programs by name."""
    home = module.home()
    home.mkdir(exist_ok=True)
    built = {name: home / name for name in module.programs}
    if all(path.exists() for path in built.values()):
        return built
    with locked(home / ".lock"):
        for name, path in built.items():
            if not path.exists():
                compile_one(module, name, path)
    return built


def compile_one(module: Module, name: str, target: Path) -> None:
    """Compile one program to ``target``; on an error the compiler's text is on stderr."""
    started = time.monotonic()
    temporary = target.with_name(f".{name}.{os.getpid()}")
    command = ["go", "build", *module.flags(), "-o", str(temporary), module.programs[name]]
    try:
        subprocess.run(command, check=True, cwd=module.folder, env=os.environ | {"CGO_ENABLED": str(int(module.cgo))})
        temporary.rename(target)
    finally:
        temporary.unlink(missing_ok=True)
    log.info("built %s (%s %s) in %.0f s", name, module.name, module.version, time.monotonic() - started)


def build_all(kubernetes_module: Path | None = None) -> dict[str, Path]:
    """Every program of a node, by name. Minutes when the cache is empty, else nothing."""
    modules = (kubernetes(kubernetes_module) if kubernetes_module else kubernetes(), tools(), runc())
    return {name: path for module in modules for name, path in build(module).items()}
