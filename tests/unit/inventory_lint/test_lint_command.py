"""`coreslice slices --lint`."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cli.main import main

Wire = dict[str, Any]
MakeSlice = Callable[..., Wire]

YAML = """
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: a}
spec:
  driver: other.example.com
  pool: {name: p, generation: 1, resourceSliceCount: 1}
  nodeName: n
  devices:
  - name: chip-0
    taints: [{key: a, effect: NoSchedule, timeAdded: 2026-01-02T03:04:05Z}]
    capacity: {memory: {value: 16Gi}}
---
apiVersion: v1
kind: ConfigMap
---
"""


def run(*arguments: object) -> int:
    return main(["slices", "--lint", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path, make_slice: MakeSlice) -> Path:
    """One slice with one fault."""
    path = tmp_path / "slices.json"
    path.write_text(json.dumps(make_slice({"name": "Bad"}, driver="other.example.com")))
    return path


def test_good_slices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slices.yaml"
    path.write_text(YAML)
    assert run(path) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "1 slice for Kubernetes 1.37: nothing to say\n"


def test_the_server_s_version_and_gates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slices.yaml"
    path.write_text(YAML)
    assert run(path, "--server-version", "1.35") == 1
    assert "spec.devices[0].taints: dropped" in capsys.readouterr().out
    assert run(path, "--server-version", "1.35", "--feature-gates", "DRADeviceTaints=true") == 0


def test_findings_one_a_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file) == 1
    told = capsys.readouterr()
    assert told.out.startswith("slice-0: spec.devices[0].name: refused: 'Bad' isn't a DNS label")
    assert len(told.out.splitlines()) == 1
    assert told.err == "1 slice for Kubernetes 1.37: 1 refused\n"


def test_our_own_slices_through_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["slices", "--machine", "trn1.32xlarge", "-o", "json"]) == 0
    printed = capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO(printed))
    assert run("-") == 0
    broken = json.loads(printed)
    del broken["items"][-1]["spec"]["devices"][0]["attributes"]["cores"]
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(broken)))
    assert run("-") == 1
    assert "attributes[cores]: harmful" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{}", "kind: Pod", "[1, 2]", "just text"])
def test_files_without_a_slice(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "f"
    path.write_text(text)
    assert run(path) == 1
    assert "no ResourceSlice in" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe\x00", b"a: b: c"])
def test_files_that_are_neither_json_nor_yaml(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f"
    path.write_bytes(content)
    assert run(path) == 2
    assert str(path) in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path / "none") == 2
    assert "can't be read" in capsys.readouterr().err


def test_a_gate_that_the_minor_does_not_have(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(file, "--feature-gates", "DRANothing=true") == 2
    assert "DRANothing" in capsys.readouterr().err


@pytest.mark.parametrize("gates", ["DRADeviceTaints", "DRADeviceTaints=yes", ""])
def test_gates_that_make_no_sense(file: Path, gates: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        run(file, "--feature-gates", gates)
    assert stopped.value.code == 2
