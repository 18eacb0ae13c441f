"""What one container gets: nodes in host order from 0, one run of cores, or a refusal."""

import itertools
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.models import ContainerEdits, Spec
from cdi.models import Device as CdiDevice
from cdi.validate import faults
from dra_driver.claims.grant import edits
from dra_driver.claims.hardware import Snapshot
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.inventory.devices import Device, physical_cores

MakeSnapshot = Callable[..., Snapshot]

FITTING = [
    (["core-0-0"], ["neuron0"], "0"),
    (["core-0-1"], ["neuron0"], "1"),
    (["core-0-1", "core-0-0"], ["neuron0"], "0-1"),
    (["core-2-1"], ["neuron2"], "1"),  # counted from the container's first chip, not from the host's
    (["core-1-1", "core-2-0"], ["neuron1", "neuron2"], "1-2"),
    (["chip-3"], ["neuron3"], None),
    (["chip-2", "chip-1"], ["neuron1", "neuron2"], None),
    (["core-0-1", "chip-1"], ["neuron0", "neuron1"], "1-3"),  # one part is enough to need the run
    (["core-0-0", "core-0-0"], ["neuron0"], "0"),
]
WITH_A_GAP = [
    (["core-0-0", "core-1-0"], "cores [0, 2]"),
    (["core-0-0", "core-2-0"], "chips [0, 2]"),
    (["chip-0", "chip-2"], "chips [0, 2]"),
    (["core-0-0", "chip-1"], "cores [0, 2, 3]"),
]


def visible(grant: ContainerEdits) -> str | None:
    found = [
        value for name, _, value in (entry.partition("=") for entry in grant.env) if name.endswith("VISIBLE_CORES")
    ]
    assert len(found) <= 1
    return found[0] if found else None


def cores_of(grant: ContainerEdits, cores_per_chip: int) -> set[tuple[int, int]]:
    """The host's (chip, logical core) pairs that a runtime in the container uses, read as the runtime reads them."""
    hosts = [int(node.host_path.removeprefix("/dev/neuron")) for node in grant.device_nodes]
    everything = [(chip, core) for chip in hosts for core in range(cores_per_chip)]
    told = visible(grant)
    if told is None:
        return set(everything)
    first, _, last = told.partition("-")
    return set(everything[int(first) : int(last or first) + 1])


@pytest.mark.parametrize(("names", "hosts", "run"), FITTING)
def test_bc066_what_fits_has_its_nodes_from_zero_and_one_run(
    snapshot: MakeSnapshot, names: list[str], hosts: list[str], run: str | None
) -> None:
    now = snapshot(4)
    grant = edits([now.devices[name] for name in names], now.machine)
    assert [node.host_path for node in grant.device_nodes] == [f"/dev/{host}" for host in hosts]
    assert [node.path for node in grant.device_nodes] == [f"/dev/neuron{i}" for i in range(len(hosts))]
    assert visible(grant) == run


@pytest.mark.parametrize(("names", "told"), WITH_A_GAP)
def test_bc072_a_gap_is_refused_and_named(snapshot: MakeSnapshot, names: list[str], told: str) -> None:
    now = snapshot(4)
    with pytest.raises(Refusal) as caught:
        edits([now.devices[name] for name in names], now.machine)
    assert caught.value.reason is Reason.NOT_CONTIGUOUS
    assert told in caught.value.detail
    assert all(name in caught.value.detail for name in names)


def test_a_node_says_everything_a_runtime_would_else_look_up_on_the_host(snapshot: MakeSnapshot) -> None:
    now = snapshot(4)
    (node,) = edits([now.devices["core-2-0"]], now.machine).device_nodes
    assert node.model_dump(exclude_defaults=True) == {
        "path": "/dev/neuron0",
        "hostPath": "/dev/neuron2",
        "type": "c",
        "major": 243,
        "minor": 2,
        "fileMode": 0o666,
        "permissions": "rw",
    }


def test_a_whole_chip_leaves_the_pods_own_core_count_alone_unless_told_otherwise(snapshot: MakeSnapshot) -> None:
    now = snapshot(2)
    chips = [now.devices["chip-0"], now.devices["chip-1"]]
    assert edits(chips, now.machine).env == ()
    assert edits(chips, now.machine, visible_cores_on_chips=True).env == ("NEURON_RT_VISIBLE_CORES=0-3",)


def test_the_logical_core_size_is_told_where_the_hardware_has_two(snapshot: MakeSnapshot) -> None:
    now = snapshot(2, cores=8, architecture="NCv3", lnc=2)
    assert edits([now.devices["core-1-3-lnc2"]], now.machine).env == (
        "NEURON_RT_VISIBLE_CORES=3",
        "NEURON_LOGICAL_NC_CONFIG=2",
    )
    assert edits([now.devices["chip-1-lnc2"]], now.machine).env == ("NEURON_LOGICAL_NC_CONFIG=2",)


def test_devices_of_two_logical_core_sizes_never_meet(snapshot: MakeSnapshot) -> None:
    one, two = (snapshot(1, cores=8, architecture="NCv3", lnc=lnc) for lnc in (1, 2))
    with pytest.raises(Refusal) as caught:
        edits([one.devices["core-0-0-lnc1"], two.devices["core-0-1-lnc2"]], one.machine)
    assert caught.value.reason is Reason.DIFFERENT_GRANTS


