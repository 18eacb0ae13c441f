"""`coreslice slices`."""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.cli import slices
from dra_driver.inventory import attributes
from dra_driver.inventory.devices import DeviceType, devices, totals
from dra_driver.inventory.slices import Layout, NodeOwner, Pool, build
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.machines import make_machine, put, remove_chip
from dra_driver.simulator.nominal import nominal

Call = Callable[..., int]
Captured = pytest.CaptureFixture[str]

TYPES = [kind.value for kind in DeviceType]


def items(text: str) -> list[dict[str, Any]]:
    value = json.loads(text)
    assert (value["apiVersion"], value["kind"]) == ("v1", "List")
    found: list[dict[str, Any]] = value["items"]
    return found


def test_of_a_tree_they_are_what_would_be_sent(call: Call, capsys: Captured, tmp_path: Path) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path)
    roots = ("--sysfs-root", paths.sysfs, "--proc-root", paths.proc)
    assert call("slices", *roots, "--node-name", "n1", "--node-uid", "5c9f", "--driver-name", "d.example.com") == 0
    machine = read_machine(sysfs_root=paths.sysfs, proc_root=paths.proc)
    assert items(capsys.readouterr().out) == build(
        Pool("d.example.com", "n1"),
        devices(machine),
        totals(machine),
        layout=Layout(37),
        generation=1,
        owner=NodeOwner("n1", "5c9f"),
    )


