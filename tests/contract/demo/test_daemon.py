"""The driver as a process of its own: it comes up, it isn't reached by the caller's settings, it never stays."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.simulator.cluster import Cluster
from dra_driver.simulator.daemon import DaemonError, DriverProcess
from dra_driver.simulator.machines import MachinePaths, make_machine

NAME = "neuron.test"
Make = Callable[..., DriverProcess]


@pytest.fixture
def machine(folder: Path) -> MachinePaths:
    return make_machine("trn1.2xlarge", folder / "m")


@pytest.fixture
def make(cluster: Cluster, machine: MachinePaths) -> Make:
    def make(*extra: str) -> DriverProcess:
        return DriverProcess.on(cluster, machine, driver_name=NAME, extra=extra)

    return make


def test_it_registers_serves_and_stops_in_order(cluster: Cluster, make: Make) -> None:
    with make() as driver:
        cluster.kubelet.wait_registered(NAME, timeout=30)
        driver.check()
        assert driver.pid != os.getpid()
        assert driver.stop() == 0
    assert [path for path in cluster.paths.registry.iterdir() if path.is_socket()] == []


def test_the_callers_settings_do_not_reach_it(cluster: Cluster, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREPARE_WAIT", "nonsense")
    with make():
        cluster.kubelet.wait_registered(NAME, timeout=30)


def test_one_that_ends_by_itself_is_an_error_with_its_log(cluster: Cluster, make: Make) -> None:
    with make("--prepare-wait", "nonsense") as driver:

        def end() -> str | None:
            try:
                driver.check()
            except DaemonError as error:
                return str(error)
            return None

        assert cluster.wait("it ends", end, timeout=30) == "the driver's process ended with status 2"
        assert "--prepare-wait" in driver.tail()
        assert driver.stop() == 2


def test_leaving_the_context_ends_it_whatever_happened(cluster: Cluster, make: Make) -> None:
    driver = make()

    def fail() -> None:
        with driver:
            cluster.kubelet.wait_registered(NAME, timeout=30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not Path(f"/proc/{driver.pid}").exists()
    assert driver.stop() == -signal.SIGKILL


def test_a_kill_is_told_by_its_status(cluster: Cluster, make: Make) -> None:
    with make() as driver:
        cluster.kubelet.wait_registered(NAME, timeout=30)
        assert driver.stop(signal.SIGKILL) == -signal.SIGKILL


def test_what_was_not_started_says_so(make: Make) -> None:
    driver = make()
    with pytest.raises(DaemonError, match="wasn't started"):
        driver.stop()
    with pytest.raises(DaemonError, match="wasn't started"):
        _ = driver.pid
    assert driver.tail() == "(it logged nothing)"