def test_a_chip_that_is_gone_is_named(snapshot: MakeSnapshot) -> None:
    with pytest.raises(Refusal, match="chip 1 of core-1-0") as caught:
        edits([snapshot(2).devices["core-1-0"]], snapshot(1).machine)
    assert caught.value.reason is Reason.UNKNOWN_DEVICE


def test_a_watched_chip_adds_its_node_and_none_of_its_cores(snapshot: MakeSnapshot) -> None:
    """Somebody else holds the rest of that chip: the container's own run stays its own."""
    now = snapshot(2)
    grant = edits([now.devices["core-0-0"]], now.machine, watched=[now.devices["chip-0"], now.devices["chip-1"]])
    assert [node.host_path for node in grant.device_nodes] == ["/dev/neuron0", "/dev/neuron1"]
    assert visible(grant) == "0"


def test_a_whole_chip_beside_a_watched_one_is_told_as_cores(snapshot: MakeSnapshot) -> None:
    """Without the variable the runtime would take the watched chip too, and somebody holds that."""
    now = snapshot(3)
    grant = edits([now.devices["chip-2"]], now.machine, watched=[now.devices["chip-1"]])
    assert [node.host_path for node in grant.device_nodes] == ["/dev/neuron1", "/dev/neuron2"]
    assert visible(grant) == "2-3"
    assert visible(edits([now.devices["chip-2"]], now.machine, watched=[now.devices["core-2-0"]])) is None


def test_a_container_that_only_watches_sees_what_it_watches(snapshot: MakeSnapshot) -> None:
    now = snapshot(2)
    assert visible(edits([], now.machine, watched=[now.devices["core-1-1"]])) == "1"
    assert edits([], now.machine, watched=[now.devices["chip-1"]]).env == ()


@st.composite
def picks(draw: st.DrawFn) -> tuple[int, str, int, frozenset[str]]:
    """Chips, architecture, logical core size, and any set of that node's device names."""
    cores, architecture, lnc = draw(st.sampled_from([(2, "NCv2", 1), (8, "NCv3", 1), (8, "NCv3", 2), (4, "NCv1", 1)]))
    chips = draw(st.integers(1, 5))
    suffix = f"-lnc{lnc}" if architecture == "NCv3" else ""
    names = [f"chip-{chip}{suffix}" for chip in range(chips)]
    names += [f"core-{chip}-{core}{suffix}" for chip, core in itertools.product(range(chips), range(cores // lnc))]
    first = draw(st.integers(0, len(names) - 1))
    window = st.frozensets(st.sampled_from(names[first : first + 4]), min_size=1)
    return chips, architecture, lnc, draw(st.frozensets(st.sampled_from(names), min_size=1, max_size=6) | window)


@given(pick=picks())
def test_whatever_is_asked_the_container_has_exactly_its_cores_or_a_refusal(
    snapshot: MakeSnapshot, pick: tuple[int, str, int, frozenset[str]]
) -> None:
    chips, architecture, lnc, names = pick
    cores = {"NCv1": 4, "NCv2": 2, "NCv3": 8}[architecture]
    now = snapshot(chips, cores=cores, architecture=architecture, lnc=lnc)
    wanted = [now.devices[name] for name in names]
    grant = _outcome(wanted, now)
    if not isinstance(grant, ContainerEdits):
        assert grant is Reason.NOT_CONTIGUOUS
        assert not _is_one_run(wanted, cores // lnc)
        return
    assert cores_of(grant, cores // lnc) == _logical(wanted)
    assert {node.minor for node in grant.device_nodes} == {chip for device in wanted for chip in device.chips}
    assert all(re.fullmatch(r"/dev/neuron[0-9]+", node.host_path) for node in grant.device_nodes)
    assert not faults(
        Spec(cdi_version="0.5.0", kind="a.b/claim", devices=(CdiDevice(name="x", container_edits=grant),))
    )


@given(pick=picks(), seed=st.randoms(use_true_random=False))
def test_the_order_in_which_devices_come_changes_nothing(
    snapshot: MakeSnapshot, pick: tuple[int, str, int, frozenset[str]], seed: "object"
) -> None:
    chips, architecture, lnc, names = pick
    cores = {"NCv1": 4, "NCv2": 2, "NCv3": 8}[architecture]
    now = snapshot(chips, cores=cores, architecture=architecture, lnc=lnc)
    wanted = [now.devices[name] for name in sorted(names)]
    shuffled = [*wanted, wanted[0]]
    seed.shuffle(shuffled)  # type: ignore[attr-defined]
    assert _outcome(wanted, now) == _outcome(shuffled, now)


def _outcome(wanted: list[Device], now: Snapshot) -> object:
    try:
        return edits(wanted, now.machine)
    except Refusal as refusal:
        return refusal.reason


def _logical(wanted: list[Device]) -> set[tuple[int, int]]:
    """By way of the physical cores, so by another one than the code under test."""
    lnc = wanted[0].lnc
    return {(chip, core // lnc) for device in wanted for chip, core in physical_cores(device)}


def _is_one_run(wanted: list[Device], cores_per_chip: int) -> bool:
    flat = sorted(chip * cores_per_chip + core for chip, core in _logical(wanted))
    return flat == list(range(flat[0], flat[0] + len(flat)))
