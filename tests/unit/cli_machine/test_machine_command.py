"""`coreslice machine`."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.neuron.catalogue import SIZES
from dra_driver.simulator.faults import FAULTS
from dra_driver.simulator.machines import make_machine, make_unreadable, put

Call = Callable[..., int]
Captured = pytest.CaptureFixture[str]


def test_list(call: Call, capsys: Captured) -> None:
    assert call("machine", "list") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["SIZE", "CHIPS", "CORES/CHIP", "MEMORY/CHIP", "FAMILY", "LINKS", "UNCONFIRMED"]
    assert [row.split()[0] for row in rows] == list(SIZES)
    by_name = {row.split()[0]: row.split()[1:] for row in rows}
    assert by_name["trn1.2xlarge"] == ["1", "2", "32", "GiB", "Trainium1", "single", "-"]
    assert by_name["trn2.48xlarge"] == ["16", "8", "96", "GiB", "Trainium2", "torus", "-"]
    assert by_name["trn3e.24xlarge"][:6] == ["4", "8", "144", "GiB", "Trainium3", "switched"]
    assert by_name["trn3e.24xlarge"][6] != "-"


def test_list_for_machines(call: Call, capsys: Captured) -> None:
    assert call("machine", "list", "-o", "json") == 0
    sizes = {size["name"]: size for size in json.loads(capsys.readouterr().out)}
    assert sizes["trn1.2xlarge"]["memoryPerChip"] == 34359738368
    assert (sizes["inf2.48xlarge"]["fabric"], sizes["inf2.48xlarge"]["links"][0]) == ("ring", [11, 1])


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


def test_show_tells_topology_groups_and_contradictions(call: Call, capsys: Captured, tmp_path: Path) -> None:
    faults = ("--fault", "vanish=3", "--fault", "same-serial=1-2", "--fault", "one-way-link=8-9")
    assert call("machine", "make", "trn1.32xlarge", tmp_path, "--without-stats", *faults) == 0
    capsys.readouterr()
    assert call("machine", "show", "--sysfs-root", tmp_path / "sys", "--proc-root", tmp_path / "proc") == 0
    out = capsys.readouterr().out
    assert "links: torus" in out
    assert "groups of 4: 4-7, 8-11, 12-15" in out
    assert "groups of 8: 8-15" in out
    assert "groups of 16" not in out
    assert "chips 1, 2 share serial 9ff5434815c8bd81" in out
    assert "links that one chip reports and the other doesn't (9-8) don't count" in out
    assert "15 of the 16 chips of a trn1.32xlarge are usable, missing: 3" in out
    [row] = [line.split() for line in out.splitlines() if line.startswith("13 ")]
    assert row[-2:] == ["3,1", "1,9,12,14"]


def test_show_for_machines_tells_the_same(call: Call, capsys: Captured, tmp_path: Path) -> None:
    make_machine("trn2.48xlarge", tmp_path, stats=False)
    assert (
        call("machine", "show", "--sysfs-root", tmp_path / "sys", "--proc-root", tmp_path / "proc", "-o", "json") == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert (shown["fabric"], shown["knownSize"], len(shown["groups"])) == ("torus", True, 15)
    chip = shown["chips"][6]
    assert (chip["row"], chip["column"], chip["maxLogicalNeuronCore"]) == (1, 2, 2)
    assert chip["deviceGroups"]["4"] == "671622785349fddf"


def test_show_of_a_size_that_is_not_known(call: Call, capsys: Captured, tmp_path: Path) -> None:
    paths = make_machine("inf2.24xlarge", tmp_path, stats=False)
    put(paths.sysfs / "devices/virtual/dmi/id/product_name", "inf9.metal\n")
    assert call("machine", "show", "--sysfs-root", paths.sysfs, "--proc-root", paths.proc) == 0
    out = capsys.readouterr().out
    assert "size inf9.metal isn't known here" in out
    assert "groups of 4: 0-3, 1-4, 2-5" in out
    assert "problem" not in out


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("melted", "fault 'melted' isn't known; known are missing-chip,"),
        ("missing-chip", "fault missing-chip takes a value: missing-chip=N"),
        ("decoys=3", "fault decoys takes no value"),
        ("missing-chip=7", "there is no chip '7'; chips are 0, 1, 2, 3, 4, 5"),
        ("dead-link=0-2", "chip 0 has no link to chip 2, only to 1"),
        ("unreadable=1:core_counts", "chip 1 has no file core_counts"),
    ],
)
def test_a_fault_that_does_not_fit(call: Call, capsys: Captured, tmp_path: Path, fault: str, text: str) -> None:
    assert call("machine", "make", "inf2.24xlarge", tmp_path, "--without-stats", "--fault", fault) == 1
    assert text in capsys.readouterr().err


def test_make_help_names_every_fault(call: Call, capsys: Captured) -> None:
    with pytest.raises(SystemExit, match="0"):
        call("machine", "make", "--help")
    out = capsys.readouterr().out
    assert all(f"  {name}" in out for name in FAULTS)


def test_record_then_show(call: Call, capsys: Captured, tmp_path: Path) -> None:
    paths = make_machine("inf2.24xlarge", tmp_path / "real", stats=False)
    roots = ("--sysfs-root", paths.sysfs, "--proc-root", paths.proc)
    assert call("machine", "record", tmp_path / "copy", *roots) == 0
    first, hint = capsys.readouterr().out.splitlines()
    assert first.endswith("serial numbers replaced. See them with:")
    assert call(*hint.split()[1:]) == 0
    out = capsys.readouterr().out
    assert "inf2.24xlarge, kernel driver 2.30.2.0, 6 usable Neuron chips" in out
    assert "9ff5434815c8" not in out


def test_record_where_there_is_nothing(call: Call, capsys: Captured, tmp_path: Path) -> None:
    for name in ("sys", "proc"):
        (tmp_path / name).mkdir()
    roots = ("--sysfs-root", tmp_path / "sys", "--proc-root", tmp_path / "proc")
    assert call("machine", "record", tmp_path / "copy", *roots) == 1
    assert "nothing to record" in capsys.readouterr().err
    assert not (tmp_path / "copy").exists()


def test_record_over_a_machine(call: Call, capsys: Captured, tmp_path: Path) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path, stats=False)
    assert call("machine", "record", tmp_path, "--sysfs-root", paths.sysfs, "--proc-root", paths.proc) == 1
    assert "choose an empty folder" in capsys.readouterr().err


def test_show_without_a_tree(call: Call, capsys: Captured, tmp_path: Path) -> None:
    assert call("machine", "show", "--sysfs-root", tmp_path / "none") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "coreslice machine show: no sysfs at" in captured.err


def test_make_an_unknown_size(call: Call, capsys: Captured, tmp_path: Path) -> None:
    assert call("machine", "make", "trn9.metal", tmp_path) == 2
    assert "known are: inf1.xlarge, " in capsys.readouterr().err


def test_make_over_a_machine(call: Call, capsys: Captured, tmp_path: Path) -> None:
    make_machine("trn1.2xlarge", tmp_path)
    assert call("machine", "make", "trn1.2xlarge", tmp_path) == 1
    assert "choose an empty folder" in capsys.readouterr().err


def test_make_where_nothing_can_be_written(call: Call, capsys: Captured, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert call("machine", "make", "trn1.2xlarge", tmp_path / "file") == 1
    assert "can't read or write" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [("machine",), ("machine", "destroy"), ("machine", "make", "trn1.2xlarge")])
def test_wrong_use(call: Call, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        call(*arguments)
