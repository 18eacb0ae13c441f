"""The example in the library's own document runs, and says what its comments say."""

import re
from pathlib import Path
from typing import Any

import pytest

import cdi
from cdi.apply import apply


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(cdi.__file__).parent / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(example, "README.md", "exec"), names)
    registry = names["registry"]
    assert registry.why("acc.example.com/claim=a2") in example
    assert names["write"](names["spec"], tmp_path / "specs" / "acc.example.com-claim_a1.json") is False
    spec = apply({}, ["acc.example.com/claim=a1"], registry)
    assert spec["process"]["env"] == ["ACC_CORES=0-1"]
    assert spec["linux"]["devices"][0]["path"] == "/dev/acc0"


def test_every_module_is_listed() -> None:
    folder = Path(cdi.__file__).parent
    text = (folder / "README.md").read_text()
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert set(re.findall(r"^\| `cdi\.(\w+)` \|", text, re.MULTILINE)) == modules
