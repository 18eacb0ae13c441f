"""`coreslice state`: what the driver keeps on its node, and being rid of it."""

import signal
from pathlib import Path

import pytest

from dra_driver.cli.main import main
from dra_driver.simulator.machines import make_machine, put
from tests.contract.driver.conftest import DRIVER, Rig


@pytest.fixture
def out(rig: Rig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> "Out":
    monkeypatch.setenv("CDI_ROOT", str(rig.paths.cdi))
    monkeypatch.setenv("KUBELET_PLUGINS_DIRECTORY_PATH", str(rig.paths.plugins))
    monkeypatch.setenv("KUBELET_REGISTRAR_DIRECTORY_PATH", str(rig.paths.registry))
    monkeypatch.setenv("PROC_ROOT", str(rig.machine.proc))
    return Out(capsys)


class Out:
    """Runs the command in this process, on the environment that the driver's pod has."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.error = ""

    def __call__(self, *arguments: str, status: int = 0) -> list[str]:
        assert main(["state", *arguments]) == status
        captured = self._capsys.readouterr()
        self.error = captured.err
        return captured.out.splitlines()


def left(rig: Rig) -> list[Path]:
    """Everything of the driver's on the node."""
    folders = (rig.paths.plugins, rig.paths.registry, rig.paths.cdi)
    return [path for folder in folders if folder.exists() for path in folder.rglob("*")]


def test_show_tells_who_holds_what(rig: Rig, out: Out) -> None:
    rig.start()
    rig.prepare(ref := rig.core("a"))
    lines = out("show")
    (about,) = [line for line in lines if "default/a" in line]
    assert "core-0-0" in about
    assert str(rig.specs()[0]) in about
    assert ref.uid in about
    assert sum("an instance of the driver serves" in line for line in lines) == 2
    before = (rig.records(), rig.specs(), rig.sockets())
    out("show")
    assert (rig.records(), rig.specs(), rig.sockets()) == before
    rig.unprepare(ref)
    assert any("no claim is prepared" in line for line in out("show"))


def test_show_on_a_node_without_the_driver(out: Out) -> None:
    (line,) = out("show")
    assert DRIVER in line


def test_show_tells_of_what_is_wrong(rig: Rig, out: Out) -> None:
    rig.start()
    rig.prepare(rig.core("a"))
    rig.prepare(rig.core("b", "core-0-1"))
    damaged, whole = rig.records()
    damaged.write_text("cut off")
    whole.unlink()
    rig.process.stop()
    lines = out("show", status=1)
    assert any("damaged record" in line and str(damaged) in line and "checksum" in line for line in lines)
    assert any(line.startswith("CDI file without a record") and whole.stem in line for line in lines)


def test_record_of_an_earlier_boot_is_told_as_one(rig: Rig, out: Out) -> None:
    rig.start()
    rig.prepare(rig.core("a"))
    rig.process.stop()
    put(rig.machine.proc / "sys/kernel/random/boot_id", "another\n")
    assert any("of an earlier boot" in line for line in out("show"))


def test_clean_is_refused_while_the_driver_serves(rig: Rig, out: Out) -> None:
    rig.start()
    rig.prepare(rig.core("a"))
    before = (rig.records(), rig.specs(), rig.sockets())
    assert out("clean", status=1) == []
    assert "serves this node" in out.error
    assert "uninstall it first" in out.error
    assert (rig.records(), rig.specs(), rig.sockets()) == before


def test_clean_removes_all_that_a_driver_left(rig: Rig, out: Out) -> None:
    """As after a forced uninstall: the claims are still prepared."""
    rig.start()
    rig.prepare(rig.core("a"))
    rig.prepare(rig.core("b", "core-0-1"))
    rig.process.stop()
    lines = out("clean")
    assert sum("record and CDI file of claim default/" in line for line in lines) == 2
    assert left(rig) == []
    assert f"removed folder {rig.paths.plugins / DRIVER}" in lines
    assert out("clean") == [f"nothing of {DRIVER} is left here"]


def test_clean_removes_sockets_of_a_killed_driver_and_unfinished_files(rig: Rig, out: Out) -> None:
    rig.start()
    rig.prepare(rig.core("a"))
    assert rig.process.stop(signal.SIGKILL) == -signal.SIGKILL
    records, (spec,) = rig.paths.plugins / DRIVER / "claims", rig.specs()
    (records / ".uid.tmp").write_text("half")
    (rig.paths.cdi / f".{spec.name}.x.tmp").write_text("half")
    rig.records()[0].write_text("damaged")
    assert len(rig.sockets()) == 2
    lines = out("clean")
    assert sum(line.startswith("removed socket") for line in lines) == 2
    assert left(rig) == []


def test_clean_leaves_what_is_others(rig: Rig, out: Out) -> None:
    rig.start()
    rig.prepare(rig.core("a"))
    rig.process.stop()
    others = [
        rig.paths.cdi / "gpu.example.dev-claim_1.json",
        rig.paths.cdi / "neuron.aws.com-claim_1.json",
        rig.paths.plugins / "other.example.dev" / "state",
        rig.paths.plugins / DRIVER / "notes-of-the-administrator",
    ]
    for path in others:
        put(path, "{}")
    out("clean")
    assert sorted(path for path in left(rig) if path.is_file()) == sorted(others)


def test_clean_by_force_beside_a_driver_that_serves(rig: Rig, out: Out) -> None:
    """Its records go, its sockets and its lock stay: it serves on."""
    rig.start()
    rig.prepare(ref := rig.core("a"))
    out("clean", "--force")
    assert "left" in out.error
    assert (rig.records(), rig.specs()) == ([], [])
    assert len(rig.sockets()) == 2
    rig.unprepare(ref)
    rig.prepare(rig.core("b"))
    assert rig.said("was removed while the driver ran") == []


def test_a_driver_that_comes_back_after_clean_starts_afresh(rig: Rig, out: Out) -> None:
    rig.start()
    rig.prepare(rig.core("a"))
    rig.process.stop()
    out("clean")
    rig.start()
    rig.prepare(rig.core("b"))
    assert len(rig.records()) == 1


def test_wrong_setting_is_wrong_use(out: Out) -> None:
    out("clean", "--cdi-root=cdi", status=2)
    assert "--cdi-root" in out.error


def test_the_lnc_in_force_is_told_and_removed(rig: Rig, out: Out) -> None:
    rig.machine = make_machine("trn2.3xlarge", rig.paths.root / "trn2", stats=False)
    rig.start("--lnc=1")
    assert "LNC 1 is in force" in out("show")
    rig.process.stop()
    assert any("LNC in force" in line for line in out("clean"))
    assert left(rig) == []
    rig.start()
    assert "LNC 2 is in force" in out("show")
