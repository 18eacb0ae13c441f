"""Container images without a registry: OCI archives of one layer, made here.

``localhost/pause:1`` holds a pod's namespaces; ``localhost/busybox:1`` is what test
pods run. The archives are byte-stable (no times, fixed order), so they can be cached.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from testbed.binaries import cache_root, locked

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
ACCOUNTS = {
    "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/:/bin/sh\n",
    "etc/group": b"root:x:0:\nuser:x:1000:\n",
}


def build_images() -> list[Path]:
    """Both archives, from the cache if they are there."""
    sources = Path(__file__).read_bytes() + (Path(__file__).parent / "pause.c").read_bytes()
    busybox = find_busybox().read_bytes()
    home = cache_root() / ("images-" + hashlib.sha256(sources + busybox).hexdigest()[:12])
    home.mkdir(exist_ok=True)
    with locked(home / ".lock"):
        return [
            cached(home / "pause.tar", lambda: archive(PAUSE, {"pause": compile_pause()}, ["/pause"])),
            cached(home / "busybox.tar", lambda: archive(BUSYBOX, busybox_tree(busybox), ["/bin/sh"])),
        ]


def cached(path: Path, make: Any) -> Path:
    """The file at ``path``, made first if it is not there."""
    if not path.exists():
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(make())
        temporary.rename(path)
    return path


def find_busybox() -> Path:
    """Debian's static busybox."""
    for candidate in (Path("/usr/bin/busybox"), Path("/bin/busybox")):
        if candidate.exists():
            return candidate
    raise FileNotFoundError("no busybox in /usr/bin or /bin: install the package busybox-static")


def compile_pause() -> bytes:
    """The pause program, static."""
    with TemporaryDirectory() as folder:
        target = Path(folder) / "pause"
        source = Path(__file__).parent / "pause.c"
        subprocess.run(["gcc", "-static", "-Os", "-s", "-o", str(target), str(source)], check=True)
        return target.read_bytes()


def busybox_tree(busybox: bytes) -> dict[str, bytes | str]:
    """Files of the test image: busybox, a link for each of its applets, two accounts."""
    listing = subprocess.run([find_busybox(), "--list"], check=True, capture_output=True, text=True).stdout
    links = {f"bin/{applet}": "busybox" for applet in listing.split() if applet != "busybox"}
    return {"bin/busybox": busybox, **links, **ACCOUNTS}


def archive(reference: str, files: Mapping[str, bytes | str], entrypoint: Sequence[str]) -> bytes:
    """An OCI archive of one layer. A ``str`` in ``files`` is the target of a symbolic link."""
    layer = layer_of(files)
    packed = gzip.compress(layer, mtime=0)
    config = as_json(
        {
            "architecture": ARCHITECTURES[platform.machine()],
            "os": "linux",
            "config": {"Entrypoint": list(entrypoint), "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        }
    )
    kind = "application/vnd.oci.image"
    manifest = as_json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": descriptor(f"{kind}.config.v1+json", config),
            "layers": [descriptor(f"{kind}.layer.v1.tar+gzip", packed)],
        }
    )
    names = {
        "io.containerd.image.name": reference,
        "org.opencontainers.image.ref.name": reference.rpartition(":")[2],
    }
    index = {
        "schemaVersion": 2,
        "manifests": [descriptor(f"{kind}.manifest.v1+json", manifest) | {"annotations": names}],
    }
    blobs = {f"blobs/sha256/{digest(blob).partition(':')[2]}": blob for blob in (config, packed, manifest)}
    return tar_of({"oci-layout": as_json({"imageLayoutVersion": "1.0.0"}), "index.json": as_json(index), **blobs})


def layer_of(files: Mapping[str, bytes | str]) -> bytes:
    """The layer's tar: the files, executable, and the empty folders that a runtime mounts on."""
    return tar_of(files, folders=("dev", "proc", "sys", "etc", "tmp", "root"))


def tar_of(files: Mapping[str, bytes | str], folders: Sequence[str] = ()) -> bytes:
    """A tar with nothing in it that depends on when or where it was made."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.mode = 0o755
            if isinstance(content, str):
                entry.type, entry.linkname = tarfile.SYMTYPE, content
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    """How OCI documents point at a blob."""
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}


def digest(blob: bytes) -> str:
    """``sha256:<hex>`` of a blob."""
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def as_json(value: Any) -> bytes:
    """Compact JSON with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
