"""The driver's image: built from ``deploy/image/Containerfile``, as its users build it, but without a registry.

The recipe's two bases are made of Debian packages by mmdebstrap, the wheels are
downloaded once by pip and mounted, buildah builds in a chroot. What comes out is one
OCI archive in the cache, keyed by everything that goes into it. buildah's storage and
mounts end with the build: a scratch folder and a mount namespace of its own.
"""

import hashlib
import logging
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.binaries import cache_root, locked
from testbed.images import ARCHITECTURES

log = logging.getLogger(__name__)

TREE = Path(__file__).parents[3]
RECIPE = Path("deploy/image/Containerfile")
REFERENCE = "localhost/coreslice:a"
KEPT_ARCHIVES = 3
# glibc's tags, the oldest first; Debian's glibc is newer than all of them.
MANYLINUX = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")
WHEELS_OF = {"amd64": "x86_64", "arm64": "aarch64"}

# Unpacked and not configured, so without a package manager, accounts and a shell. grpcio needs libstdc++.
RUN_PACKAGES = ("base-files", "libstdc++6", "python3")
BUILD_PACKAGES = (*RUN_PACKAGES, "coreutils", "dash", "python3-venv")
# What no Python program looks at; copyright files stay.
NOT_IN_RUN = (
    *("bin", "sbin", "usr/sbin", "usr/bin/dpkg*", "usr/bin/perl*", "usr/bin/update-alternatives"),
    *("usr/share/locale", "usr/share/man", "usr/share/perl5", "usr/share/zoneinfo", "usr/lib/*/gconv"),
    *(f"usr/lib/python3.*/{name}" for name in ("ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter")),
    *("usr/lib/python3.*/config-*", "var/cache", "var/lib/apt", "var/lib/dpkg/info"),
)


@dataclass(frozen=True)
class Base:
    """A base image of Debian packages, as mmdebstrap makes it."""

    name: str
    packages: Sequence[str]
    without: Sequence[str] = ()

    def command(self, target: Path) -> list[str]:
        """The command line that makes it."""
        documents = "find usr/share/doc -type f ! -name copyright -delete; find usr/share/doc -type d -empty -delete"
        hook = f'cd "$1" && rm -rf {" ".join(self.without)} && {{ {documents}; }}'
        included = f"--include={','.join(self.packages)}"
        hooks = [f"--extract-hook={hook}"] if self.without else []
        return ["mmdebstrap", "--quiet", "--variant=extract", included, *hooks, suite(), str(target)]

    def archive(self) -> Path:
        """The tar of it in the cache, made if it is not there."""
        key = fingerprint([repr(self.command(Path("x"))).encode()])
        return made(cache_root() / f"base-{self.name}-{key}.tar", lambda path: run(self.command(path)))


BUILD = Base("build", BUILD_PACKAGES)
RUN = Base("run", RUN_PACKAGES, NOT_IN_RUN)


