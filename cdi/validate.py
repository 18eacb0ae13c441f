"""Would a runtime take this spec? All faults at once, each with the path of its field.

Runtimes drop a bad file without a word to the user: a container then fails with "unresolvable", and
the reason stands in a log at best. So whoever writes a spec asks here first. The rules are those of
the runtimes, and a little stricter where one of them is known to break (see `cdi.names`) or where a
mistake would only show when the container starts (relative paths).
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from cdi import names
from cdi.errors import Fault, InvalidSpecError
from cdi.models import ContainerEdits, Device, DeviceNode, Hook, Mount, Spec

# 0.8.0 and 1.0.0 added nothing to the file format. 0.2.0 and older: containerd refuses them.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
NEWEST = VERSIONS[-1]

HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
DEVICE_TYPES = ("b", "c", "u", "p")

# Fields without a type in the models: known to exist from this version on.
_UNTYPED_SINCE = {"intelRdt": "0.7.0", "netDevices": "1.1.0"}
_UINT32 = 2**32


def faults(spec: Spec, *, newest: str = NEWEST) -> tuple[Fault, ...]:
    """Everything a runtime would refuse; empty if nothing.

    `newest` is the newest version that the reader in question takes (podman 4.3: 0.5.0).
    """
    return (*_version(spec, newest), *_top(spec), *_content(spec))


def check(spec: Spec, *, newest: str = NEWEST, source: str = "(spec)") -> Spec:
    """The spec itself, if it is valid.

    Raises:
        InvalidSpecError: with all faults.
    """
    if found := faults(spec, newest=newest):
        raise InvalidSpecError(source, found)
    return spec


def features(spec: Spec) -> Iterator[tuple[str, str, str]]:
    """What the spec uses that the first version didn't have: (version, path of the field, what)."""
    if spec.annotations:
        yield "0.6.0", "annotations", "annotations"
    if "." in spec.kind.partition("/")[2]:
        yield "0.6.0", "kind", "a dot in the class"
    for index, device in enumerate(spec.devices):
        if device.annotations:
            yield "0.6.0", f"devices[{index}].annotations", "annotations"
        if device.name[:1].isdigit():
            yield "0.5.0", f"devices[{index}].name", "a name that starts with a digit"
    for path, edits in _all_edits(spec):
        yield from _edit_features(path, edits)


def minimum_version(spec: Spec) -> str:
    """The lowest version that has everything the spec uses: the one that most runtimes read."""
    return max((version for version, _, _ in features(spec)), key=VERSIONS.index, default=VERSIONS[0])


def _edit_features(path: str, edits: ContainerEdits) -> Iterator[tuple[str, str, str]]:
    for index, node in enumerate(edits.device_nodes):
        if node.host_path:
            yield "0.5.0", f"{path}.deviceNodes[{index}].hostPath", "hostPath of a device node"
    for index, mount in enumerate(edits.mounts):
        if mount.type:
            yield "0.4.0", f"{path}.mounts[{index}].type", "type of a mount"
    if edits.additional_gids:
        yield "0.7.0", f"{path}.additionalGids", "additionalGids"
    for name, version in _UNTYPED_SINCE.items():
        if name in edits.unknown:
            yield version, f"{path}.{name}", name


def _version(spec: Spec, newest: str) -> Iterator[Fault]:
    if spec.cdi_version not in VERSIONS:
        yield Fault("cdiVersion", f"{spec.cdi_version!r} is not one of {', '.join(VERSIONS)}")
        return
    declared = VERSIONS.index(spec.cdi_version)
    if declared > VERSIONS.index(newest):
        yield Fault("cdiVersion", f"{spec.cdi_version} is newer than {newest}, the newest the reader takes")
    for version, path, what in features(spec):
        if VERSIONS.index(version) > declared:
            yield Fault(path, f"{what} needs cdiVersion {version}, the spec says {spec.cdi_version}")


def _top(spec: Spec) -> Iterator[Fault]:
    if fault := names.kind_fault(spec.kind):
        yield Fault("kind", fault)
    if not spec.devices:
        yield Fault("devices", "there must be at least one device")
    yield from _unknown(spec, "")
    counts = Counter(device.name for device in spec.devices)
    for index, device in enumerate(spec.devices):
        yield from _device(device, f"devices[{index}]")
        if counts[device.name] > 1:
            yield Fault(f"devices[{index}].name", f"{device.name!r} stands {counts[device.name]} times")


