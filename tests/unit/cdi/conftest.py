"""Specs and directories for the tests of the CDI library."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdi.models import ContainerEdits, Device, DeviceNode, Spec

MakeDocument = Callable[..., dict[str, Any]]
Put = Callable[..., Path]


@pytest.fixture
def spec() -> Spec:
    """A claim's spec as a driver writes it: two devices, each with the whole of the edits."""
    edits = ContainerEdits(
        env=("CORES=0-1",),
        device_nodes=(
            DeviceNode(
                path="/dev/acc0",
                host_path="/dev/acc7",
                type="c",
                major=245,
                minor=7,
                file_mode=0o666,
                permissions="rw",
            ),
        ),
    )
    devices = (Device(name="0-a", container_edits=edits), Device(name="0-b", container_edits=edits))
    return Spec(cdi_version="0.5.0", kind="acc.example.com/claim", devices=devices)


@pytest.fixture
def document() -> MakeDocument:
    """Make a minimal valid document; keywords replace its top-level fields."""

    def make(**changes: Any) -> dict[str, Any]:
        base: dict[str, Any] = {
            "cdiVersion": "0.5.0",
            "kind": "vendor.com/class",
            "devices": [{"name": "dev", "containerEdits": {"env": ["X=1"]}}],
        }
        return {**base, **changes}

    return make


@pytest.fixture
def put(tmp_path: Path, document: MakeDocument) -> Put:
    """Put a file into a directory: `put("run", "a.json", device="d", value="1")` or with content."""

    def write(directory: str, name: str, *, device: str = "dev", value: str = "1", content: str | None = None) -> Path:
        path = tmp_path / directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        devices = [{"name": device, "containerEdits": {"env": [f"X={value}"]}}]
        path.write_text(json.dumps(document(devices=devices)) if content is None else content)
        return path

    return write