def test_bc014_what_the_server_would_refuse_is_left_out_and_told(
    call: Call, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is sent: here by a version with a defect, that takes 200 bytes for what a text may have."""
    monkeypatch.setattr(attributes, "STRING_BYTES", 200)
    paths = make_machine("trn1.2xlarge", tmp_path, driver_version="2.30.2.0-" + "y" * 100)
    assert call("slices", "--sysfs-root", paths.sysfs, "--proc-root", paths.proc, "--node-name", "n1") == 0
    told = capsys.readouterr()
    chip = items(told.out)[-1]["spec"]["devices"][0]
    assert chip["name"] == "chip-0"
    assert "driverVersionText" not in chip["attributes"]
    assert "attribute 'driverVersionText' of device 'chip-0' left out" in told.err
    devices.cache_clear()


def test_of_a_simulated_machine(call: Call, capsys: Captured) -> None:
    assert call("slices", "--machine", "trn1.2xlarge", "--node-name", "n1") == 0
    counters, listed = items(capsys.readouterr().out)
    assert counters["metadata"] == {"name": "00000-neuron.coreslice.dev-n1"}
    assert [device["name"] for device in listed["spec"]["devices"]] == ["chip-0", "core-0-0", "core-0-1"]


@pytest.mark.parametrize(
    ("how", "names"),
    [((), ["chip-0"]), (("--granularity-without-counters", "core"), ["core-0-0", "core-0-1"])],
)
def test_without_counters(call: Call, capsys: Captured, how: tuple[str, ...], names: list[str]) -> None:
    assert call("slices", "--machine", "trn1.2xlarge", "--node-name", "n1", "--without-counters", *how) == 0
    [listed] = items(capsys.readouterr().out)
    assert [device["name"] for device in listed["spec"]["devices"]] == names


def test_for_an_old_server_there_is_one_slice_and_what_has_no_room_is_said(call: Call, capsys: Captured) -> None:
    size = ("--machine", "inf1.24xlarge", "--node-name", "n1")
    assert call("slices", *size, "--server-version", "1.34") == 0
    captured = capsys.readouterr()
    [only] = items(captured.out)
    assert len(only["spec"]["devices"]) == 128
    assert only["spec"]["sharedCounters"][0]["name"] == "chips"
    assert "single cores are offered on 11 of 16 chips only" in captured.err
    assert call("slices", *size, "--server-version", "1.35") == 0
    captured = capsys.readouterr()
    assert len(items(captured.out)) == 5
    assert captured.err == ""


def test_at_an_lnc(call: Call, capsys: Captured) -> None:
    assert call("slices", "--machine", "trn2.3xlarge", "--node-name", "n1", "--lnc", "2") == 0
    _, listed = items(capsys.readouterr().out)
    assert [device["name"] for device in listed["spec"]["devices"]] == [
        "chip-0-lnc2",
        *(f"core-0-{core}-lnc2" for core in range(4)),
    ]


def test_the_lnc_is_the_runtimes_own_unless_another_is_given(call: Call, capsys: Captured) -> None:
    for how, ending in (((), "-lnc2"), (("--lnc", "1"), "-lnc1")):
        assert call("slices", "--machine", "trn2.3xlarge", "--node-name", "n1", *how) == 0
        _, listed = items(capsys.readouterr().out)
        assert {device["name"][-5:] for device in listed["spec"]["devices"]} == {ending}


def test_of_an_offer(call: Call, capsys: Captured) -> None:
    offer = ("--offer-types", "core-run,chip", "--offer-runs", "on", "--offer-core-counts", "4")
    assert call("slices", "--machine", "trn2.3xlarge", "--node-name", "n1", "--lnc", "1", *offer) == 0
    _, listed = items(capsys.readouterr().out)
    assert [device["name"] for device in listed["spec"]["devices"]] == [
        *("chip-0-lnc1", "cores-0-0-4-lnc1", "cores-0-4-4-lnc1")
    ]


def test_an_offer_that_leaves_nothing(call: Call, capsys: Captured) -> None:
    assert call("slices", "--machine", "trn2.3xlarge", "--node-name", "n1", "--offer-types", "chip-group") == 1
    captured = capsys.readouterr()
    assert items(captured.out) == []
    assert "nothing to publish: the offer leaves nothing" in captured.err


def test_an_offer_comes_from_the_environment_as_the_daemons_does(
    call: Call, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OFFER_TYPES", "chip")
    assert call("slices", "--machine", "trn1.2xlarge", "--node-name", "n1") == 0
    assert [device["name"] for device in items(capsys.readouterr().out)[1]["spec"]["devices"]] == ["chip-0"]


def test_as_a_table_with_what_a_scan_costs(call: Call, capsys: Captured) -> None:
    assert call("slices", "--machine", "trn2.48xlarge", "--node-name", "n1", "--lnc", "2", "-o", "table") == 0
    first, *rows, cost = capsys.readouterr().out.splitlines()
    assert first == "trn2.48xlarge at LNC 2, Kubernetes 1.37: counters in slices of their own"
    assert [row.split(maxsplit=1) for row in rows] == [
        ["64", "core"],
        ["0", "core-run"],
        ["16", "chip"],
        ["15", "chip-group"],
        ["95", "devices in all"],
        ["3", "slices"],
        ["16", "counters in 1 sets"],
    ]
    assert cost == "A request that finds nothing here costs the scheduler about 0.5 ms (5 µs a device)."


@pytest.mark.parametrize(
    ("how", "layout"),
    [
        (("--server-version", "1.34"), "Kubernetes 1.34: counters and devices in one slice"),
        (("--server-version", "1.36", "--without-counters"), "Kubernetes 1.36: without counters, one granularity"),
    ],
)
def test_the_table_names_the_layout(call: Call, capsys: Captured, how: tuple[str, ...], layout: str) -> None:
    assert call("slices", "--machine", "trn1.2xlarge", "--node-name", "n1", "-o", "table", *how) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"trn1.2xlarge, {layout}"


def numbers(table: str) -> dict[str, int]:
    """By what is counted."""
    return {text: int(number) for number, text in re.findall(r"^ *(\d+)  (.+)$", table, re.MULTILINE)}


@pytest.mark.parametrize(
    "how",
    [(), ("--server-version", "1.34"), ("--without-counters",), ("--offer-types", "core,chip", "--offer-runs", "on")],
    ids=["newest", "old", "no counters", "an offer"],
)
def test_of_all_sizes_each_row_is_what_the_size_alone_says(call: Call, capsys: Captured, how: tuple[str, ...]) -> None:
    assert call("slices", "--all-sizes", "-o", "json", *how) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["instanceType"] for row in rows} == set(SIZES)
    for row in rows:
        size = ("--machine", row["instanceType"], "--lnc", str(row["logicalNeuronCore"]), "--node-name", "n1")
        assert call("slices", *size, "-o", "table", *how) == 0
        table = capsys.readouterr().out
        found = numbers(table)
        assert {kind: row[kind] for kind in TYPES} == {kind: found[kind] for kind in TYPES}
        assert (row["devices"], row["slices"]) == (found["devices in all"], found["slices"])
        assert found[f"counters in {row['counterSets']} sets"] == row["counters"]
        assert f"about {row['scanSeconds'] * 1e3:.1f} ms" in table


def test_of_all_sizes_in_columns(call: Call, capsys: Captured) -> None:
    assert call("slices", "--all-sizes") == 0
    heading, *lines = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        *("SIZE", "LNC", "CHIPS", "CORES", "RUNS", "GROUPS", "DEVICES", "SLICES", "SETS", "COUNTERS", "SCAN")
    ]
    rows = {tuple(words[:2]): words[2:] for words in map(str.split, lines[:-2])}
    assert rows["trn2.48xlarge", "1"] == ["16", "128", "0", "15", "159", "4", "1", "16", "0.80", "ms"]
    assert rows["inf1.6xlarge", "1"] == ["4", "16", "8", "6", "34", "2", "2", "20", "0.17", "ms"]
    assert ("trn1.2xlarge", "2") not in rows
    assert len({line.rindex(" ms") for line in lines[:-2]}) == 1


def test_of_all_sizes_at_one_lnc(call: Call, capsys: Captured) -> None:
    assert call("slices", "--all-sizes", "--lnc", "2", "-o", "json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["logicalNeuronCore"] for row in rows} == {2}
    assert {row["instanceType"].partition(".")[0][:4] for row in rows} == {"trn2", "trn3"}


@pytest.mark.parametrize("version", ["1.33", "34", "1.x", "2.0", "v1.37"])
def test_a_version_that_is_none(call: Call, capsys: Captured, version: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("slices", "--machine", "trn1.2xlarge", "--server-version", version)
    assert f"{version!r} is no version from 1.34 on" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["trn1.2xlarge", "inf1.6xlarge"])
def test_of_a_size_they_are_those_of_its_tree(call: Call, capsys: Captured, tmp_path: Path, size: str) -> None:
    """A size is made by value: it has to be what is read from a machine."""
    paths = make_machine(size, tmp_path)
    assert read_machine(sysfs_root=paths.sysfs, proc_root=paths.proc) == nominal(SIZES[size])
    assert call("slices", "--sysfs-root", paths.sysfs, "--proc-root", paths.proc, "--node-name", "n1") == 0
    of_tree = capsys.readouterr().out
    assert call("slices", "--machine", size, "--node-name", "n1") == 0
    assert capsys.readouterr().out == of_tree


def test_yaml_says_the_same(call: Call, capsys: Captured) -> None:
    command = ("slices", "--machine", "trn1.2xlarge", "--node-name", "n1", "--node-uid", "5c9f")
    call(*command, "-o", "json")
    as_json = json.loads(capsys.readouterr().out)
    assert call(*command, "-o", "yaml") == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text) == as_json
    assert "&id" not in text


@pytest.mark.parametrize("serial", ["1234567e12345678", "0000000000000017", "12345678901234_0"])
def test_yaml_quotes_what_looks_like_a_number(call: Call, capsys: Captured, tmp_path: Path, serial: str) -> None:
    """To Go's YAML reader the first is a float, though PyYAML writes and reads it bare."""
    paths = make_machine("trn1.2xlarge", tmp_path, serials=[serial])
    put(paths.sysfs / "devices/virtual/dmi/id/product_name", "1e3.1e5\n")
    roots = ("--sysfs-root", paths.sysfs, "--proc-root", paths.proc)
    assert call("slices", *roots, "--node-name", "n1", "-o", "yaml") == 0
    text = capsys.readouterr().out
    assert "string: '1e3.1e5'" in text
    if serial.isalnum():
        assert f"string: '{serial}'" in text


def test_yaml_without_the_extra(call: Call, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert call("slices", "--machine", "trn1.2xlarge", "--node-name", "n1", "-o", "yaml") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "install coreslice[demo], or take -o json" in captured.err


def test_the_node_name_comes_from_the_environment(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_NAME", "from-the-environment")
    parser = argparse.ArgumentParser()
    slices.add_parser(parser.add_subparsers())
    args = parser.parse_args(["slices", "--machine", "trn1.2xlarge"])
    assert args.func(args) == 0
    assert items(capsys.readouterr().out)[0]["spec"]["nodeName"] == "from-the-environment"


def test_bc026_nothing_to_publish_is_said(call: Call, capsys: Captured, tmp_path: Path) -> None:
    paths = make_machine("trn1.2xlarge", tmp_path)
    remove_chip(paths, 0)
    assert call("slices", "--sysfs-root", paths.sysfs, "--proc-root", paths.proc, "--node-name", "n1") == 1
    captured = capsys.readouterr()
    assert items(captured.out) == []
    assert "0 of the 1 chips of a trn1.2xlarge are usable" in captured.err
    assert "nothing to publish: no usable Neuron chip" in captured.err


def test_no_tree(call: Call, capsys: Captured, tmp_path: Path) -> None:
    assert call("slices", "--sysfs-root", tmp_path / "none", "--node-name", "n1") == 1
    assert "no sysfs at" in capsys.readouterr().err


def test_a_node_name_that_the_api_would_not_take(call: Call, capsys: Captured) -> None:
    assert call("slices", "--machine", "trn1.2xlarge", "--node-name", "Node_1") == 1
    assert "node name 'Node_1' must be a DNS subdomain" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--machine", "trn9.metal"), "known are: inf1.xlarge"),
        (("--machine", "trn1.2xlarge", "--proc-root", "/proc"), "--proc-root belongs to --sysfs-root"),
        (("--all-sizes", "--proc-root", "/proc"), "--proc-root belongs to --sysfs-root"),
        (("--all-sizes", "-o", "yaml"), "all sizes are a table or json"),
    ],
)
def test_wrong_use(call: Call, capsys: Captured, arguments: tuple[str, ...], text: str) -> None:
    assert call("slices", *arguments) == 2
    assert text in capsys.readouterr().err


def test_a_size_and_a_tree_exclude_one_another(call: Call) -> None:
    with pytest.raises(SystemExit, match="2"):
        call("slices", "--machine", "trn1.2xlarge", "--sysfs-root", "/sys")
