"""Names of the sockets: one pair per instance, so that two instances of a driver can overlap.

A socket is bound under its name with a dot in front and then renamed (see `sockets`), so one byte of the
kernel's limit is kept for the dot. What doesn't fit is shortened by hash, the driver's part separately from
the instance's: dead sockets are found again by the driver's part alone.
"""

import base64
import hashlib
import os
import re
from pathlib import Path

from dra_driver.errors import KubeletError

# sun_path holds 108 bytes with its terminating NUL.
MAX_PATH = 107
_INSTANCE = "[A-Za-z0-9_-]+"


def registration_socket(registry_dir: Path, driver: str, instance: str) -> Path:
    """`<driver>-<instance>-reg.sock`, or the same with one or both parts hashed; raises KubeletError."""
    short = _short(instance)
    names = (f"{driver}-{instance}", f"{driver}-{short}", f"{_short(driver)}-{short}")
    return _first_fit(registry_dir, [f"{name}-reg.sock" for name in names])


def dra_socket(plugin_dir: Path, instance: str) -> Path:
    """`dra-<instance>.sock`, or the same with the instance hashed; raises KubeletError."""
    return _first_fit(plugin_dir, [f"dra-{part}.sock" for part in (instance, _short(instance))])


def dot_name(path: Path) -> Path:
    """The name a socket is bound under: the kubelet's watcher ignores names that start with a dot."""
    return path.with_name(f".{path.name}")


def registration_pattern(driver: str) -> re.Pattern[str]:
    """Matches file names of registration sockets of any instance of the driver, dot-names included."""
    parts = "|".join(re.escape(part) for part in (driver, _short(driver)))
    return re.compile(rf"\.?(?:{parts})-{_INSTANCE}-reg\.sock")


def any_registration_pattern(driver: str) -> re.Pattern[str]:
    """Matches file names of registration sockets of any driver of that name, whoever made it."""
    return re.compile(rf"{re.escape(driver)}(?:-{_INSTANCE})?-reg\.sock")


def dra_pattern() -> re.Pattern[str]:
    """Matches file names of DRA sockets of any instance; the folder belongs to one driver."""
    return re.compile(rf"\.?dra-{_INSTANCE}\.sock")


def _short(part: str) -> str:
    digest = hashlib.sha256(part.encode()).digest()[:8]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _first_fit(folder: Path, names: list[str]) -> Path:
    for name in names:
        if len(os.fsencode(dot_name(folder / name))) <= MAX_PATH:
            return folder / name
    raise KubeletError(
        f"no socket fits into {folder}: even {names[-1]} makes a path of more than {MAX_PATH - 1} bytes, "
        "which is what a unix socket may have; use a shorter folder"
    )
