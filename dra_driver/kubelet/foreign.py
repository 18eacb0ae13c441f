"""Sockets of others: device plugins that serve certain resource names, other DRA drivers, other instances of ours.

A socket counts when somebody listens on it: a file that a dead instance left offers nothing.
"""

import re
from collections.abc import Collection
from pathlib import Path

from dra_driver.kubelet.names import any_registration_pattern, registration_pattern
from dra_driver.kubelet.sockets import live

_ANY_SOCKET = re.compile(r"[^.].*\.sock")


def of_device_plugin(folder: Path, resources: Collection[str]) -> list[str]:
    """Live sockets in the device plugin folder whose name has that of one of the resources in it.

    A socket's name is the plugin's own choice, so this is a hint, seen before the plugin has registered; what it
    offers is the kubelet's to tell. Raises KubeletError where the folder can't be read.
    """
    words = "|".join(sorted({re.escape(name.rpartition("/")[2]) for name in resources}))
    pattern = re.compile(rf"(?i)(?!kubelet\.sock$).*(?:{words}).*\.sock")
    return [str(path) for path in live(folder, pattern)] if words else []


def of_driver(name: str, plugins_dir: Path, registry_dir: Path) -> list[str]:
    """Live sockets of a DRA driver: for registration, and in its own folder. Raises KubeletError."""
    found = [*live(registry_dir, any_registration_pattern(name)), *live(plugins_dir / name, _ANY_SOCKET)]
    return [str(path) for path in found]


def of_other_instances(name: str, registry_dir: Path, *, own: Path) -> list[str]:
    """Live registration sockets of this driver that aren't `own`. Raises KubeletError."""
    return [str(path) for path in live(registry_dir, registration_pattern(name)) if path != own]
