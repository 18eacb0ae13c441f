"""Reading and writing the models: tolerant in, stable out."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cdi import validate
from cdi.errors import InvalidSpecError
from cdi.models import ContainerEdits, Device, DeviceNode, Hook, Mount, Spec
from cdi.read import from_document, parse, parse_yaml, read

_TEXTS = st.text(max_size=8)
_NUMBERS = st.none() | st.integers(0, 2**32 - 1)
_NODES = st.builds(
    DeviceNode,
    path=_TEXTS,
    host_path=_TEXTS,
    type=st.sampled_from(["", "c", "b", "p"]),
    major=_NUMBERS,
    minor=_NUMBERS,
    file_mode=_NUMBERS,
    permissions=st.sampled_from(["", "r", "rw", "rwm"]),
    uid=_NUMBERS,
    gid=_NUMBERS,
)
_LISTS = st.lists(_TEXTS, max_size=3)
_MOUNTS = st.builds(Mount, host_path=_TEXTS, container_path=_TEXTS, options=_LISTS, type=_TEXTS)
_HOOKS = st.builds(Hook, hook_name=_TEXTS, path=_TEXTS, args=_LISTS, env=_LISTS, timeout=_NUMBERS)
_EDITS = st.builds(
    ContainerEdits,
    env=_LISTS,
    device_nodes=st.lists(_NODES, max_size=2),
    mounts=st.lists(_MOUNTS, max_size=2),
    hooks=st.lists(_HOOKS, max_size=2),
    additional_gids=st.lists(st.integers(0, 9), max_size=2),
)
_SPECS = st.builds(
    Spec,
    cdi_version=_TEXTS,
    kind=_TEXTS,
    devices=st.lists(st.builds(Device, name=_TEXTS, container_edits=_EDITS), max_size=2),
    container_edits=_EDITS,
)


@given(_SPECS)
def test_a_spec_written_and_read_is_the_same_spec(spec: Spec) -> None:
    content = spec.to_json()
    assert parse(content) == spec
    assert parse(content).to_json() == content


@given(_SPECS)
def test_any_content_validates_to_faults_and_never_raises(spec: Spec) -> None:
    found = validate.faults(spec)
    assert all(fault.path and fault.message for fault in found)


def test_golden_bytes(spec: Spec) -> None:
    edits = (
        '{"deviceNodes":[{"fileMode":438,"hostPath":"/dev/acc7","major":245,"minor":7,'
        '"path":"/dev/acc0","permissions":"rw","type":"c"}],"env":["CORES=0-1"]}'
    )
    devices = ",".join(f'{{"containerEdits":{edits},"name":"0-{letter}"}}' for letter in "ab")
    expected = f'{{"cdiVersion":"0.5.0","devices":[{devices}],"kind":"acc.example.com/claim"}}\n'
    assert spec.to_json() == expected.encode()


def test_key_order_of_the_source_does_not_show(document: Any) -> None:
    forward = document()
    backward = dict(reversed(list(forward.items())))
    assert from_document(forward).to_json() == from_document(backward).to_json()


def test_number_zero_is_written_but_nothing_is_not() -> None:
    node = DeviceNode(path="/dev/a", type="c", major=245, minor=0, uid=0)
    edits = ContainerEdits(device_nodes=(node,))
    spec = Spec(cdi_version="0.5.0", kind="vendor/class", devices=(Device(name="a", container_edits=edits),))
    (written,) = json.loads(spec.to_json())["devices"][0]["containerEdits"]["deviceNodes"]
    assert written == {"path": "/dev/a", "type": "c", "major": 245, "minor": 0, "uid": 0}


def test_fields_of_later_versions_are_kept_at_every_level(document: Any) -> None:
    later = document(
        cdiVersion="2.0.0",
        future={"x": [1, None]},
        containerEdits={"netDevices": [{"hostInterfaceName": "eth1", "name": "net1"}]},
        devices=[
            {
                "name": "dev",
                "colour": "red",
                "containerEdits": {
                    "deviceNodes": [{"path": "/dev/a", "speed": 9}],
                    "mounts": [{"hostPath": "/a", "containerPath": "/b", "id": "m"}],
                    "hooks": [{"hookName": "prestart", "path": "/h", "user": "me"}],
                },
            }
        ],
    )
    spec = from_document(later)
    assert json.loads(spec.to_json()) == later
    assert spec.unknown == {"future": {"x": [1, None]}}


def test_null_is_the_same_as_absent(document: Any) -> None:
    """Go writes nil slices and maps as null (BC-132 in the other direction)."""
    nulls = {"env": None, "deviceNodes": None, "mounts": None, "hooks": None, "additionalGids": None}
    device = {"name": "dev", "annotations": None, "containerEdits": {**nulls, "env": ["X=1"]}}
    spec = from_document(document(devices=[device], containerEdits=None, annotations=None))
    assert spec == from_document(document())
    assert from_document(document(devices=None)).devices == ()


def test_snake_case_is_for_python_only(document: Any) -> None:
    """In a file it is an unknown field, as it is for the runtimes."""
    node = {"path": "/dev/a", "host_path": "/dev/b"}
    spec = from_document(document(devices=[{"name": "d", "containerEdits": {"deviceNodes": [node]}}]))
    assert spec.devices[0].container_edits.device_nodes[0].host_path == ""
    (fault,) = validate.faults(spec)
    assert fault.path == "devices[0].containerEdits.deviceNodes[0].host_path"


@pytest.mark.parametrize(
    ("node", "path"),
    [
        ({"path": "/dev/a", "major": "1"}, "major"),
        ({"path": "/dev/a", "major": 1.0}, "major"),
        ({"path": "/dev/a", "minor": True}, "minor"),
        ({"path": 5}, "path"),
        ({"major": 1}, "path"),
        ({"path": "/dev/a", "fileMode": "0666"}, "fileMode"),
    ],
)
def test_types_are_strict_and_the_field_is_named(document: Any, node: Any, path: str) -> None:
    device = {"name": "d", "containerEdits": {"deviceNodes": [{"path": "/dev/ok"}, node]}}
    with pytest.raises(InvalidSpecError) as caught:
        from_document(document(devices=[device]), source="here.json")
    (fault,) = caught.value.faults
    assert fault.path == f"devices[0].containerEdits.deviceNodes[1].{path}"
    assert "here.json" in str(caught.value)


def test_all_type_faults_are_told_at_once(document: Any) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        from_document(document(kind=1, devices=[{"name": None}, {"name": 2}, 3]))
    assert [fault.path for fault in caught.value.faults] == ["kind", "devices[1].name", "devices[2]"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"devices": {"name": "d"}}, "devices: must be a list"),
        ({"devices": ["d"]}, "devices[0]: must be an object"),
        ({"annotations": []}, "annotations: must be an object"),
        ({"devices": [{"containerEdits": {"env": "X=1"}, "name": "d"}]}, "env: must be a list"),
        ({"devices": [{"containerEdits": {"env": ["X=1"]}}]}, "devices[0].name: is missing"),
        ({"containerEdits": 5}, "containerEdits: must be an object"),
    ],
)
def test_type_faults_are_told_in_the_words_of_the_file(document: Any, changes: Any, text: str) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        from_document(document(**changes))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "not JSON"),
        (b'{"cdiVersion":"0.5.0","kind', "not JSON"),
        (b"[]", "must be an object, is a list"),
        (b"null", "must be an object, is empty"),
        (b"\xff\xfe\xfd", "not JSON"),
        (b'{"cdiVersion":"0.5.0","kind":"v1/c1","kind":"v2/c2"}', "key 'kind' stands twice"),
        (b'{"cdiVersion":NaN}', "NaN is no JSON value"),
        (b"[" * 200_000, "not JSON"),
    ],
)
def test_what_is_not_json(content: bytes, text: str) -> None:
    with pytest.raises(InvalidSpecError, match=text) as caught:
        parse(content, source="/etc/cdi/x.json")
    assert caught.value.source == "/etc/cdi/x.json"


_YAML = b"""
cdiVersion: 0.5.0
kind: vendor.com/class
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - {path: /dev/a, type: c, major: 245, minor: 0, fileMode: 0666}
"""


def test_yaml_reads_as_json_does(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(_YAML)
    spec = read(path)
    assert spec.devices[0].container_edits.device_nodes[0].file_mode == 0o666
    assert validate.faults(spec) == ()
    assert parse(spec.to_json()) == spec


@pytest.mark.parametrize("content", [b"a: [", b"\x00", b"--- 2026-01-01", b"kind: !!python/object:os.system {}"])
def test_yaml_that_is_no_spec(content: bytes) -> None:
    with pytest.raises(InvalidSpecError):
        parse_yaml(content)


def test_without_pyyaml_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(InvalidSpecError, match="PyYAML is not installed"):
        parse_yaml(_YAML)


def test_models_are_frozen(spec: Spec) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        spec.kind = "other/kind"
    with pytest.raises(AttributeError):
        spec.devices[0].container_edits.env.append("X=1")  # type: ignore[attr-defined]


def test_empty_edits() -> None:
    assert ContainerEdits().empty
    assert not ContainerEdits(env=("X=1",)).empty
    assert not from_document(
        {"cdiVersion": "1.1.0", "kind": "a1/b1", "containerEdits": {"intelRdt": {}}}
    ).container_edits.empty
