"""The demo's story as plain text, for somebody who has never seen DRA. Says nothing that isn't in the story."""

import textwrap
from collections.abc import Iterator, Sequence

from dra_driver.cli.demo_story import (
    Check,
    Ending,
    MachineFacts,
    OnePool,
    PodFacts,
    Published,
    Story,
    TwoLedgers,
)

_WIDTH = 100


def part(before: Story, now: Story) -> Iterator[str]:
    """Lines for what `now` has and `before` had not."""
    if now.machine and not before.machine:
        yield from machine(now.machine)
    if now.two_ledgers and not before.two_ledgers:
        yield from two_ledgers(now.two_ledgers)
    if now.one_pool and not before.one_pool:
        yield from one_pool(now.one_pool)
    if now.ending and not before.ending:
        yield from ending(now.ending)


def machine(facts: MachineFacts) -> Iterator[str]:
    """The hardware."""
    cores = sum(chip.cores for chip in facts.chips)
    yield from _title(1, f"The machine: {facts.size}, {_count(len(facts.chips), 'chip')}, {_count(cores, 'core')}")
    yield from _text("Simulated: a sysfs tree in a scratch folder. No hardware, no root, no cluster is needed.")
    for chip in facts.chips:
        yield f"   chip {chip.index}: {chip.family}, {_count(chip.cores, 'core')}, serial {chip.serial}"
        yield f"   its node /dev/neuron{chip.index} is {chip.device}; kernel driver {facts.driver_version}"


def two_ledgers(facts: TwoLedgers) -> Iterator[str]:
    """The old way, and what goes wrong."""
    yield from _title(2, "The device plugin: two names for the same silicon, two ledgers")
    yield from _text("A device plugin counts chips under one name and cores under another, on a socket each:")
    for name, count in facts.offered.items():
        yield f"   {name:<26} {count} offered, by {facts.sockets.get(name, '?')}"
    yield ""
    yield from _pod(facts.a)
    left = ", ".join(f"{name} {count}" for name, count in facts.left_after_a.items())
    yield f"   left on the node now: {left}"
    yield from _pod(facts.b)
    yield ""
    if facts.shared:
        both = _cores(facts.shared)
        yield from _text(f"Both were admitted, and both hold {both}. Nothing told the second ledger about the first.")


def one_pool(facts: OnePool) -> Iterator[str]:
    """The new way."""
    yield from _title(3, "coreslice: chips and cores are devices that draw on one counter")
    yield from _published(facts.published)
    yield ""
    yield from _text(
        "A pod now names a ResourceClaimTemplate. Kubernetes makes a claim from it, and the scheduler gives the "
        "claim a device of the class it asks for, if there is one whose counters are not used up."
    )
    yield from _pod(facts.a)
    yield from _pod(facts.b_waits)
    yield from _text(f"{facts.a.name} is deleted: its device is given back, and {facts.b_runs.name} starts.")
    yield from _pod(facts.b_runs)
    yield ""
    yield from _text("Meanwhile two pods ask for one core each:")
    for pod in facts.halves_wait:
        yield from _pod(pod)
    yield from _text(f"{facts.b_runs.name} is deleted: they share the chip, a core each.")
    for pod in facts.halves:
        yield from _pod(pod)


def ending(facts: Ending) -> Iterator[str]:
    """What is left."""
    yield from _title(4, "The pods are gone and the driver was told to stop")
    left = {
        "sockets": facts.sockets,
        "CDI specs": facts.cdi_specs,
        "records": facts.records,
        "claims": facts.claims,
        "slices": facts.slices,
    }
    counts = ", ".join(f"{len(names)} {what}" for what, names in left.items())
    yield f"   exit status {facts.exit_status}; left: {counts}"
    yield from _text("(Slices stay when a driver stops; a kubelet removes them after 30 s, the simulated one at once.)")
    yield from (f"   {what}: {', '.join(names)}" for what, names in left.items() if names)


def verdict(story: Story) -> Iterator[str]:
    """What was checked, and whether it held."""
    if story.failure:
        yield ""
        yield "The run stopped:"
        yield from textwrap.indent(story.failure, "   ").splitlines()
    yield from _title(None, "What this run showed")
    for each in story.checks:
        yield f"   {_mark(each)} {each.claim}"
    missed = sum(not each.held for each in story.checks)
    total = len(story.checks)
    yield ""
    said = f"{missed} of {total} did NOT hold" if missed or story.failure else f"all {total} held"
    yield f"{said}; {story.seconds:.1f} s"


def _published(facts: Published) -> Iterator[str]:
    yield from _text(
        f"The driver, process {facts.pid}, has read the machine, registered with the kubelet and published "
        f"{_count(len(facts.slices), 'ResourceSlice')} in the pool {facts.pool}."
    )
    totals = ", ".join(f"{name} = {value}" for name, value in facts.counters.items())
    yield f"   counters: {totals}"
    for device in facts.devices:
        draws = ", ".join(f"{value} of {name}" for name, value in device.draws.items())
        yield f"   {device.name:<12} {device.type:<6} {_count(device.cores, 'core'):<8} draws {draws or 'nothing'}"


def _pod(pod: PodFacts) -> Iterator[str]:
    got = f" with {', '.join(pod.devices)}" if pod.devices else ""
    yield f"   {pod.name} asks {pod.asks}: {pod.phase}{got}"
    if pod.reason:
        yield from _wrapped(pod.reason, 9)
    if pod.nodes or pod.env:
        sees = [_node(pod, at) for at in range(len(pod.nodes))] + [f"{k}={v}" for k, v in pod.env.items()]
        yield f"         its container sees {', '.join(sees)}"
    if pod.cores:
        yield f"         behind it: {_cores(pod.cores)}"


def _node(pod: PodFacts, at: int) -> str:
    node = pod.nodes[at]
    host = "" if node.host_path == node.path else f", host {node.host_path}"
    return f"{node.path} ({node.device}, {node.permissions}{host})"


def _cores(cores: Sequence[tuple[int, int]]) -> str:
    chips = sorted({chip for chip, _ in cores})
    told = []
    for chip in chips:
        numbers = [str(core) for owner, core in cores if owner == chip]
        told.append(f"core{'s' if len(numbers) > 1 else ''} {' and '.join(numbers)} of chip {chip}")
    return "; ".join(told)


def _mark(each: Check) -> str:
    return "ok    " if each.held else "FAILED"


def _title(number: int | None, text: str) -> Iterator[str]:
    yield ""
    yield f"{number}. {text}" if number else text


def _text(text: str) -> Iterator[str]:
    yield from _wrapped(text, 3)


def _wrapped(text: str, indent: int) -> Iterator[str]:
    """Names stay whole, so that they can be searched for."""
    margin = " " * indent
    yield from textwrap.wrap(
        text, _WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False, break_long_words=False
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