def _device(device: Device, path: str) -> Iterator[Fault]:
    if fault := names.device_fault(device.name):
        yield Fault(f"{path}.name", fault)
    if device.container_edits.empty:
        yield Fault(f"{path}.containerEdits", "must not be empty")
    yield from _unknown(device, path)


def _content(spec: Spec) -> Iterator[Fault]:
    for path, edits in _all_edits(spec):
        yield from _unknown(edits, path, known=_UNTYPED_SINCE)
        yield from _env(edits.env, f"{path}.env")
        for index, node in enumerate(edits.device_nodes):
            yield from _node(node, f"{path}.deviceNodes[{index}]")
        for index, mount in enumerate(edits.mounts):
            yield from _mount(mount, f"{path}.mounts[{index}]")
        for index, hook in enumerate(edits.hooks):
            yield from _hook(hook, f"{path}.hooks[{index}]")
        for index, gid in enumerate(edits.additional_gids):
            yield from _range(gid, f"{path}.additionalGids[{index}]")


def _env(env: Sequence[str], path: str) -> Iterator[Fault]:
    for index, entry in enumerate(env):
        if entry.find("=") <= 0:
            yield Fault(f"{path}[{index}]", f"{entry!r} is not NAME=value")


def _node(node: DeviceNode, path: str) -> Iterator[Fault]:
    yield from _unknown(node, path)
    yield from _absolute(node.path, f"{path}.path")
    if node.host_path:
        yield from _absolute(node.host_path, f"{path}.hostPath")
    if node.type and node.type not in DEVICE_TYPES:
        yield Fault(f"{path}.type", f"{node.type!r} is not one of {', '.join(DEVICE_TYPES)}")
    if bad := sorted(set(node.permissions) - set("rwm")):
        yield Fault(f"{path}.permissions", f"{node.permissions!r}: {''.join(bad)!r} is not of r, w, m")
    for name in ("major", "minor", "file_mode", "uid", "gid"):
        yield from _range(getattr(node, name), f"{path}.{DeviceNode.model_fields[name].alias}")


def _mount(mount: Mount, path: str) -> Iterator[Fault]:
    yield from _unknown(mount, path)
    yield from _absolute(mount.container_path, f"{path}.containerPath")
    if not mount.host_path:
        yield Fault(f"{path}.hostPath", "must not be empty")
    elif mount.type in ("", "bind"):  # for a tmpfs and its like it is only a label
        yield from _absolute(mount.host_path, f"{path}.hostPath")


def _hook(hook: Hook, path: str) -> Iterator[Fault]:
    yield from _unknown(hook, path)
    if hook.hook_name not in HOOK_NAMES:
        yield Fault(f"{path}.hookName", f"{hook.hook_name!r} is not one of {', '.join(HOOK_NAMES)}")
    yield from _absolute(hook.path, f"{path}.path")
    yield from _env(hook.env, f"{path}.env")
    if hook.timeout is not None and hook.timeout <= 0:
        yield Fault(f"{path}.timeout", f"{hook.timeout} is not a number of seconds above 0")


def _absolute(text: str, path: str) -> Iterator[Fault]:
    if not text.startswith("/"):
        yield Fault(path, f"{text!r} is not an absolute path" if text else "must not be empty")


def _range(number: int | None, path: str) -> Iterator[Fault]:
    if number is not None and not 0 <= number < _UINT32:
        yield Fault(path, f"{number} is not within 0 and {_UINT32 - 1}")


def _unknown(model: BaseModel, path: str, *, known: Sequence[str] | dict[str, str] = ()) -> Iterator[Fault]:
    for name in model.model_extra or {}:
        if name not in known:
            yield Fault(f"{path}.{name}".removeprefix("."), "unknown field: runtimes refuse the whole file")


def _all_edits(spec: Spec) -> Iterator[tuple[str, ContainerEdits]]:
    yield "containerEdits", spec.container_edits
    for index, device in enumerate(spec.devices):
        yield f"devices[{index}].containerEdits", device.container_edits
