"""What a container sees: CDI devices applied to a base OCI spec, shown as plain facts.

The path is that of a runtime: spec directories, qualified names, application. No container is started
and no host node is opened, so it works for hardware that isn't there (the specs give the numbers).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdi.apply import apply_edits, collect
from cdi.registry import load

# A container as runtimes start from it: no device but what everybody gets, and every other one denied.
BASE_SPEC: Mapping[str, Any] = {
    "ociVersion": "1.0.2",
    "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sh"], "env": ["PATH=/usr/bin:/bin"], "cwd": "/"},
    "linux": {"devices": [], "resources": {"devices": [{"allow": False, "access": "rwm"}]}},
}


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A device node in a container. `permissions` (of r, w, m) are the cgroup's, not the file's."""

    path: str
    host_path: str
    type: str
    major: int
    minor: int
    permissions: str
    file_mode: int | None


@dataclass(frozen=True, slots=True)
class ContainerView:
    """Device nodes in the order of their paths, and the environment in the order in which it is set."""

    nodes: tuple[SeenNode, ...]
    env: tuple[tuple[str, str], ...]

    def variable(self, name: str) -> str | None:
        """The value of an environment variable, or None."""
        return dict(self.env).get(name)


def see(cdi_ids: Sequence[str], *, cdi_dirs: Sequence[Path], base: Mapping[str, Any] = BASE_SPEC) -> ContainerView:
    """What a container started from `base` with these CDI devices sees.

    Raises:
        cdi.errors.UnresolvableError: with the reason for each id, as no runtime tells it.
        cdi.errors.ApplyError: a host node whose numbers the spec leaves out is missing.
    """
    edits = collect(cdi_ids, load(cdi_dirs))
    spec = apply_edits(base, edits)
    host_paths = {node.path: node.host_path or node.path for one in edits for node in one.device_nodes}
    linux = spec.get("linux") or {}
    rules = (linux.get("resources") or {}).get("devices") or []
    nodes = [_seen(device, host_paths, rules) for device in linux.get("devices") or []]
    env = (spec.get("process") or {}).get("env") or []
    return ContainerView(
        nodes=tuple(sorted(nodes, key=lambda node: (len(node.path), node.path))),
        env=tuple((name, value) for name, _, value in (entry.partition("=") for entry in env)),
    )


def _seen(device: Mapping[str, Any], host_paths: Mapping[str, str], rules: Sequence[Mapping[str, Any]]) -> SeenNode:
    numbers = {"type": device["type"], "major": device.get("major", 0), "minor": device.get("minor", 0)}
    return SeenNode(
        path=device["path"],
        host_path=host_paths.get(device["path"], device["path"]),
        permissions=_permissions(numbers, rules),
        file_mode=device.get("fileMode"),
        **numbers,
    )


def _permissions(numbers: Mapping[str, Any], rules: Sequence[Mapping[str, Any]]) -> str:
    """Rules act in order; one without a number (or with -1) or of type `a` fits every node."""
    granted: set[str] = set()
    for rule in rules:
        fits = rule.get("type") in (None, "", "a", numbers["type"]) and all(
            rule.get(key) in (None, -1, numbers[key]) for key in ("major", "minor")
        )
        if fits:
            letters = set(rule.get("access") or "rwm")
            granted = granted | letters if rule["allow"] else granted - letters
    return "".join(letter for letter in "rwm" if letter in granted)
