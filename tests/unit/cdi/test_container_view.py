"""What a container sees: specs on disk to the facts a demonstration shows."""

from pathlib import Path
from typing import Any

import pytest

from cdi.errors import UnresolvableError
from cdi.models import ContainerEdits, Device, DeviceNode, Spec
from cdi.write import write
from dra_driver.simulator.container import BASE_SPEC, SeenNode, see


def _put(directory: Path, name: str, *nodes: DeviceNode, env: tuple[str, ...] = ()) -> str:
    edits = ContainerEdits(env=env, device_nodes=nodes)
    kind = "acc.example.com/claim"
    device = Device(name=name, container_edits=edits)
    write(Spec(cdi_version="0.5.0", kind=kind, devices=(device,)), directory / f"{name}.json")
    return f"{kind}={name}"


def _node(number: int, host: int, permissions: str = "rw") -> DeviceNode:
    return DeviceNode(
        path=f"/dev/neuron{number}",
        host_path=f"/dev/neuron{host}",
        type="c",
        major=245,
        minor=host,
        file_mode=0o666,
        permissions=permissions,
    )


def test_a_container_sees_renamed_nodes_and_its_environment(tmp_path: Path) -> None:
    name = _put(tmp_path, "a", _node(0, 4), _node(1, 5), env=("NEURON_RT_VISIBLE_CORES=0-1",))
    view = see([name], cdi_dirs=[tmp_path])
    assert view.nodes == (
        SeenNode("/dev/neuron0", "/dev/neuron4", "c", 245, 4, "rw", 0o666),
        SeenNode("/dev/neuron1", "/dev/neuron5", "c", 245, 5, "rw", 0o666),
    )
    assert view.env == (("PATH", "/usr/bin:/bin"), ("NEURON_RT_VISIBLE_CORES", "0-1"))
    assert view.variable("NEURON_RT_VISIBLE_CORES") == "0-1"
    assert view.variable("HOME") is None


def test_no_devices_is_a_container_without_any() -> None:
    view = see([], cdi_dirs=[])
    assert view.nodes == ()
    assert view.env == (("PATH", "/usr/bin:/bin"),)


def test_nodes_are_in_counting_order(tmp_path: Path) -> None:
    name = _put(tmp_path, "a", *(_node(number, number) for number in (10, 2, 0, 11, 1)))
    paths = [node.path for node in see([name], cdi_dirs=[tmp_path]).nodes]
    assert paths == [f"/dev/neuron{number}" for number in (0, 1, 2, 10, 11)]


def test_permissions_are_what_all_rules_together_give(tmp_path: Path) -> None:
    names = [_put(tmp_path, "a", _node(0, 0, "r")), _put(tmp_path, "b", _node(0, 0, "w"))]
    assert [node.permissions for node in see(names, cdi_dirs=[tmp_path]).nodes] == ["rw"]
    assert [node.permissions for node in see(names[:1], cdi_dirs=[tmp_path]).nodes] == ["r"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], "r"),
        ([{"allow": False, "access": "rwm"}, {"allow": True, "type": "c", "access": "m"}], "rm"),
        ([{"allow": True, "type": "b", "access": "w"}], "r"),
        ([{"allow": True, "type": "a", "access": "w"}], "rw"),
        ([{"allow": True, "type": "c", "major": 245, "minor": -1}], "rwm"),
        ([{"allow": True, "type": "c", "major": 246, "minor": 0}], "r"),
        ([{"allow": True, "major": 245}, {"allow": False, "type": "c", "minor": 0, "access": "w"}], "rm"),
    ],
)
def test_rules_of_the_base_count_in_their_order(tmp_path: Path, rules: list[dict[str, Any]], expected: str) -> None:
    name = _put(tmp_path, "a", _node(0, 0, "r"))
    base = {**BASE_SPEC, "linux": {"resources": {"devices": rules}}}
    (node,) = see([name], cdi_dirs=[tmp_path], base=base).nodes
    assert node.permissions == expected


def test_a_pods_own_variable_loses(tmp_path: Path) -> None:
    """BC-076: what image or pod ask for doesn't count against the grant."""
    name = _put(tmp_path, "a", env=("NEURON_RT_VISIBLE_CORES=1",))
    base = {"process": {"env": ["NEURON_RT_VISIBLE_CORES=0-31", "HOME=/root"]}}
    view = see([name], cdi_dirs=[tmp_path], base=base)
    assert view.env == (("NEURON_RT_VISIBLE_CORES", "1"), ("HOME", "/root"))


def test_an_id_without_a_spec_is_told_with_its_reason(tmp_path: Path) -> None:
    """BC-053: the spec went with the tmpfs."""
    name = _put(tmp_path, "a", env=("X=1",))
    (tmp_path / "a.json").unlink()
    with pytest.raises(UnresolvableError, match=r"acc.example.com/claim=a \(no spec in .* defines it\)"):
        see([name], cdi_dirs=[tmp_path])


def test_the_base_is_not_touched(tmp_path: Path) -> None:
    before = repr(BASE_SPEC)
    see([_put(tmp_path, "a", _node(0, 0), env=("X=1",))], cdi_dirs=[tmp_path])
    assert repr(BASE_SPEC) == before