@cache
def build() -> Path:
    """The OCI archive of the image, from the cache if it is there; ``REFERENCE`` is its name.

    Of the tree as it is now: what is edited during the build is in the next one.
    """
    with TemporaryDirectory(prefix=".context-", dir=cache_root()) as folder:
        context = Path(folder)
        for source in sources(TREE):
            target = context / source.relative_to(TREE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
        name = f"driver-image-{fingerprint(ingredients(context))}.tar"
        archive = made(cache_root() / name, lambda path: build_to(path, context))
    for old in sorted(cache_root().glob("driver-image-*.tar"), key=lambda path: path.stat().st_mtime)[:-KEPT_ARCHIVES]:
        old.unlink(missing_ok=True)
    return archive


def build_to(target: Path, context: Path) -> None:
    """Build it with buildah and save it."""
    bases = {"BUILD_BASE": BUILD.archive(), "BASE": RUN.archive()}
    found = wheels(python_of(bases["BASE"]))
    with Buildah.scratch() as buildah:
        for name, archive in bases.items():
            buildah.base_image(archive, f"localhost/{name.lower()}")
        buildah(
            *("bud", "--quiet", "--isolation=chroot", "--pull-never", f"--volume={found}:/wheels:ro"),
            *(f"--build-arg={name}=localhost/{name.lower()}" for name in bases),
            *("--build-arg=PYTHON=/usr/bin/python3", "--build-arg=PIP_ARGS=--no-index --find-links /wheels"),
            *(f"--file={context / RECIPE}", f"--tag={REFERENCE}", str(context)),
        )
        buildah("push", "--quiet", REFERENCE, f"oci-archive:{target}:{REFERENCE}")


@dataclass(frozen=True)
class Buildah:
    """buildah on a storage of its own."""

    folder: Path

    @classmethod
    @contextmanager
    def scratch(cls) -> Iterator["Buildah"]:
        """One whose storage is removed at the end."""
        with TemporaryDirectory(prefix=".buildah-", dir=cache_root()) as folder:
            yield cls(Path(folder))

    def __call__(self, *arguments: str) -> str:
        """Run buildah; what it prints. The storage driver's mounts end with the command."""
        storage = [f"--root={self.folder}/root", f"--runroot={self.folder}/run", "--storage-driver=overlay"]
        return run(["unshare", "--mount", "--", "buildah", *storage, *arguments])

    def base_image(self, archive: Path, name: str) -> None:
        """Make an image of a tar of a root folder."""
        container = self("from", "scratch").strip()
        self("add", "--quiet", container, str(archive), "/")
        self("commit", "--quiet", "--rm", container, name)


def ingredients(context: Path) -> Iterator[bytes]:
    """All that decides what is in the image."""
    yield platform.machine().encode()
    for base in (BUILD, RUN):
        yield repr(base.command(Path("x"))).encode()
    yield Path(__file__).read_bytes()
    for path in sources(context):
        yield str(path.relative_to(context)).encode()
        yield path.read_bytes()


def sources(tree: Path) -> list[Path]:
    """The files of a tree that the recipe copies, and the recipe."""
    folders = [tree / name for name in ("cdi", "dra_driver", RECIPE.parent)]
    found = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    own = [path for path in found if path.suffix != ".pyc"]
    return sorted([*own, tree / "requirements/daemon.txt", tree / "LICENSE", tree / ".containerignore"])


def wheels(python: str) -> Path:
    """Folder of the wheels that the image is made of, downloaded if it is not there. ``python``: ``3.11``."""
    arguments = pip_arguments(python, ARCHITECTURES[platform.machine()])
    listed = TREE / "requirements/daemon.txt"
    key = fingerprint([listed.read_bytes(), repr(arguments).encode()])
    command = [sys.executable, "-m", "pip", "download", "--quiet", *arguments, "-r", str(listed), "-d"]
    return made(cache_root() / f"wheels-{python}-{key}", lambda path: run([*command, str(path)]))


def pip_arguments(python: str, architecture: str) -> list[str]:
    """What makes pip choose wheels for a Python and a machine that need not be its own."""
    platforms = [f"--platform={tag}_{WHEELS_OF[architecture]}" for tag in MANYLINUX]
    version = [f"--python-version={python}", "--implementation=cp"]
    return ["--disable-pip-version-check", "--require-hashes", "--only-binary=:all:", *version, *platforms]


def python_of(base: Path) -> str:
    """Minor version of the Python in a base image: ``3.11``."""
    with tarfile.open(base) as tar:
        names = (re.fullmatch(r"(?:\./)?usr/bin/python(3\.\d+)", name) for name in tar.getnames())
        return next(match[1] for match in names if match)


def suite() -> str:
    """The Debian release that the bases are made of: this machine's, or the stable one elsewhere."""
    known = platform.freedesktop_os_release()
    return known["VERSION_CODENAME"] if known["ID"] == "debian" else "stable"


def made(target: Path, make: Callable[[Path], object]) -> Path:
    """``target``, made under another name and renamed; only once when several want it. A key follows its last dash."""
    if not target.exists():
        with locked(target.with_name(f".{target.name.rpartition('-')[0] or target.name}.lock")):
            if not target.exists():
                started = time.monotonic()
                with TemporaryDirectory(prefix=".making-", dir=target.parent) as folder:
                    temporary = Path(folder) / target.name
                    make(temporary)
                    temporary.rename(target)
                log.info("made %s in %.0f s", target.name, time.monotonic() - started)
    return target


def fingerprint(parts: Iterable[bytes]) -> str:
    """Twelve hex digits that stand for the parts in their order."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()[:12]


def run(command: Sequence[str]) -> str:
    """Run a command; what it prints. RuntimeError with its words if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
