"""`coreslice machine`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.simulator.machines import make_machine, make_unreadable

Call = Callable[..., int]
Captured = pytest.CaptureFixture[str]


def test_list(call: Call, capsys: Captured) -> None:
    assert call("machine", "list") == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["SIZE", "CHIPS", "CORES/CHIP", "MEMORY/CHIP", "FAMILY"]
    assert row.split() == ["trn1.2xlarge", "1", "2", "32", "GiB", "Trainium1"]


def test_list_for_machines(call: Call, capsys: Captured) -> None:
    assert call("machine", "list", "-o", "json") == 0
    [size] = json.loads(capsys.readouterr().out)
    assert (size["name"], size["memoryPerChip"]) == ("trn1.2xlarge", 34359738368)


def test_make_then_show(call: Call, capsys: Captured, tmp_path: Path) -> None:
    assert call("machine", "make", "trn1.2xlarge", tmp_path / "m") == 0
    hint = capsys.readouterr().out.splitlines()[1].split()
    assert hint[:3] == ["coreslice", "machine", "show"]
    assert call(*hint[1:]) == 0
    out = capsys.readouterr().out
    assert "trn1.2xlarge, kernel driver 2.30.2.0, 1 usable Neuron chips" in out
    assert "9ff5434815c8bd80" in out
    assert "c 243:0" in out


def test_show_for_machines(call: Call, capsys: Captured, tmp_path: Path) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path)
    roots = ("--sysfs-root", paths.sysfs, "--proc-root", paths.proc)
    assert call("machine", "show", *roots, "-o", "json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["instanceType"], shown["driverVersion"], shown["problems"]) == ("trn1.2xlarge", "2.30.2.0", [])
    [chip] = shown["chips"]
    assert (chip["index"], chip["major"], chip["minor"], chip["physicalCores"]) == (0, 243, 0, 2)


def test_show_says_what_cannot_be_used(call: Call, capsys: Captured, tmp_path: Path) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path)
    make_unreadable(paths, 0)
    assert call("machine", "show", "--sysfs-root", paths.sysfs, "--proc-root", paths.proc) == 1
    assert f"problem: {paths.chip(0)}/core_count can't be read" in capsys.readouterr().out


def test_show_without_a_tree(call: Call, capsys: Captured, tmp_path: Path) -> None:
    assert call("machine", "show", "--sysfs-root", tmp_path / "none") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "coreslice machine show: no sysfs at" in captured.err


def test_make_an_unknown_size(call: Call, capsys: Captured, tmp_path: Path) -> None:
    assert call("machine", "make", "trn9.metal", tmp_path) == 2
    assert "known are: trn1.2xlarge" in capsys.readouterr().err


def test_make_over_a_machine(call: Call, capsys: Captured, tmp_path: Path) -> None:
    make_machine("trn1.2xlarge", tmp_path)
    assert call("machine", "make", "trn1.2xlarge", tmp_path) == 1
    assert "choose an empty folder" in capsys.readouterr().err


def test_make_where_nothing_can_be_written(call: Call, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert call("machine", "make", "trn1.2xlarge", tmp_path / "file") == 1
    assert "can't write" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("machine",), ("machine", "destroy"), ("machine", "make", "trn1.2xlarge")])
def test_wrong_use(call: Call, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        call(*arguments)
