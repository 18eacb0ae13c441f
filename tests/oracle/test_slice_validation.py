"""The linter's verdicts against the validation of real API servers, on slices good and bad.

A short run on the newest minor by default. `make fuzz-slices` is the long one; FUZZ_SLICES, FUZZ_SEED and
FUZZ_MINORS (36,37) say how many, which and for whom.
"""

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from testbed.slicefuzz import Fuzz
from testbed.validation import MINORS, Verdict, verdicts

from dra_driver.cli.main import main
from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.lint import server as gate
from dra_driver.inventory.lint.findings import Finding, Severity
from dra_driver.inventory.lint.linter import lint, slices
from dra_driver.inventory.lint.repair import repair
from dra_driver.neuron.catalogue import SIZES
from dra_driver.settings import DRIVER_NAME

pytestmark = [pytest.mark.go, pytest.mark.timeout(3600)]

Wire = dict[str, Any]
Gates = dict[str, bool]

COUNT = int(os.environ.get("FUZZ_SLICES", "2000"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
FUZZED = [int(minor) for minor in os.environ.get("FUZZ_MINORS", str(MINORS[-1])).split(",")]
NEEDS = {  # the server doesn't start with the one on and the other off
    gate.PARTITION_TYPE: gate.PARTITIONABLE,
    gate.COMPATIBILITY: gate.PARTITIONABLE,
    gate.FRACTIONS: gate.CONSUMABLE,
    gate.BINDING: gate.DEVICE_STATUS,
}


def settings(minor: int) -> Iterator[Gates]:
    """Default gates, all on, all off, and two mixtures."""
    known = gate.gates(minor)
    if minor >= 37:
        del known[gate.DEVICE_STATUS]  # locked
    chance = random.Random(SEED)
    yield {}
    yield dict.fromkeys(known, True)
    yield dict.fromkeys(known, False)
    for _ in range(2):
        mixed = {name: chance.random() < 0.5 for name in known}
        yield mixed | {NEEDS[name]: True for name, on in mixed.items() if on and NEEDS.get(name) in known}


def disagreement(found: Sequence[Finding], verdict: Verdict) -> str:
    """What the linter and the server see differently; empty when nothing."""
    refused = [finding for finding in found if finding.severity is Severity.REFUSED]
    if bool(refused) == verdict.accepted:
        return f"linter {'refuses' if refused else 'accepts'}, server says {verdict.faults or 'created'}"
    if not verdict.decoded:
        return ""
    dropped = [finding for finding in found if finding.severity is Severity.DROPPED]
    unknown = {dotted(finding) for finding in dropped if finding.rule == "unknown-field"}
    if unknown != verdict.unknown:
        return f"unknown fields: linter {unknown}, server {set(verdict.unknown)}"
    left_out = {finding.path for finding in dropped if finding.rule != "unknown-field"}
    if left_out != verdict.dropped:
        return f"left out: linter {left_out}, server {set(verdict.dropped)}"
    ours, theirs = {place(finding.field) for finding in refused}, {place(field) for field, _ in verdict.faults}
    if "" in theirs or "spec.devices" in ours | theirs:  # a panic; too many devices to look at each
        return ""
    return f"blamed: linter {ours}, server {theirs}" if ours != theirs else ""


def dotted(finding: Finding) -> str:
    """A path in the way of the strict decoder."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in finding.path)[1:]


def place(field: str) -> str:
    """The device of a fault, else the field of the metadata or spec: which of its parts is told is each one's own."""
    found = re.match(r"spec\.devices(\[\d+\])?|(metadata|spec)(\.\w+)?", field)
    return found[0] if found else field


def compare(minor: int, numbers: Sequence[int], features: Gates) -> tuple[list[str], Counter[str]]:
    """The disagreements, and how often each rule refused and how many were accepted."""
    fuzz, seen, bad = Fuzz(SEED), Counter[str](), []
    made = [fuzz.slice(number) for number in numbers]
    for number, sent, verdict in zip(numbers, made, verdicts(minor, made, features), strict=True):
        found = lint([sent], minor=minor, features=features)
        seen.update({finding.rule for finding in found if finding.severity is Severity.REFUSED})
        seen["accepted"] += verdict.accepted
        seen["dropped"] += bool(verdict.dropped)
        if text := disagreement(found, verdict):
            bad.append(f"1.{minor} seed {SEED} slice {number} gates {features}: {text}\n{json.dumps(sent)[:4000]}")
    return bad, seen


@pytest.mark.parametrize("minor", FUZZED)
def test_linter_and_server_agree_on_every_slice(minor: int, capsys: pytest.CaptureFixture[str]) -> None:
    bad, seen = list[str](), Counter[str]()
    gates = list(settings(minor))
    for index, features in enumerate(gates):
        differences, hits = compare(minor, range(index, COUNT, len(gates)), features)
        bad += differences
        seen += hits
    rules = len(seen - Counter(accepted=seen["accepted"], dropped=seen["dropped"]))
    with capsys.disabled():
        print(f"\n1.{minor}, seed {SEED}: {COUNT} slices, {seen['accepted']} accepted, {seen['dropped']} not as sent,")
        print(f"{rules} rules refused one, {len(bad)} disagreements", flush=True)
    assert bad == []
    assert COUNT // 5 < seen["accepted"] < COUNT * 4 // 5
    assert seen["dropped"] > COUNT // 20
    assert rules >= 40


def test_comparison_sees_a_difference_of_one_minor() -> None:
    """So that agreement means something: what 1.34 takes is not what 1.37 takes."""
    fuzz = Fuzz(SEED)
    made = [fuzz.slice(number) for number in range(200)]
    answers = verdicts(MINORS[-1], made)
    judged = (lint([sent], minor=34) for sent in made)
    assert sum(bool(disagreement(found, verdict)) for found, verdict in zip(judged, answers, strict=True)) > 20


def test_repaired_slices_are_accepted() -> None:
    """A slice is repaired, or it is said that it can't be."""
    fuzz, minor = Fuzz(SEED + 1), MINORS[-1]
    made = [fuzz.slice(number) for number in range(COUNT // 2)]
    done = [repair([sent], minor) for sent in made]
    answers = list(verdicts(minor, [slices[0] for slices, _ in done]))
    cured = 0
    for (fixed, notes), verdict, sent in zip(done, answers, made, strict=True):
        assert verdict.accepted == all(note.repaired for note in notes), (notes, verdict.faults, fixed)
        assert notes or fixed == [sent]
        cured += bool(notes) and verdict.accepted
    assert cured > COUNT // 25


def published(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[Wire]:
    """What `coreslice slices` prints."""
    assert main(["slices", "--node-name", "node-1", "--node-uid", "u", "-o", "json", *arguments]) == 0
    items: list[Wire] = json.loads(capsys.readouterr().out)["items"]
    return items


@pytest.mark.parametrize("minor", FUZZED)
@pytest.mark.parametrize("counters", [True, False])
def test_what_we_publish_for_every_size_is_stored_as_it_is_sent(
    minor: int, *, counters: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """And each pool is complete, its counters enough, its common attributes on every device."""
    features: Mapping[str, bool] = {gate.PARTITIONABLE: True} if counters else {}
    flags = [f"--server-version=1.{minor}", *([] if counters else ["--without-counters"])]
    pools = [published(capsys, "--machine", size, "--lnc", lnc, *flags) for size in SIZES for lnc in ("1", "2")]
    for pool in pools:
        assert lint(pool, minor=minor, features=features, common={DRIVER_NAME: COMMON}) == []
    sent = list(slices([item for pool in pools for item in pool]))
    assert len(sent) >= len(pools)
    for item, verdict in zip(sent, verdicts(minor, sent, features), strict=True):
        assert verdict.accepted, (item["metadata"], verdict.faults)
        assert not verdict.dropped
        assert not verdict.unknown


def test_bc032_the_layout_of_one_minor_is_refused_by_the_next(capsys: pytest.CaptureFixture[str]) -> None:
    """Counters beside their devices up to 1.34, in a slice of their own from 1.35 on."""
    together = published(capsys, "--machine", "trn1.2xlarge", "--server-version=1.34")
    apart = published(capsys, "--machine", "trn1.2xlarge", "--server-version=1.35")
    newest = MINORS[-1]
    assert [verdict.accepted for verdict in verdicts(newest, [*together, *apart])] == [False, True, True]
    assert {finding.rule for finding in lint(together, minor=newest)} == {"separate-counters"}
    old = lint(apart, minor=34, features={gate.PARTITIONABLE: True})
    assert {finding.rule for finding in old if finding.severity is Severity.REFUSED} == {"counter-reference"}
