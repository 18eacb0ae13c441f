"""Checks follow from the facts: change a fact and the claim that needs it fails, and no other."""

from dataclasses import replace

import pytest

from dra_driver.cli import demo_text
from dra_driver.cli.demo_story import (
    ChipFacts,
    Ending,
    MachineFacts,
    NodeFacts,
    OnePool,
    PodFacts,
    Published,
    PublishedDevice,
    Story,
    TwoLedgers,
    check,
)

NODE = NodeFacts("/dev/neuron0", "/dev/neuron0", "243:0", "rw")
BOTH = ((0, 0), (0, 1))


def running(name: str, *cores: tuple[int, int], devices: tuple[str, ...] = (), visible: str = "") -> PodFacts:
    env = {"NEURON_RT_VISIBLE_CORES": visible} if visible else {}
    return PodFacts(name, "something", "Running", devices=devices, nodes=(NODE,), env=env, cores=cores)


def pending(name: str, reason: str) -> PodFacts:
    return PodFacts(name, "something", "Pending", reason=reason)


MACHINE = MachineFacts("trn1.2xlarge", "2.30", (ChipFacts(0, "Trainium1", 2, "s", "243:0"),))
OLD = TwoLedgers(
    sockets={"n": "n.sock"},
    offered={"n": 1},
    left_after_a={"n": 0},
    a=running("pod-a", *BOTH),
    b=running("pod-b", *BOTH),
)
NEW = OnePool(
    published=Published(
        1, ("s0", "s1"), "d/n", {"chip-0": "2"}, (PublishedDevice("chip-0", "chip", 2, {"chip-0": "2"}),)
    ),
    a=running("pod-a", *BOTH, devices=("chip-0",)),
    b_waits=pending("pod-b", "0 free (chip-0: in use by pod-a-x)"),
    b_runs=running("pod-b", *BOTH, devices=("chip-0",)),
    halves_wait=(
        pending("pod-c", "counter chip-0 has 0 of 2 left"),
        pending("pod-d", "counter chip-0 has 0 of 2 left"),
    ),
    halves=(running("pod-c", (0, 0), visible="0"), running("pod-d", (0, 1), visible="1")),
)
END = Ending(0, (), (), (), (), ())
STORY = Story(machine=MACHINE, two_ledgers=OLD, one_pool=NEW, ending=END)


def failing(story: Story) -> list[str]:
    return [each.claim for each in check(story) if not each.held]


def test_the_good_story_holds() -> None:
    assert failing(STORY) == []
    assert replace(STORY, checks=check(STORY)).held


def test_an_empty_story_holds_nothing() -> None:
    assert len(failing(Story())) == len(check(Story()))
    assert not Story().held


def test_a_failure_is_never_good() -> None:
    assert not replace(STORY, checks=check(STORY), failure="something").held


@pytest.mark.parametrize(
    ("changed", "claim"),
    [
        (replace(STORY, machine=replace(MACHINE, chips=())), "the driver's reader finds the machine's chip"),
        (
            replace(STORY, two_ledgers=replace(OLD, b=replace(OLD.b, phase="Pending"))),
            "device plugin: both pods are admitted",
        ),
        (
            replace(STORY, two_ledgers=replace(OLD, b=replace(OLD.b, cores=((1, 0),)))),
            "device plugin: the same cores are in both pods",
        ),
        (
            replace(STORY, one_pool=replace(NEW, published=replace(NEW.published, counters={"chip-9": "2"}))),
            "coreslice: one-core pods wait",
        ),
        (
            replace(
                STORY,
                one_pool=replace(
                    NEW,
                    published=replace(NEW.published, devices=(PublishedDevice("chip-0", "chip", 2, {}),)),
                ),
            ),
            "coreslice: every device draws on its chip's counter",
        ),
        (replace(STORY, one_pool=replace(NEW, a=replace(NEW.a, phase="Pending"))), "coreslice: pod A runs"),
        (
            replace(STORY, one_pool=replace(NEW, b_waits=replace(NEW.b_waits, phase="Running"))),
            "coreslice: pod B waits",
        ),
        (
            replace(STORY, one_pool=replace(NEW, b_waits=pending("pod-b", "no reason"))),
            "coreslice: pod B waits",
        ),
        (
            replace(STORY, one_pool=replace(NEW, b_runs=replace(NEW.b_runs, nodes=()))),
            "coreslice: pod B runs when A is gone",
        ),
        (
            replace(STORY, one_pool=replace(NEW, halves_wait=(NEW.halves[0], NEW.halves_wait[1]))),
            "coreslice: one-core pods wait",
        ),
        (
            replace(STORY, one_pool=replace(NEW, halves=(NEW.halves[0], NEW.halves[0]))),
            "coreslice: then both run side by side on different cores",
        ),
        (
            replace(STORY, one_pool=replace(NEW, halves=(NEW.halves[0], replace(NEW.halves[1], env={})))),
            "coreslice: each of them is told its own cores only",
        ),
        (replace(STORY, ending=replace(END, exit_status=-9)), "the driver stops with status 0"),
        (
            replace(STORY, ending=replace(END, cdi_specs=("x.json",))),
            "no socket, CDI spec, record, claim or slice is left",
        ),
    ],
)
def test_each_claim_depends_on_its_facts(changed: Story, claim: str) -> None:
    (failed,) = failing(changed)
    assert failed.startswith(claim)


def test_parts_are_told_once() -> None:
    first = list(demo_text.part(Story(), replace(Story(), machine=MACHINE)))
    assert any("trn1.2xlarge" in line for line in first)
    assert list(demo_text.part(replace(Story(), machine=MACHINE), replace(Story(), machine=MACHINE))) == []
    assert list(demo_text.part(Story(), Story())) == []


def test_a_failed_claim_is_shown_and_counted() -> None:
    broken = replace(STORY, ending=replace(END, exit_status=1), seconds=1.25)
    lines = list(demo_text.verdict(replace(broken, checks=check(broken))))
    assert "   FAILED the driver stops with status 0" in lines
    assert lines[-1] == "1 of 12 did NOT hold; 1.2 s"


def test_a_run_that_stopped_says_why() -> None:
    story = Story(machine=MACHINE, failure="line one\nline two")
    lines = list(demo_text.verdict(replace(story, checks=check(story))))
    assert lines[:4] == ["", "The run stopped:", "   line one", "   line two"]
    assert lines[-1].startswith("11 of 12 did NOT hold")


def test_cores_of_several_chips_are_told_chip_by_chip() -> None:
    old = replace(OLD, a=running("pod-a", (0, 0), (0, 1), (1, 0)), b=running("pod-b", (0, 1), (1, 0)))
    text = "\n".join(demo_text.two_ledgers(old))
    assert "behind it: cores 0 and 1 of chip 0; core 0 of chip 1" in text
    assert "both hold core 1 of chip 0; core 0 of chip 1" in text


def test_disjoint_cores_are_not_said_to_be_shared() -> None:
    text = "\n".join(demo_text.two_ledgers(replace(OLD, b=running("pod-b", (1, 0)))))
    assert "both hold" not in text
