"""Which devices podman resolves, beside what `cdi.registry` and `cdi.validate` say."""

import json
from typing import Any

import pytest

from cdi.errors import CdiError
from cdi.models import ContainerEdits, Device, Spec
from cdi.registry import Registry, load

pytestmark = pytest.mark.runtime

_PODMAN_NEWEST = "0.5.0"


def _spec(vendor: str, value: str) -> Spec:
    device = Device(name="dev", container_edits=ContainerEdits(env=(f"X={value}",)))
    return Spec(cdi_version="0.5.0", kind=f"{vendor}/claim", devices=(device,))


def _registry() -> Registry:
    return load(newest=_PODMAN_NEWEST)


# files in the order in which they are put: (in /etc/cdi?, value of X, or broken content); what resolves
_SCENARIOS: dict[str, tuple[list[tuple[bool, str]], str | None]] = {
    "one file": ([(False, "1")], "1"),
    "one file in etc": ([(True, "1")], "1"),
    "run shadows etc": ([(True, "low"), (False, "high")], "high"),
    "conflict in run": ([(False, "1"), (False, "2")], None),
    "conflict of equal files": ([(False, "1"), (False, "1")], None),
    "conflict in etc": ([(True, "1"), (True, "2")], None),
    "conflict in etc is not healed by run": ([(True, "1"), (True, "2"), (False, "3")], None),
    "conflict in run is not healed by etc": ([(True, "1"), (False, "2"), (False, "3")], None),
    "broken file beside": ([(False, "{"), (False, "1")], "1"),
    "empty file beside": ([(False, ""), (False, "1")], "1"),
    "broken file only": ([(False, "{")], None),
    "nothing": ([], None),
}


@pytest.mark.parametrize("name", _SCENARIOS)
def test_resolution_is_that_of_podman(podman: Any, specs: Any, name: str) -> None:
    files, expected = _SCENARIOS[name]
    for etc, value in files:
        specs.put(value if value in ("", "{") else _spec(specs.vendor, value), etc=etc)
    device = f"{specs.vendor}/claim=dev"
    seen = podman.look([device])
    assert (seen.env.get("X") if seen.status == 0 else None) == expected, seen.error
    registry = _registry()
    if expected is None:
        assert f"unresolvable CDI devices {device}" in seen.error
        assert (specs.vendor in registry.why(device)) is bool(files)
        assert registry.why(device) != ""
    else:
        assert registry.resolve(device).device.container_edits.env == (f"X={expected}",)


@pytest.mark.parametrize(
    ("suffix", "read"),
    [(".json", True), (".yaml", True), (".conf", False), (".json.tmp", False), (".yml", False)],
)
def test_which_files_are_read(podman: Any, specs: Any, suffix: str, *, read: bool) -> None:
    specs.put(_spec(specs.vendor, "1"), suffix=suffix)
    device = f"{specs.vendor}/claim=dev"
    assert (podman.look([device]).status == 0) is read
    assert (_registry().why(device) == "") is read


def test_dot_files_are_read_so_a_temporary_file_needs_another_suffix(podman: Any, specs: Any) -> None:
    path = specs.put(_spec(specs.vendor, "1"))
    hidden = path.rename(path.with_name(f".{path.name}"))
    try:
        device = f"{specs.vendor}/claim=dev"
        assert podman.look([device]).env["X"] == "1"
        assert _registry().why(device) == ""
    finally:
        hidden.unlink()


def _document(vendor: str, changes: dict[str, Any], **edits: Any) -> str:
    device = {"name": "dev", "containerEdits": edits or {"env": ["X=1"]}}
    return json.dumps({"cdiVersion": "0.5.0", "kind": f"{vendor}/claim", "devices": [device], **changes})


_NODE = {"path": "/dev/a", "type": "c", "major": 245}
_DEVICE = {"name": "dev", "containerEdits": {"env": ["X=1"]}}

# What both refuse: changes of the document, edits of the device.
_REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "version 0.6.0": ({"cdiVersion": "0.6.0"}, {}),
    "version 9.9.9": ({"cdiVersion": "9.9.9"}, {}),
    "no version": ({"cdiVersion": ""}, {}),
    "unknown field": ({"unknownField": 1}, {}),
    "unknown field in edits": ({}, {"env": ["X=1"], "unknownField": 1}),
    "unknown field in node": ({}, {"deviceNodes": [{**_NODE, "unknownField": 1}]}),
    "snake case": ({}, {"deviceNodes": [{**_NODE, "host_path": "/dev/b"}]}),
    "no devices": ({"devices": []}, {}),
    "empty edits": ({"devices": [{"name": "dev", "containerEdits": {}}]}, {}),
    "one name twice": ({"devices": [_DEVICE, _DEVICE]}, {}),
    "bad device name beside": ({"devices": [_DEVICE, {**_DEVICE, "name": "-bad"}]}, {}),
    "env without =": ({}, {"env": ["X=1", "oops"]}),
    "env without a name": ({}, {"env": ["=1"]}),
    "bad permissions": ({}, {"deviceNodes": [{**_NODE, "permissions": "rwx"}]}),
    "bad device type": ({}, {"deviceNodes": [{**_NODE, "type": "x"}]}),
    "node without a path": ({}, {"deviceNodes": [{"type": "c", "major": 245}]}),
    "bad hook name": ({}, {"hooks": [{"hookName": "lunch", "path": "/h"}]}),
    "hook without a path": ({}, {"hooks": [{"hookName": "prestart", "path": ""}]}),
    "mount without a source": ({}, {"mounts": [{"hostPath": "", "containerPath": "/a"}]}),
    "mount without a target": ({}, {"mounts": [{"hostPath": "/a", "containerPath": ""}]}),
    "number as text": ({}, {"deviceNodes": [{**_NODE, "minor": "1"}]}),
    "env is no list": ({}, {"env": "X=1"}),
    "annotations": ({"annotations": {"a": "b"}}, {}),
    "gids": ({}, {"env": ["X=1"], "additionalGids": [5]}),
}

