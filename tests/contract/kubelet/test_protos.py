"""The checked-in generated code is fresh, and means what the kubelet's own packages mean."""

import importlib
import json
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

ROOT = Path(__file__).parents[3]
API = "dra_driver/kubelet/api"
PROTOS = sorted(path.stem for path in (ROOT / "proto" / API).glob("*.proto"))
KINDS = {
    getattr(FieldDescriptor, f"TYPE_{kind.upper()}"): kind
    for kind in (
        "bool",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "string",
        "bytes",
        "double",
        "float",
        "enum",
        "message",
    )
}


def module(name: str) -> Any:
    return importlib.import_module(f"dra_driver.kubelet.api.{name}_pb2")


def field(descriptor: FieldDescriptor) -> dict[str, Any]:
    described = {
        "number": descriptor.number,
        "kind": KINDS[descriptor.type],
        "label": "repeated" if descriptor.is_repeated else "single",
        "presence": descriptor.has_presence,
    }
    type_ = descriptor.message_type or descriptor.enum_type
    return described | ({"type": type_.full_name} if type_ else {})


def messages(descriptors: list[Descriptor]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for descriptor in descriptors:
        found[descriptor.full_name] = {f.name: field(f) for f in descriptor.fields}
        found |= messages(list(descriptor.nested_types))
    return found


def enums(file: FileDescriptor) -> dict[str, dict[str, int]]:
    found: list[EnumDescriptor] = list(file.enum_types_by_name.values())
    for message in file.message_types_by_name.values():
        found += message.enum_types
    return {enum.full_name: {value.name: value.number for value in enum.values} for enum in found}


def methods(file: FileDescriptor) -> dict[str, dict[str, Any]]:
    return {
        f"/{service.full_name}/{method.name}": {
            "input": method.input_type.full_name,
            "output": method.output_type.full_name,
            "client_streaming": method.client_streaming,
            "server_streaming": method.server_streaming,
        }
        for service in file.services_by_name.values()
        for method in service.methods
    }


def contract(name: str) -> dict[str, Any]:
    file: FileDescriptor = module(name).DESCRIPTOR
    return {
        "package": file.package,
        "messages": messages(list(file.message_types_by_name.values())),
        "enums": enums(file),
        "methods": methods(file),
    }


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if "_pb2" in path.name and path.is_file()}


def test_generated_code_is_not_stale(tmp_path: Path) -> None:
    runpy.run_path(str(ROOT / "proto/generate.py"))["generate"](tmp_path)
    fresh, checked_in = files(tmp_path / API), files(ROOT / API)
    assert sorted(fresh) == sorted(checked_in)
    assert [name for name in fresh if fresh[name] != checked_in[name]] == [], "run `make proto`"


def test_every_contract_has_its_own_file_path() -> None:
    assert len({module(name).DESCRIPTOR.name for name in PROTOS}) == len(PROTOS) == 7


@pytest.fixture(scope="module")
def upstream() -> dict[str, Any]:
    command = ["go", "run", "."]
    run = subprocess.run(command, cwd=ROOT / "tests/go/protocompare", check=True, stdout=subprocess.PIPE)
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


@pytest.mark.go
@pytest.mark.timeout(600)
def test_upstream_knows_the_same_contracts(upstream: dict[str, Any]) -> None:
    assert sorted(upstream) == PROTOS


@pytest.mark.go
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PROTOS)
def test_contract_equals_upstream(name: str, upstream: dict[str, Any]) -> None:
    assert contract(name) == upstream[name]
