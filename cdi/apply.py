"""CDI devices put into an OCI runtime spec (the `config.json` dict), as the runtimes do it.

* A name asked for twice counts once (containerd; podman injects it twice, which shows in hooks only).
* The edits of a spec file act once, before those of its first device; then each device's, in order.
* env: a variable that is there already is replaced in its place, so the last edit wins, and any edit
  wins over what pod or image set.
* device nodes: same container path replaced; a cgroup rule is added for each. Numbers that the spec
  doesn't give are those of the host's node, which must then exist.
* mounts: same destination replaced, then all sorted by depth. hooks: appended. gids: united.
Nothing is done to the argument: a new dict is returned.
"""

import copy
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from cdi.errors import ApplyError, UnresolvableError
from cdi.models import ContainerEdits, DeviceNode, Hook, Mount
from cdi.registry import Registry

OciSpec = dict[str, Any]

_TYPE_OF_MODE = {stat.S_IFCHR: "c", stat.S_IFBLK: "b", stat.S_IFIFO: "p"}


def apply(
    oci: Mapping[str, Any],
    names: Sequence[str],
    registry: Registry,
    *,
    stat_node: Callable[[str], os.stat_result] = os.stat,
) -> OciSpec:
    """The OCI spec with the devices of these qualified names.

    `stat_node` looks at host nodes whose numbers a spec leaves out.

    Raises:
        UnresolvableError: with the reason for every name that doesn't resolve.
        ApplyError: a host node is missing or of another type, or a field isn't supported here.
    """
    return apply_edits(oci, collect(names, registry), stat_node=stat_node)


def collect(names: Sequence[str], registry: Registry) -> tuple[ContainerEdits, ...]:
    """The edits of these devices in the order in which they act.

    Raises:
        UnresolvableError: with the reason for every name that doesn't resolve.
    """
    unique = tuple(dict.fromkeys(names))
    if reasons := {name: reason for name in unique if (reason := registry.why(name))}:
        raise UnresolvableError(reasons)
    edits: list[ContainerEdits] = []
    seen = set()
    for found in map(registry.resolve, unique):
        if found.path not in seen:
            edits.append(found.spec.container_edits)
            seen.add(found.path)
        edits.append(found.device.container_edits)
    return tuple(edits)


def apply_edits(
    oci: Mapping[str, Any],
    edits: Sequence[ContainerEdits],
    *,
    stat_node: Callable[[str], os.stat_result] = os.stat,
) -> OciSpec:
    """The OCI spec with these edits, in this order.

    Raises:
        ApplyError: as `apply`.
    """
    spec: OciSpec = copy.deepcopy(dict(oci))
    for one in edits:
        if one.unknown:
            raise ApplyError(f"edits with {', '.join(sorted(one.unknown))} can't be applied here")
        _add_env(spec, one.env)
        for node in one.device_nodes:
            _add_node(spec, _completed(node, stat_node))
        for mount in one.mounts:
            _add_mount(spec, mount)
        for hook in one.hooks:
            _part(spec, "hooks").setdefault(hook.hook_name, []).append(_oci_hook(hook))
        _add_gids(spec, one.additional_gids)
    return spec


def _part(spec: OciSpec, *keys: str) -> OciSpec:
    for key in keys:
        if spec.get(key) is None:
            spec[key] = {}
        spec = spec[key]
    return spec


def _entries(spec: OciSpec, *keys: str) -> list[Any]:
    part = _part(spec, *keys[:-1])
    if part.get(keys[-1]) is None:
        part[keys[-1]] = []
    entries: list[Any] = part[keys[-1]]
    return entries


def _add_env(spec: OciSpec, entries: Sequence[str]) -> None:
    for entry in entries:
        env = _entries(spec, "process", "env")
        start = entry.partition("=")[0] + "="
        places = [index for index, old in enumerate(env) if old.startswith(start)]
        if places:
            env[places[-1]] = entry
        else:
            env.append(entry)


def _completed(node: DeviceNode, stat_node: Callable[[str], os.stat_result]) -> DeviceNode:
    # Major 0 counts as absent, as in the runtimes: it is what Go writes for "not set".
    if node.type and (node.major or node.type == "p"):
        return node
    host_path = node.host_path or node.path
    try:
        status = stat_node(host_path)
    except OSError as error:
        raise ApplyError(f"device node {node.path}: host node {host_path}: {error.strerror}") from error
    found = _TYPE_OF_MODE.get(stat.S_IFMT(status.st_mode))
    if found is None:
        raise ApplyError(f"device node {node.path}: {host_path} is not a device node")
    if node.type and node.type != found:
        raise ApplyError(f"device node {node.path}: type {node.type!r} asked, {host_path} is {found!r}")
    numbers = {} if node.major else {"major": os.major(status.st_rdev), "minor": os.minor(status.st_rdev)}
    return node.model_copy(update={"type": found, **numbers})


def _add_node(spec: OciSpec, node: DeviceNode) -> None:
    user = _part(spec, "process").get("user") or {}
    device: OciSpec = {"path": node.path, "type": node.type}
    if node.type != "p":
        device |= {"major": node.major, "minor": node.minor or 0}
    owner = {"uid": node.uid, "gid": node.gid}
    for key, value in owner.items():  # the container's own user, if the spec names nobody
        chosen = value if value is not None else user.get(key) or None
        if chosen is not None:
            device[key] = chosen
    if node.file_mode is not None:
        device["fileMode"] = node.file_mode
    devices = _entries(spec, "linux", "devices")
    devices[:] = [one for one in devices if one["path"] != node.path] + [device]
    if node.type in ("b", "c"):
        _add_rule(spec, device, node.permissions or "rwm")


def _add_rule(spec: OciSpec, device: Mapping[str, Any], access: str) -> None:
    rule = {"allow": True, **{key: device[key] for key in ("type", "major", "minor")}, "access": access}
    rules = _entries(spec, "linux", "resources", "devices")
    if rule not in rules:
        rules.append(rule)


def _add_mount(spec: OciSpec, mount: Mount) -> None:
    entry: OciSpec = {"destination": mount.container_path, "source": mount.host_path}
    if mount.type:
        entry["type"] = mount.type
    if mount.options:
        entry["options"] = list(mount.options)
    mounts = _entries(spec, "mounts")
    kept = [one for one in mounts if one["destination"] != mount.container_path]
    mounts[:] = sorted([*kept, entry], key=lambda one: len(PurePosixPath(one["destination"]).parts))


def _oci_hook(hook: Hook) -> OciSpec:
    entry: OciSpec = {"path": hook.path}
    if hook.args:
        entry["args"] = list(hook.args)
    if hook.env:
        entry["env"] = list(hook.env)
    if hook.timeout is not None:
        entry["timeout"] = hook.timeout
    return entry


def _add_gids(spec: OciSpec, gids: Sequence[int]) -> None:
    for gid in filter(None, gids):  # runtimes pass over 0
        known = _entries(spec, "process", "user", "additionalGids")
        if gid not in known:
            known.append(gid)
