"""`coreslice demo` as its users start it: what it prints, its exit status, and that nothing stays behind."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cli import demo_run
from dra_driver.cli.demo_run import Run
from dra_driver.cli.demo_story import Story

COMMAND = [sys.executable, "-m", "dra_driver.cli.main", "demo"]
TIMEOUT = 60.0


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the demo makes its own folder, so that a test can see whether it is gone."""
    with tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as path:
        yield Path(path)


def run(scratch: Path, *flags: str, prefix: list[str] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(scratch)}
    command = [*(prefix or []), *COMMAND, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, env=environment, check=False)


@pytest.fixture(scope="module")
def told() -> Iterator[dict[str, Any]]:
    """One run's facts, for the tests that only read them."""
    with tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as path:
        done = run(Path(path), "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        assert list(Path(path).iterdir()) == []
        yield json.loads(done.stdout)


def test_the_story_is_told_and_holds(scratch: Path) -> None:
    done = run(scratch)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for expected in (
        "1. The machine: trn1.2xlarge, 1 chip, 2 cores",
        "Both were admitted, and both hold cores 0 and 1 of chip 0.",
        "pod-b asks 2 cores (class neuron-cores-2): Pending",
        "counter chip-0 has 0 of 2 left, needs 1",
        "NEURON_RT_VISIBLE_CORES=1",
        "exit status 0; left: 0 sockets, 0 CDI specs, 0 records, 0 claims, 0 slices",
    ):
        assert expected in done.stdout
    assert re.search(r"^all \d+ held; \d+\.\d s$", done.stdout.splitlines()[-1])
    assert "FAILED" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 110
    assert list(scratch.iterdir()) == []


def test_without_any_capability_it_is_the_same(scratch: Path) -> None:
    """No mknod, no overriding of file modes; who isn't root has none to drop."""
    drop = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    done = run(scratch, prefix=drop)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_two_ledgers_give_the_same_cores_twice(told: dict[str, Any]) -> None:
    old = told["two_ledgers"]
    assert old["offered"] == {"aws.amazon.com/neuron": 1, "aws.amazon.com/neuroncore": 2}
    assert old["left_after_a"] == {"aws.amazon.com/neuron": 0, "aws.amazon.com/neuroncore": 2}
    assert old["a"]["cores"] == old["b"]["cores"] == [[0, 0], [0, 1]]
    assert old["a"]["nodes"] == old["b"]["nodes"]
    assert (old["a"]["env"], old["b"]["env"]) == ({}, {"NEURON_RT_VISIBLE_CORES": "0-1"})


def test_one_pool_never_does(told: dict[str, Any]) -> None:
    new = told["one_pool"]
    published = new["published"]
    assert published["counters"] == {"chip-0": "2"}
    assert {device["name"]: device["draws"] for device in published["devices"]} == {
        "core-0-0": {"chip-0": "1"},
        "core-0-1": {"chip-0": "1"},
        "chip-0": {"chip-0": "2"},
    }
    assert (new["a"]["phase"], new["a"]["devices"]) == ("Running", ["chip-0"])
    assert (new["b_waits"]["phase"], new["b_waits"]["cores"]) == ("Pending", [])
    assert new["b_waits"]["reason"].startswith("0/1 nodes are available: 1 cannot allocate all claims: ")
    assert "chip-0: in use by pod-a-accelerator-" in new["b_waits"]["reason"]
    assert (new["b_runs"]["phase"], new["b_runs"]["cores"]) == ("Running", [[0, 0], [0, 1]])
    assert [pod["cores"] for pod in new["halves"]] == [[[0, 0]], [[0, 1]]]
    assert [pod["env"] for pod in new["halves"]] == [
        {"NEURON_RT_VISIBLE_CORES": "0"},
        {"NEURON_RT_VISIBLE_CORES": "1"},
    ]


def test_containers_see_the_chips_node_and_no_other(told: dict[str, Any]) -> None:
    new = told["one_pool"]
    node = {"path": "/dev/neuron0", "host_path": "/dev/neuron0", "device": "243:0", "permissions": "rw"}
    assert [pod["nodes"] for pod in (new["a"], new["b_runs"], *new["halves"])] == [[node]] * 4


def test_nothing_is_left(told: dict[str, Any]) -> None:
    end = told["ending"]
    assert end == {"exit_status": 0, "sockets": [], "cdi_specs": [], "records": [], "claims": [], "slices": []}
    assert told["held"] is True
    assert told["failure"] == ""
    assert all(check["held"] for check in told["checks"])


def test_the_driver_was_a_process_of_its_own_and_is_gone(told: dict[str, Any]) -> None:
    pid = told["one_pool"]["published"]["pid"]
    assert pid != os.getpid()
    assert not Path(f"/proc/{pid}").exists()


def test_another_size_is_wrong_use(scratch: Path) -> None:
    done = run(scratch, "--machine", "toaster.large")
    assert done.returncode == 2
    assert done.stderr.startswith("coreslice demo: --machine toaster.large: ")
    assert "trn1.2xlarge" in done.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize("command", ["demo", "ls"])
def test_without_the_demos_packages_only_the_demo_is_missing(command: str) -> None:
    """`None` in sys.modules is what Python takes for a package that isn't installed."""
    script = "import sys; sys.modules['cel'] = None; from dra_driver.cli.main import main; sys.exit(main(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", script, command, *(["--help"] if command == "ls" else [])],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if command == "ls":
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 1
        assert done.stderr == "coreslice: the demo lacks the module cel: pip install 'coreslice[demo]'\n"


def _lines_until(process: subprocess.Popen[str], pattern: str) -> list[str]:
    """Lines of a running demo up to one that matches."""
    assert process.stdout is not None
    lines: list[str] = []
    deadline = time.monotonic() + TIMEOUT
    while not (lines and re.search(pattern, lines[-1])):
        ready, _, _ = select.select([process.stdout], [], [], max(deadline - time.monotonic(), 0))
        assert ready, lines
        lines.append(process.stdout.readline())
        assert lines[-1], lines
    return lines


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_cleans_up(scratch: Path, number: signal.Signals) -> None:
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as process:
        _lines_until(process, r"^2\. ")
        (folder,) = scratch.iterdir()
        process.send_signal(number)
        _, error = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    assert error == "coreslice demo: interrupted; everything was cleaned up\n"
    assert list(scratch.iterdir()) == []
    assert _users_of(folder) == []


def _users_of(folder: Path) -> list[str]:
    """Processes that were started with a path below the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes() if entry.name.isdecimal() else b""
        except OSError:
            continue
        if os.fsencode(folder) in command:
            found.append(entry.name)
    return found


def test_a_driver_that_does_not_come_up_is_told_with_its_log(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_run, "DRIVER_NAME", "Not_A_Name")
    seen = [Story()]
    story = Run("trn1.2xlarge", scratch, seen.append).run()
    assert not story.held
    assert "the driver's process ended with status 2" in story.failure
    assert "--driver-name" in story.failure
    assert story.two_ledgers is not None
    assert story.one_pool is None
    assert [bool(part.two_ledgers) for part in seen] == [False, False, True]
    assert {check.claim for check in story.checks if check.held} == {
        "the driver's reader finds the machine's chip and its cores",
        "device plugin: both pods are admitted",
        "device plugin: the same cores are in both pods",
    }


def test_a_scratch_folder_that_is_in_use_is_a_failure_and_no_traceback(scratch: Path) -> None:
    (scratch / "m" / "sys").mkdir(parents=True)
    story = Run("trn1.2xlarge", scratch).run()
    assert "exists already" in story.failure
    assert not any(check.held for check in story.checks)
