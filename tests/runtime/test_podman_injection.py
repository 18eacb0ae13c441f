"""What podman puts into a container, beside what `cdi.apply` says it would.

A granted node whose major no driver has opens with ENXIO (the kernel got as far as looking for the
driver); a node that isn't granted gives EPERM (the device cgroup refused). That is how these tests
tell permissions apart without hardware.
"""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdi.apply import apply
from cdi.models import ContainerEdits, Device, DeviceNode, Hook, Mount, Spec
from cdi.registry import load
from dra_driver.simulator.container import see

pytestmark = pytest.mark.runtime

_ENXIO = "No such device or address"
_EPERM = "Operation not permitted"

FreeMajor = Callable[[str], int]


def _spec(vendor: str, common: ContainerEdits | None = None, **devices: ContainerEdits) -> Spec:
    return Spec(
        cdi_version="0.5.0",
        kind=f"{vendor}/claim",
        devices=tuple(Device(name=name, container_edits=edits) for name, edits in devices.items()),
        container_edits=common or ContainerEdits(),
    )


def _node(major: int, minor: int, path: str = "/dev/neuron0", **more: Any) -> DeviceNode:
    given = {"type": "c", "major": major, "minor": minor, "permissions": "rw", **more}
    return DeviceNode(path=path, **given)


def _same(podman: Any, bare: Any, names: list[str], options: tuple[str, ...] = (), **user: Any) -> Any:
    """Start the container, predict it with `apply`, and compare environment and device nodes."""
    seen = podman.look(names, options)
    assert seen.status == 0, seen.error
    base_env = dict(bare.env)
    for option in options:
        if option.startswith("--env="):
            name, _, value = option.removeprefix("--env=").partition("=")
            base_env[name] = value
    base = {
        "process": {"env": [f"{name}={value}" for name, value in base_env.items()], "user": user},
        "linux": {"devices": []},
    }
    predicted = apply(base, names, load(newest="0.5.0"))
    assert seen.env == dict(entry.split("=", 1) for entry in predicted["process"]["env"])
    nodes = {path: node for path, node in seen.nodes.items() if path not in bare.nodes}
    assert {path: _facts(node) for path, node in nodes.items()} == {
        device["path"]: (
            device["type"],
            device["major"],
            device["minor"],
            device.get("fileMode", 0o666),
            device.get("uid", 0),
            device.get("gid", 0),
        )
        for device in predicted["linux"]["devices"]
    }
    return seen


def _facts(node: Any) -> tuple[Any, ...]:
    return (node.type, node.major, node.minor, node.mode, node.uid, node.gid)


def test_a_renamed_node_and_a_variable(podman: Any, bare: Any, specs: Any, free_major: FreeMajor) -> None:
    """BC-055: no such node on the host, and it is injected all the same."""
    node = _node(free_major("c"), 5, host_path="/dev/neuron5", file_mode=0o666)
    specs.put(_spec(specs.vendor, a=ContainerEdits(env=("NEURON_RT_VISIBLE_CORES=0-1",), device_nodes=(node,))))
    seen = _same(podman, bare, [f"{specs.vendor}/claim=a"])
    assert seen.env["NEURON_RT_VISIBLE_CORES"] == "0-1"
    assert seen.nodes["/dev/neuron0"].minor == 5
    assert not Path("/dev/neuron5").exists()


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["b", "a"], ["a", "b", "a", "b"]])
def test_devices_that_each_carry_the_whole_edits(
    podman: Any, bare: Any, specs: Any, free_major: FreeMajor, names: list[str]
) -> None:
    """Order and repetition make no difference: each node is there once, each variable once."""
    major = free_major("c")
    edits = ContainerEdits(
        env=("NEURON_RT_VISIBLE_CORES=0-3", "NEURON_LOGICAL_NC_CONFIG=1"),
        device_nodes=tuple(
            _node(major, minor, f"/dev/neuron{minor - 4}", host_path=f"/dev/neuron{minor}") for minor in (4, 5)
        ),
    )
    specs.put(_spec(specs.vendor, a=edits, b=edits))
    seen = _same(podman, bare, [f"{specs.vendor}/claim={name}" for name in names])
    assert set(seen.nodes) - set(bare.nodes) == {"/dev/neuron0", "/dev/neuron1"}
    assert sorted(line for line in seen.output.splitlines() if line.startswith("NEURON_")) == [
        "NEURON_LOGICAL_NC_CONFIG=1",
        "NEURON_RT_VISIBLE_CORES=0-3",
    ]


