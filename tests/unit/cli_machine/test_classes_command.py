"""`coreslice classes`."""

import json
from collections.abc import Callable

import pytest

from dra_driver.inventory.classes import CHIP_COUNTS, CORE_COUNTS
from dra_driver.neuron.catalogue import SIZES

Call = Callable[..., int]
Captured = pytest.CaptureFixture[str]


def rows(text: str) -> dict[tuple[str, str], dict[str, str]]:
    heading, *lines = [line.split() for line in text.splitlines()[:-1]]
    return {(line[0], line[1]): dict(zip(heading[2:], line[2:], strict=True)) for line in lines}


def test_all_sizes_by_lnc(call: Call, capsys: Captured) -> None:
    assert call("classes") == 0
    text = capsys.readouterr().out
    found = rows(text)
    assert {size for size, _ in found} == set(SIZES)
    assert {lnc for size, lnc in found if size == "trn2.48xlarge"} == {"1", "2"}
    assert {lnc for size, lnc in found if size == "trn1.32xlarge"} == {"1"}
    assert text.splitlines()[-1].startswith("How many devices")


@pytest.mark.parametrize(
    ("size", "lnc", "cells"),
    [
        ("trn1.2xlarge", "1", {"core": "2c", "cores-2": "1C", "chip": "1C"}),
        ("inf1.xlarge", "1", {"core": "4c", "cores-2": "2r", "cores-4": "1C", "chip": "1C"}),
        ("inf2.24xlarge", "1", {"cores-12": "1G", "chips-6": "1G", "cores-4": "5G"}),
        ("trn2.48xlarge", "2", {"core": "64c", "cores-4": "16C", "cores-32": "2G", "cores-64": "1G", "chips-4": "4G"}),
        ("trn2.48xlarge", "1", {"core": "128c", "cores-8": "16C", "cores-64": "2G", "cores-128": "1G"}),
    ],
)
def test_which_class_gives_what(call: Call, capsys: Captured, size: str, lnc: str, cells: dict[str, str]) -> None:
    assert call("classes") == 0
    row = rows(capsys.readouterr().out)[size, lnc]
    assert row | cells == row


def test_what_a_size_does_not_have_is_empty(call: Call, capsys: Captured) -> None:
    assert call("classes") == 0
    row = rows(capsys.readouterr().out)["trn1.2xlarge", "1"]
    assert {name for name, cell in row.items() if cell != "-"} == {"core", "cores-2", "chip"}


def test_one_size_in_words(call: Call, capsys: Captured) -> None:
    assert call("classes", "--machine", "trn1.2xlarge") == 0
    heading, columns, *lines, empty = capsys.readouterr().out.splitlines()
    assert heading == "trn1.2xlarge, LNC 1: 1 chips of 2 physical cores"
    assert columns.split() == ["CLASS", "GIVES", "CORES", "CHIPS", "DEVICES"]
    assert [line.split() for line in lines] == [
        ["neuron-core", "core", "1", "1", "2"],
        ["neuron-cores-2", "chip", "2", "1", "1"],
        ["neuron-chip", "chip", "2", "1", "1"],
    ]
    assert empty.startswith("Nothing for: neuron-cores-4, ")


def test_one_size_at_each_lnc_or_at_one(call: Call, capsys: Captured) -> None:
    assert call("classes", "--machine", "trn2.3xlarge") == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "LNC" in line] == [
        f"trn2.3xlarge, LNC {lnc}: 1 chips of 8 physical cores" for lnc in (1, 2)
    ]
    assert call("classes", "--machine", "trn2.3xlarge", "--lnc", "2") == 0
    assert "LNC 1" not in capsys.readouterr().out


def test_for_machines(call: Call, capsys: Captured) -> None:
    assert call("classes", "--machine", "ml.inf2.48xlarge", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == len(CORE_COUNTS) + len(CHIP_COUNTS)
    by_class = {entry["class"]: entry for entry in found}
    assert by_class["neuron-chips-6"] == {
        "class": "neuron-chips-6",
        "instanceType": "inf2.48xlarge",
        "logicalNeuronCore": 1,
        "type": "chip-group",
        "cores": 12,
        "chips": 6,
        "devices": 7,
    }
    assert by_class["neuron-chips-16"]["type"] is None
    assert by_class["neuron-chips-16"]["devices"] == 0


def test_with_an_offer(call: Call, capsys: Captured) -> None:
    offer = ("--offer-runs", "on", "--offer-chips-with-cores", "1", "--offer-chip-counts", "16")
    assert call("classes", "--machine", "trn2.48xlarge", "--lnc", "1", "-o", "json", *offer) == 0
    counts = {entry["class"]: (entry["type"], entry["devices"]) for entry in json.loads(capsys.readouterr().out)}
    assert {name: count for name, count in counts.items() if count[1]} == {
        "neuron-core": ("core", 8),
        "neuron-cores-2": ("core-run", 4),
        "neuron-cores-4": ("core-run", 2),
        "neuron-cores-128": ("chip-group", 1),
        "neuron-chips-16": ("chip-group", 1),
    }


def test_an_unknown_size(call: Call, capsys: Captured) -> None:
    assert call("classes", "--machine", "trn9.metal") == 2
    assert "size 'trn9.metal' isn't known; known are: inf1.xlarge" in capsys.readouterr().err


def test_an_lnc_that_the_size_does_not_have(call: Call, capsys: Captured) -> None:
    assert call("classes", "--machine", "trn1.2xlarge", "--lnc", "2") == 1
    assert "a trn1.2xlarge has no LNC 2" in capsys.readouterr().err
