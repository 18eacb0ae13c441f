"""`coreslice ls` on a made machine and written records: who holds what, and what is wrong is told, not hidden."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdi.models import ContainerEdits, Spec
from cdi.models import Device as CdiDevice
from dra_driver.claims import lnc
from dra_driver.claims.lnc import InForce
from dra_driver.claims.records import HeldDevice, Record, encode
from dra_driver.claims.refusals import PodRef
from dra_driver.cli.main import main
from dra_driver.inventory.devices import devices
from dra_driver.kubelet.types import ClaimRef
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.machines import MachinePaths, make_machine, remove_chip

Save = Callable[..., None]
Ls = Callable[..., tuple[int, str, str]]


@pytest.fixture
def paths(tmp_path: Path) -> MachinePaths:
    return make_machine("trn1.2xlarge", tmp_path / "m")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "claims"
    folder.mkdir()
    return folder


@pytest.fixture
def save(paths: MachinePaths, state: Path) -> Save:
    """Writes the record of a claim on one device."""

    def save(name: str, device: str, *, owner: str = "", users: tuple[str, ...] = (), admin: bool = False) -> None:
        machine = read_machine(sysfs_root=paths.sysfs, proc_root=paths.proc)
        offered = {each.name: each for at in (1, 2) for each in devices(machine, lnc=at)}
        held = HeldDevice("r", "pool", admin, ("s",), offered[device])
        edits = ContainerEdits(env=("A=b",))
        spec = Spec(
            cdi_version="0.5.0", kind="neuron.test/claim", devices=(CdiDevice(name=device, container_edits=edits),)
        )
        record = Record(
            claim=ClaimRef("ns", name, f"uid-{name}"),
            owner=PodRef(owner, f"uid-{owner}") if owner else None,
            users=tuple(PodRef(user, f"uid-{user}") for user in users),
            devices=(held,),
            unit=(f"uid-{name}",),
            boot_id="boot",
            spec=spec,
        )
        (state / f"uid-{name}.record").write_bytes(encode(record))

    return save


@pytest.fixture
def ls(paths: MachinePaths, state: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ls:
    for name in ("NEURON_LOGICAL_NC_CONFIG", "LNC_FILE"):
        monkeypatch.delenv(name, raising=False)

    def ls(*flags: str, state_dir: Path = state) -> tuple[int, str, str]:
        roots = ["--sysfs-root", str(paths.sysfs), "--proc-root", str(paths.proc)]
        status = main(["ls", *roots, "--state-dir", str(state_dir), *flags])
        output = capsys.readouterr()
        return status, output.out, output.err

    return ls


def chips(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(output)
    return found


def test_free_cores(ls: Ls) -> None:
    status, out, err = ls()
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        "trn1.2xlarge, kernel driver 2.30.2.0, 1 usable Neuron chips",
        "CHIP  CORE  SERIAL            HELD BY",
        "0     0     9ff5434815c8bd80  -",
        "0     1     9ff5434815c8bd80  -",
    ]


def test_a_cores_holder_is_its_pod(ls: Ls, save: Save) -> None:
    save("mine", "core-0-1", owner="pod-a")
    _, out, _ = ls()
    assert out.splitlines()[2:] == [
        "0     0     9ff5434815c8bd80  -",
        "0     1     9ff5434815c8bd80  ns/pod-a (claim ns/mine, device core-0-1)",
    ]


def test_a_chips_holder_has_all_of_its_cores(ls: Ls, save: Save) -> None:
    save("shared", "chip-0", users=("pod-a", "pod-b"))
    _, out, _ = ls()
    assert [
        line.split("  ", 3)[-1].endswith("ns/pod-a,pod-b (claim ns/shared, device chip-0)")
        for line in out.splitlines()[2:]
    ] == [True, True]


def test_monitoring_is_said_to_be(ls: Ls, save: Save) -> None:
    save("mine", "core-0-0", owner="pod-a")
    save("watch", "chip-0", admin=True)
    _, out, _ = ls()
    lines = out.splitlines()[2:]
    assert (
        "ns/pod-a (claim ns/mine, device core-0-0); no pod (claim ns/watch, device chip-0, monitoring only)" in lines[0]
    )
    assert lines[1].endswith("no pod (claim ns/watch, device chip-0, monitoring only)")


def test_json_has_the_fields_of_neuron_ls(ls: Ls, save: Save) -> None:
    save("mine", "core-0-1", owner="pod-a")
    status, out, _ = ls("-o", "json")
    assert status == 0
    assert chips(out) == [
        {
            "neuron_device": 0,
            "bdf": "",
            "cpu_affinity": "",
            "numa_node": "-1",
            "connected_to": None,
            "nc_count": 2,
            "memory_size": 32 << 30,
            "neuroncore_ids": [0, 1],
            "neuron_processes": [],
            "instance_type": "trn1.2xlarge",
            "serial_number": "9ff5434815c8bd80",
            "holders": [
                {
                    "claim": {"namespace": "ns", "name": "mine", "uid": "uid-mine"},
                    "pods": [{"name": "pod-a", "uid": "uid-pod-a"}],
                    "device": "core-0-1",
                    "request": "r",
                    "cores": [1],
                    "admin_access": False,
                }
            ],
        }
    ]


# Hardware that knows LNC 2


@pytest.fixture
def large(paths: MachinePaths) -> None:
    """The machine is a trn2.3xlarge: a chip of eight physical cores."""
    shutil.rmtree(paths.sysfs.parent)
    make_machine("trn2.3xlarge", paths.sysfs.parent, stats=False)


def counted(ls: Ls, *flags: str) -> tuple[int, int]:
    """The LNC that it tells and the number of cores, the same in both forms."""
    _, out, _ = ls(*flags)
    heading, _, *lines = out.splitlines()
    (chip,) = chips(ls("-o", "json", *flags)[1])
    assert heading.endswith(f", LNC {chip['logical_neuroncore_config']}")
    assert chip["neuroncore_ids"] == list(range(chip["nc_count"]))
    assert len(lines) == chip["nc_count"]
    return chip["logical_neuroncore_config"], chip["nc_count"]


@pytest.mark.usefixtures("large")
def test_cores_are_counted_at_the_lnc_in_force_whatever_is_wished_for(ls: Ls, state: Path, tmp_path: Path) -> None:
    (state / lnc.FILE).write_bytes(lnc.encode(InForce(1)))
    (tmp_path / "file").write_text("NEURON_LOGICAL_NC_CONFIG=2\n")
    assert counted(ls, "--lnc", "2", "--lnc-file", str(tmp_path / "file")) == (1, 8)


@pytest.mark.usefixtures("large")
def test_a_lost_lnc_is_that_of_the_records(ls: Ls, save: Save, tmp_path: Path) -> None:
    save("mine", "core-0-5-lnc1", owner="pod-a")
    assert counted(ls, "--lnc", "2") == (1, 8)


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        ("auto", "NEURON_LOGICAL_NC_CONFIG=1\n", 1),
        ("2", "NEURON_LOGICAL_NC_CONFIG=1\n", 2),
        ("auto", "nonsense\n", 2),
        ("auto", None, 2),
    ],
    ids=["file", "setting before file", "file that says nothing", "neither"],
)
def test_before_a_driver_has_run_the_lnc_is_the_one_wished_for(
    ls: Ls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, text: str | None, expected: int
) -> None:
    if text:
        (tmp_path / "file").write_text(text)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", setting)
    assert counted(ls, "--lnc-file", str(tmp_path / "file")) == (expected, 8 // expected)


@pytest.mark.usefixtures("large")
def test_holders_are_shown_by_logical_core(ls: Ls, save: Save) -> None:
    save("mine", "core-0-2-lnc2", owner="pod-a")
    save("watch", "chip-0-lnc2", admin=True)
    _, out, _ = ls()
    assert ["pod-a" in line for line in out.splitlines()[2:]] == [False, False, True, False]
    (chip,) = chips(ls("-o", "json")[1])
    assert {each["device"]: each["cores"] for each in chip["holders"]} == {
        "core-0-2-lnc2": [2],
        "chip-0-lnc2": [0, 1, 2, 3],
    }


def test_hardware_that_knows_one_lnc_has_no_say_in_it(ls: Ls) -> None:
    _, out, _ = ls("--lnc", "2")
    assert "LNC" not in out
    assert len(out.splitlines()) == 4


def test_no_chips_is_status_1_and_an_empty_list(ls: Ls, paths: MachinePaths) -> None:
    remove_chip(paths, 0)
    status, out, err = ls("-o", "json")
    assert (status, chips(out)) == (1, [])
    assert "no usable Neuron chip on this machine" in err


def test_a_holder_whose_chip_is_gone_is_still_shown(ls: Ls, save: Save, paths: MachinePaths) -> None:
    save("mine", "chip-0", owner="pod-a")
    remove_chip(paths, 0)
    status, out, _ = ls()
    assert status == 1
    assert out.splitlines()[-1] == "chip-0, whose chip is gone: ns/pod-a (claim ns/mine, device chip-0)"


def test_a_damaged_record_is_told_and_the_others_are_shown(ls: Ls, save: Save, state: Path) -> None:
    save("mine", "core-0-0", owner="pod-a")
    save("torn", "core-0-1", owner="pod-b")
    torn = state / "uid-torn.record"
    torn.write_bytes(torn.read_bytes()[:-40])
    status, out, err = ls()
    assert status == 1
    assert "ns/pod-a" in out
    assert f"coreslice ls: record {torn} can't be read: " in err


def test_without_a_records_folder_it_says_so(ls: Ls, state: Path) -> None:
    status, out, err = ls(state_dir=state / "gone")
    assert status == 0
    assert len(out.splitlines()) == 4
    assert err == f"coreslice ls: no records at {state / 'gone'}: no driver has run here yet\n"
    assert not (state / "gone").exists()


def test_a_records_folder_that_cannot_be_read_is_an_error(ls: Ls, tmp_path: Path) -> None:
    """Not like a folder without records: somebody may hold everything."""
    status, out, err = ls(state_dir=tmp_path / "m" / "sys" / "module" / "neuron" / "version")
    assert (status, out) == (1, "")
    assert "can't read the records in" in err


def test_looking_changes_nothing(ls: Ls, save: Save, state: Path) -> None:
    save("mine", "core-0-0", owner="pod-a")
    before = {path.name: path.stat().st_mtime_ns for path in state.iterdir()}
    ls()
    ls("-o", "json")
    assert {path.name: path.stat().st_mtime_ns for path in state.iterdir()} == before