# What both take.
_TAKEN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "0.3.0": ({"cdiVersion": "0.3.0"}, {}),
    "0.4.0": ({"cdiVersion": "0.4.0"}, {}),
    "0.5.0": ({}, {}),
    "nulls": ({"containerEdits": None}, {"env": ["X=1"], "deviceNodes": None, "mounts": None}),
    "null mode": ({}, {"deviceNodes": [{**_NODE, "fileMode": None, "uid": None}]}),
    "empty texts": ({}, {"deviceNodes": [{**_NODE, "hostPath": "", "permissions": ""}]}),
    "names": ({"devices": [_DEVICE, {**_DEVICE, "name": "0"}, {**_DEVICE, "name": "a:b.c-d_e"}]}, {}),
    "value with =": ({}, {"env": ["X=a=b", "Y="]}),
}

# What podman takes at reading and `cdi.validate` refuses all the same: containerd refuses old versions
# and fields that are newer than the declared one; the rest fails only when the container starts.
_STRICTER: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "0.2.0": ({"cdiVersion": "0.2.0"}, {}),
    "digit first in 0.4.0": ({"cdiVersion": "0.4.0", "devices": [_DEVICE, {**_DEVICE, "name": "0"}]}, {}),
    "hostPath in 0.4.0": ({"cdiVersion": "0.4.0"}, {"deviceNodes": [{**_NODE, "hostPath": "/dev/b"}]}),
    "mount type in 0.3.0": (
        {"cdiVersion": "0.3.0"},
        {"mounts": [{"hostPath": "/tmp", "containerPath": "/b", "type": "bind"}]},
    ),
    "relative node path": ({}, {"deviceNodes": [{**_NODE, "path": "dev/a"}]}),
    "relative mount target": ({}, {"mounts": [{"hostPath": "/tmp", "containerPath": "a"}]}),
    "relative mount source": ({}, {"mounts": [{"hostPath": "tmp", "containerPath": "/a"}]}),
    "negative timeout": ({}, {"hooks": [{"hookName": "prestart", "path": "/h", "timeout": -1}]}),
}

_TABLES = {"refused": _REFUSED, "taken": _TAKEN, "stricter": _STRICTER}
_CASES = [(table, case) for table, cases in _TABLES.items() for case in cases]


@pytest.mark.parametrize(("table", "case"), _CASES, ids=lambda text: text)
def test_validation_agrees_with_podman(podman: Any, specs: Any, table: str, case: str) -> None:
    changes, edits = _TABLES[table][case]
    specs.put(_document(specs.vendor, changes, **edits))
    device = f"{specs.vendor}/claim=dev"
    seen = podman.look([device])
    assert (f"unresolvable CDI devices {device}" in seen.error) is (table == "refused"), seen.error
    assert (_registry().why(device) == "") is (table == "taken")
    if table == "taken":
        assert seen.status == 0, seen.error


@pytest.mark.parametrize("kind", ["{vendor}/c", "v/claim"])
def test_podman_panics_on_one_character_which_is_why_it_is_refused(podman: Any, specs: Any, kind: str) -> None:
    kind = kind.format(vendor=specs.vendor)
    specs.put(_spec(specs.vendor, "1").model_copy(update={"kind": kind}))
    seen = podman.look([f"{kind}=dev"])
    assert "panic: runtime error" in seen.error
    with pytest.raises(CdiError, match="two characters or more"):
        _registry().resolve(f"{kind}=dev")


def test_podman_never_tells_the_reason_and_the_registry_does(podman: Any, specs: Any) -> None:
    path = specs.put(_document(specs.vendor, {}, env=["X=1", "oops"]))
    device = f"{specs.vendor}/claim=dev"
    error = podman.look([device]).error
    assert "oops" not in error
    assert path.name not in error
    assert _registry().why(device) == (
        f"defined, but not validly: {path} (devices[0].containerEdits.env[1]: 'oops' is not NAME=value)"
    )