@pytest.mark.parametrize(("names", "value"), [(["a", "b"], "1"), (["b", "a"], "0")])
def test_devices_that_each_set_their_part_lose_one(
    podman: Any, bare: Any, specs: Any, names: list[str], value: str
) -> None:
    specs.put(_spec(specs.vendor, a=ContainerEdits(env=("CORES=0",)), b=ContainerEdits(env=("CORES=1",))))
    seen = _same(podman, bare, [f"{specs.vendor}/claim={name}" for name in names])
    assert seen.env["CORES"] == value


def test_bc076_cdi_wins_over_the_users_variable(podman: Any, bare: Any, specs: Any) -> None:
    specs.put(_spec(specs.vendor, a=ContainerEdits(env=("NEURON_RT_VISIBLE_CORES=0",))))
    options = ("--env=NEURON_RT_VISIBLE_CORES=0-31", "--env=OWN=kept")
    seen = _same(podman, bare, [f"{specs.vendor}/claim=a"], options)
    assert seen.env["NEURON_RT_VISIBLE_CORES"] == "0"
    assert seen.env["OWN"] == "kept"


def test_edits_of_the_spec_act_before_those_of_the_device(podman: Any, bare: Any, specs: Any) -> None:
    common = ContainerEdits(env=("BOTH=spec", "COMMON=1"))
    device_a, device_b = ContainerEdits(env=("BOTH=a",)), ContainerEdits(env=("B=1",))
    specs.put(_spec(specs.vendor, common, a=device_a, b=device_b))
    seen = _same(podman, bare, [f"{specs.vendor}/claim=a", f"{specs.vendor}/claim=b"])
    assert {name: seen.env.get(name) for name in ("BOTH", "COMMON", "B")} == {
        "BOTH": "a",
        "COMMON": "1",
        "B": "1",
    }


@pytest.mark.parametrize(
    "more",
    [{}, {"file_mode": 0o600}, {"file_mode": 0o640, "uid": 7, "gid": 8}, {"file_mode": 0o666, "gid": 0}],
    ids=str,
)
@pytest.mark.parametrize("user", [0, 1000])
def test_bc064_mode_and_owner(
    podman: Any, bare: Any, specs: Any, free_major: FreeMajor, user: int, more: dict[str, Any]
) -> None:
    specs.put(_spec(specs.vendor, a=ContainerEdits(device_nodes=(_node(free_major("c"), 1, **more),))))
    options = ("--user", f"{user}:{user}")
    _same(podman, bare, [f"{specs.vendor}/claim=a"], options, uid=user, gid=user)


@pytest.mark.parametrize("kind", ["c", "b"])
def test_what_the_spec_leaves_out_is_the_host_nodes(
    podman: Any, bare: Any, specs: Any, free_major: FreeMajor, tmp_path: Path, kind: str
) -> None:
    host = tmp_path / "node"
    kind_bits = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}[kind]
    os.mknod(host, kind_bits | 0o600, os.makedev(free_major(kind), 9))
    node = DeviceNode(path="/dev/neuron0", host_path=str(host))
    specs.put(_spec(specs.vendor, a=ContainerEdits(device_nodes=(node,))))
    seen = _same(podman, bare, [f"{specs.vendor}/claim=a"])
    assert seen.nodes["/dev/neuron0"].type == kind


def test_a_later_node_of_the_same_path_replaces_the_earlier(
    podman: Any, bare: Any, specs: Any, free_major: FreeMajor
) -> None:
    major = free_major("c")
    edits = {name: ContainerEdits(device_nodes=(_node(major, minor),)) for name, minor in (("a", 1), ("b", 2))}
    specs.put(_spec(specs.vendor, **edits))
    seen = _same(podman, bare, [f"{specs.vendor}/claim=a", f"{specs.vendor}/claim=b"])
    assert seen.nodes["/dev/neuron0"].minor == 2


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"path": "/dev/neuron0"}, "no such file or directory"),
        ({"path": "/dev/neuron0", "host_path": "/dev/null", "type": "b"}, "type"),
    ],
)
def test_a_host_node_that_does_not_fit_stops_the_container(
    podman: Any, specs: Any, node: dict[str, str], text: str
) -> None:
    specs.put(_spec(specs.vendor, a=ContainerEdits(device_nodes=(DeviceNode.model_validate(node),))))
    seen = podman.look([f"{specs.vendor}/claim=a"])
    assert seen.status != 0
    assert text in seen.error


