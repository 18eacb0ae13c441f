"""Every rule of validation: what breaks it, and the path in the fault."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from cdi import validate
from cdi.errors import InvalidSpecError
from cdi.models import Spec
from cdi.read import from_document

_NODE = {"path": "/dev/a", "hostPath": "/dev/b", "type": "c", "major": 245, "minor": 0, "permissions": "rw"}
_MOUNT = {"hostPath": "/a", "containerPath": "/b", "options": ["ro", "bind"], "type": "bind"}
_HOOK = {"hookName": "createContainer", "path": "/bin/h", "args": ["h"], "env": ["A=b"], "timeout": 3}
_FULL: dict[str, Any] = {
    "cdiVersion": "0.5.0",
    "kind": "vendor.com/class",
    "containerEdits": {"env": ["S=1"]},
    "devices": [
        {"name": "first", "containerEdits": {"env": ["X=1"]}},
        {
            "name": "0second",
            "containerEdits": {
                "env": ["X=1", "Y=", "Z=a=b"],
                "deviceNodes": [_NODE],
                "mounts": [_MOUNT],
                "hooks": [_HOOK],
            },
        },
    ],
}
_EDITS = "devices[1].containerEdits"


def _changed(path: str, value: Any) -> dict[str, Any]:
    """The full document with the field at `path` set (or removed, for `...`)."""
    document = copy.deepcopy(_FULL)
    keys = [int(key) if key.isdigit() else key for key in re.findall(r"[A-Za-z_]+|\d+", path)]
    part: Any = document
    for key in keys[:-1]:
        part = part[key]
    if value is ...:
        del part[keys[-1]]
    else:
        part[keys[-1]] = value
    return document


def _paths(document: dict[str, Any], **options: str) -> list[str]:
    return [fault.path for fault in validate.faults(from_document(document), **options)]


def test_the_full_document_is_valid() -> None:
    assert validate.faults(from_document(_FULL)) == ()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("cdiVersion", "0.2.0"),
        ("cdiVersion", "1.2.0"),
        ("cdiVersion", "9.9.9"),
        ("cdiVersion", "v0.5.0"),
        ("cdiVersion", ""),
        ("kind", "vendor.com"),
        ("kind", "vendor.com/c"),
        ("kind", "9vendor.com/class"),
        ("kind", "vendor.com/class/more"),
        ("devices[1].name", ""),
        ("devices[1].name", "a/b"),
        ("devices[0].name", "-a"),
        ("devices[0].containerEdits", {}),
        ("devices[0].containerEdits", None),
        ("devices[0].unknownField", 1),
        ("unknownField", 1),
        ("containerEdits.unknownField", 1),
        (f"{_EDITS}.unknownField", 1),
        (f"{_EDITS}.env[1]", "NOVALUE"),
        (f"{_EDITS}.env[0]", "=value"),
        ("containerEdits.env[0]", ""),
        (f"{_EDITS}.deviceNodes[0].path", ""),
        (f"{_EDITS}.deviceNodes[0].path", "dev/a"),
        (f"{_EDITS}.deviceNodes[0].hostPath", "dev/a"),
        (f"{_EDITS}.deviceNodes[0].type", "x"),
        (f"{_EDITS}.deviceNodes[0].permissions", "rwx"),
        (f"{_EDITS}.deviceNodes[0].permissions", "none"),
        (f"{_EDITS}.deviceNodes[0].major", -1),
        (f"{_EDITS}.deviceNodes[0].minor", 2**32),
        (f"{_EDITS}.deviceNodes[0].fileMode", -1),
        (f"{_EDITS}.deviceNodes[0].uid", -1),
        (f"{_EDITS}.deviceNodes[0].gid", 2**32),
        (f"{_EDITS}.deviceNodes[0].unknownField", 1),
        (f"{_EDITS}.mounts[0].hostPath", ""),
        (f"{_EDITS}.mounts[0].hostPath", "a"),
        (f"{_EDITS}.mounts[0].containerPath", ""),
        (f"{_EDITS}.mounts[0].containerPath", "b"),
        (f"{_EDITS}.mounts[0].unknownField", 1),
        (f"{_EDITS}.hooks[0].hookName", "beforeLunch"),
        (f"{_EDITS}.hooks[0].path", "h"),
        (f"{_EDITS}.hooks[0].env[0]", "NOVALUE"),
        (f"{_EDITS}.hooks[0].timeout", 0),
        (f"{_EDITS}.hooks[0].unknownField", 1),
    ],
)
def test_one_wrong_field_is_one_fault_at_its_path(path: str, value: Any) -> None:
    assert _paths(_changed(path, value)) == [path]


def test_no_devices() -> None:
    assert _paths(_changed("devices", [])) == ["devices"]
    assert _paths(_changed("devices", ...)) == ["devices"]


def test_one_name_twice_is_told_at_both_places() -> None:
    document = _changed("devices[1].name", "first")
    assert _paths(document) == ["devices[0].name", "devices[1].name"]


def test_all_faults_at_once_each_readable_alone() -> None:
    document = _changed("kind", "bad")
    document["devices"][0]["containerEdits"]["env"] = ["A=1", "oops"]
    document["devices"][1]["containerEdits"]["hooks"][0]["path"] = ""
    with pytest.raises(InvalidSpecError) as caught:
        validate.check(from_document(document), source="/var/run/cdi/x.json")
    assert [str(fault) for fault in caught.value.faults] == [
        "kind: 'bad' is not <vendor>/<class>",
        "devices[0].containerEdits.env[1]: 'oops' is not NAME=value",
        "devices[1].containerEdits.hooks[0].path: must not be empty",
    ]
    assert str(caught.value).startswith("CDI spec /var/run/cdi/x.json is not valid: kind: ")


def test_a_mount_that_is_no_bind_may_have_any_source() -> None:
    document = _changed(f"{_EDITS}.mounts[0]", {**_MOUNT, "type": "tmpfs", "hostPath": "tmpfs"})
    assert _paths(document) == []


# feature, the version that brought it, where
_FEATURES: list[tuple[str, str, str, Any]] = [
    ("mount type", "0.4.0", f"{_EDITS}.mounts[0].type", "bind"),
    ("hostPath", "0.5.0", f"{_EDITS}.deviceNodes[0].hostPath", "/dev/b"),
    ("digit first", "0.5.0", "devices[1].name", "0second"),
    ("annotations", "0.6.0", "annotations", {"a": "b"}),
    ("device annotations", "0.6.0", "devices[0].annotations", {"a": "b"}),
    ("dot in class", "0.6.0", "kind", "vendor.com/cla.ss"),
    ("gids", "0.7.0", f"{_EDITS}.additionalGids", [44]),
    ("intelRdt", "0.7.0", f"{_EDITS}.intelRdt", {"closID": "x"}),
    ("netDevices", "1.1.0", f"{_EDITS}.netDevices", [{"hostInterfaceName": "a", "name": "b"}]),
    ("netDevices of the spec", "1.1.0", "containerEdits.netDevices", []),
]


@pytest.fixture
def plain() -> Callable[[str, Any], dict[str, Any]]:
    """The full document without anything newer than 0.3.0, then one field set."""

    def make(path: str, value: Any) -> dict[str, Any]:
        document = _changed(path, value)
        second = document["devices"][1]
        if path != "devices[1].name":
            second["name"] = "second"
        for field, key, part in (("hostPath", "deviceNodes", 0), ("type", "mounts", 0)):
            if path != f"{_EDITS}.{key}[0].{field}":
                del second["containerEdits"][key][part][field]
        return document

    return make


@pytest.mark.parametrize(
    ("version", "path", "value"), [one[1:] for one in _FEATURES], ids=[one[0] for one in _FEATURES]
)
def test_a_field_newer_than_the_declared_version_is_refused(
    plain: Callable[[str, Any], dict[str, Any]], version: str, path: str, value: Any
) -> None:
    document = plain(path, value)
    before = validate.VERSIONS[validate.VERSIONS.index(version) - 1]
    (fault,) = validate.faults(from_document({**document, "cdiVersion": before}))
    assert fault.path == path
    assert f"needs cdiVersion {version}, the spec says {before}" in fault.message
    assert _paths({**document, "cdiVersion": version}) == []
    assert validate.minimum_version(from_document(document)) == version


def test_the_plain_document_needs_the_oldest_version_only(
    plain: Callable[[str, Any], dict[str, Any]],
) -> None:
    assert validate.minimum_version(from_document(plain("kind", "vendor.com/class"))) == "0.3.0"


def test_a_reader_that_stops_at_an_older_version() -> None:
    """podman 4.3 takes nothing above 0.5.0, even if nothing new is used."""
    document = _changed("cdiVersion", "0.6.0")
    assert _paths(document) == []
    assert _paths(document, newest="0.5.0") == ["cdiVersion"]
    assert _paths(_FULL, newest="0.5.0") == []


def test_check_gives_back_the_spec(spec: Spec) -> None:
    assert validate.check(spec) is spec
