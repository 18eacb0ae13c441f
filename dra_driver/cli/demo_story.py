"""What the demo tells: facts that a run filled in, and the checks that are computed from them. No output here.

Every field is data from the run; JSON output is this tree as it is. `Check.held` decides the exit status.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class ChipFacts:
    """One chip as the driver's reader found it."""

    index: int
    family: str
    cores: int
    serial: str
    device: str  # "243:0"


@dataclass(frozen=True)
class MachineFacts:
    """The simulated machine, read back through the driver's own reader."""

    size: str
    driver_version: str
    chips: tuple[ChipFacts, ...]


@dataclass(frozen=True)
class NodeFacts:
    """A device node in a container."""

    path: str
    host_path: str
    device: str  # "243:0"
    permissions: str


@dataclass(frozen=True)
class PodFacts:
    """A pod at one moment. `cores` are the physical ones behind it, as (chip, core)."""

    name: str
    asks: str
    phase: str
    reason: str = ""
    devices: tuple[str, ...] = ()  # allocated ids or device names
    nodes: tuple[NodeFacts, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    cores: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TwoLedgers:
    """The way it was: a device plugin with two resource names."""

    sockets: dict[str, str]
    offered: dict[str, int]
    left_after_a: dict[str, int]
    a: PodFacts
    b: PodFacts

    @property
    def shared(self) -> tuple[tuple[int, int], ...]:
        """Cores that both pods hold."""
        return tuple(sorted(set(self.a.cores) & set(self.b.cores)))


@dataclass(frozen=True)
class PublishedDevice:
    """A device of the ResourceSlices and what it draws on the counters."""

    name: str
    type: str
    cores: int
    draws: dict[str, str]


@dataclass(frozen=True)
class Published:
    """What the driver's process wrote into the API."""

    pid: int
    slices: tuple[str, ...]
    pool: str
    counters: dict[str, str]
    devices: tuple[PublishedDevice, ...]


@dataclass(frozen=True)
class OnePool:
    """The same two pods with ResourceClaims, then two that share the chip core by core."""

    published: Published
    a: PodFacts
    b_waits: PodFacts
    b_runs: PodFacts
    halves_wait: tuple[PodFacts, ...]
    halves: tuple[PodFacts, ...]


@dataclass(frozen=True)
class Ending:
    """What is left when the pods are gone and the driver was told to stop."""

    exit_status: int
    sockets: tuple[str, ...]
    cdi_specs: tuple[str, ...]
    records: tuple[str, ...]
    claims: tuple[str, ...]
    slices: tuple[str, ...]  # once the kubelet has missed the driver


@dataclass(frozen=True)
class Check:
    """Something that the story claims, and whether this run shows it."""

    claim: str
    held: bool


@dataclass(frozen=True)
class Story:
    """The whole run. A part is None when the run didn't get that far; `failure` then says why."""

    machine: MachineFacts | None = None
    two_ledgers: TwoLedgers | None = None
    one_pool: OnePool | None = None
    ending: Ending | None = None
    failure: str = ""
    seconds: float = 0.0
    checks: tuple[Check, ...] = ()

    @property
    def held(self) -> bool:
        """Whether everything was shown."""
        return not self.failure and bool(self.checks) and all(check.held for check in self.checks)


def check(story: Story) -> tuple[Check, ...]:
    """Every claim of the story against its facts; a part that is missing fails its claims."""
    return (*_of_machine(story.machine), *_old(story.two_ledgers), *_new(story.one_pool), *_end(story.ending))


def _of_machine(machine: MachineFacts | None) -> list[Check]:
    found = bool(machine and machine.chips and all(chip.cores for chip in machine.chips))
    return [Check("the driver's reader finds the machine's chip and its cores", found)]


def _old(old: TwoLedgers | None) -> list[Check]:
    return [
        Check("device plugin: both pods are admitted", bool(old and old.a.phase == old.b.phase == "Running")),
        Check("device plugin: the same cores are in both pods", bool(old and old.shared)),
    ]


def _new(new: OnePool | None) -> list[Check]:
    drawn = bool(new and new.published.devices and all(each.draws for each in new.published.devices))
    halves, waiting = (new.halves, new.halves_wait) if new else ((), ())
    return [
        Check("coreslice: every device draws on its chip's counter", drawn and bool(new and new.published.counters)),
        Check("coreslice: pod A runs", bool(new and new.a.phase == "Running" and new.a.cores)),
        Check(
            "coreslice: pod B waits while pod A has the chip, and is told so",
            bool(new and new.b_waits.phase == "Pending" and _names_devices(new)),
        ),
        Check(
            "coreslice: pod B runs when A is gone, and sees the chip's node",
            bool(new and new.b_runs.phase == "Running" and new.b_runs.nodes and new.b_runs.cores),
        ),
        Check(
            "coreslice: one-core pods wait while pod B has the chip, for want of its counter",
            bool(waiting) and all(pod.phase == "Pending" and _names_counter(new, pod) for pod in waiting),
        ),
        Check(
            "coreslice: then both run side by side on different cores",
            len(halves) > 1 and all(pod.phase == "Running" for pod in halves) and _disjoint(halves),
        ),
        Check(
            "coreslice: each of them is told its own cores only",
            bool(halves) and all(_visible(pod) == {core for _, core in pod.cores} for pod in halves),
        ),
    ]


def _end(end: Ending | None) -> list[Check]:
    rest = (*end.sockets, *end.cdi_specs, *end.records, *end.claims, *end.slices) if end else ()
    return [
        Check("the driver stops with status 0", bool(end and end.exit_status == 0)),
        Check("no socket, CDI spec, record, claim or slice is left", bool(end and not rest)),
    ]


def _names_devices(new: OnePool) -> bool:
    return bool(new.a.devices) and all(
        f"{name}: in use by {new.a.name}" in new.b_waits.reason for name in new.a.devices
    )


def _names_counter(new: OnePool | None, pod: PodFacts) -> bool:
    counters = new.published.counters if new else ()
    return any(f"counter {name} has 0 of" in pod.reason for name in counters)


def _disjoint(pods: tuple[PodFacts, ...]) -> bool:
    cores = [core for pod in pods for core in pod.cores]
    return bool(cores) and len(cores) == len(set(cores))


def _visible(pod: PodFacts) -> set[int]:
    """Cores of NEURON_RT_VISIBLE_CORES; of one chip, so that container and chip count alike."""
    first, _, last = pod.env.get("NEURON_RT_VISIBLE_CORES", "").partition("-")
    return set(range(int(first), int(last or first) + 1)) if first.isdecimal() else set()