_OPEN = "(: </dev/neuron{0}) 2>&1; echo ,; (: >/dev/neuron{0}) 2>&1; echo ';'\n"


@pytest.mark.parametrize("permissions", ["r", "w", "rw", "rwm", "", "m"])
def test_the_cgroup_grants_exactly_the_permissions(
    podman: Any, specs: Any, free_major: FreeMajor, permissions: str
) -> None:
    node = _node(free_major("c"), 3, permissions=permissions)
    specs.put(_spec(specs.vendor, a=ContainerEdits(device_nodes=(node,))))
    name = f"{specs.vendor}/claim=a"
    (predicted,) = see([name], cdi_dirs=[Path("/etc/cdi"), Path("/var/run/cdi")]).nodes
    reading, writing = podman.run(_OPEN.format(0), [name]).output.split(";")[0].split(",")
    assert (_ENXIO if "r" in predicted.permissions else _EPERM) in reading
    assert (_ENXIO if "w" in predicted.permissions else _EPERM) in writing


def test_a_node_that_was_not_granted_cannot_be_opened_even_if_made(
    podman: Any, specs: Any, free_major: FreeMajor
) -> None:
    """The chip beside the granted one stays closed to a container that may make nodes."""
    major = free_major("c")
    specs.put(_spec(specs.vendor, a=ContainerEdits(device_nodes=(_node(major, 3),))))
    script = f"mknod /dev/neuron1 c {major} 4 && mknod /dev/neuron2 c {major} 3;" + "".join(
        _OPEN.format(number) for number in (0, 1, 2)
    )
    seen = podman.run(script, [f"{specs.vendor}/claim=a"], ["--cap-add", "MKNOD"])
    granted, beside, same = seen.output.split(";")[:3]
    assert granted.count(_ENXIO) == same.count(_ENXIO) == 2, seen
    assert beside.count(_EPERM) == 2, seen


def test_bc064_a_user_other_than_root_opens_a_node_of_mode_666(podman: Any, specs: Any, free_major: FreeMajor) -> None:
    node = _node(free_major("c"), 3, file_mode=0o666, uid=0, gid=0)
    closed = _node(free_major("c"), 4, "/dev/neuron1", file_mode=0o600, uid=0, gid=0)
    specs.put(_spec(specs.vendor, a=ContainerEdits(device_nodes=(node, closed))))
    script = _OPEN.format(0) + _OPEN.format(1)
    seen = podman.run(script, [f"{specs.vendor}/claim=a"], ["--user", "1000:1000"])
    opened, refused = seen.output.split(";")[:2]
    assert opened.count(_ENXIO) == 2, seen
    assert refused.count("Permission denied") == 2, seen


def test_mounts_are_made_in_order_of_depth(podman: Any, specs: Any, tmp_path: Path) -> None:
    for name in ("upper", "lower", "first"):
        (tmp_path / name / "inner").mkdir(parents=True)
        (tmp_path / name / "told").write_text(name)
    bind = {"options": ("ro", "rbind"), "type": "bind"}
    mounts = [("lower", "/tmp/data/inner"), ("first", "/tmp/data"), ("upper", "/tmp/data")]
    made = tuple(
        Mount.model_validate({"host_path": str(tmp_path / name), "container_path": path, **bind})
        for name, path in mounts
    )
    specs.put(_spec(specs.vendor, a=ContainerEdits(mounts=made)))
    name = f"{specs.vendor}/claim=a"
    seen = podman.run("cat /tmp/data/told /tmp/data/inner/told", [name])
    assert seen.output == "upperlower", seen.error
    assert [one["source"] for one in apply({}, [name], load())["mounts"]] == [
        str(tmp_path / "upper"),
        str(tmp_path / "lower"),
    ]


def test_hooks_run_and_podman_runs_those_of_a_repeated_name_twice(podman: Any, specs: Any, tmp_path: Path) -> None:
    """The one place where podman and containerd differ from each other on repeated names."""
    log = tmp_path / "log"
    hook = Hook(hook_name="createRuntime", path="/bin/sh", args=("sh", "-c", f"echo ran >> {log}"))
    specs.put(_spec(specs.vendor, a=ContainerEdits(env=("X=1",), hooks=(hook,))))
    name = f"{specs.vendor}/claim=a"
    assert podman.run("true", [name]).status == 0
    assert log.read_text() == "ran\n"
    assert podman.run("true", [name, name]).status == 0
    assert log.read_text() == "ran\n" * 3
