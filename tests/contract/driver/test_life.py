"""Start, serve, stop: what the daemon says, answers and leaves."""

import re
import signal
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from dra_driver.kubelet.api import pluginregistration_v1_pb2 as registration
from dra_driver.kubelet.api import pluginregistration_v1_pb2_grpc as registration_grpc
from dra_driver.settings import Settings
from dra_driver.simulator.apiserver.faults import Fault
from tests.contract.driver.conftest import CLAIMS, DRIVER, NODE, SLICES, Rig, eventually


def test_ready_means_registered_and_slices_read_back(rig: Rig) -> None:
    rig.server.faults.plant(Fault(hold=(gate := threading.Event())), verb="create", prefix=SLICES)
    rig.launch()
    rig.kubelet.wait_registered(DRIVER)
    assert rig.health("liveness") == "SERVING"
    assert rig.health("") == "SERVING"
    assert rig.health("readiness") == "NOT_SERVING"
    assert rig.slices() == []
    gate.set()
    rig.wait_ready()
    assert sorted(rig.device_names()) == ["chip-0", "core-0-0", "core-0-1"]
    told = rig.said("^(not )?ready$")
    assert [line["message"] for line in told][-1] == "ready"
    assert told[-1]["why"] == "published: generation 1 in 2 slices"


def test_unknown_probe_is_not_found(rig: Rig) -> None:
    rig.start()
    with pytest.raises(grpc.RpcError) as caught:
        rig.health("redyness")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


def test_effective_configuration_is_printed_once_and_whole(rig: Rig) -> None:
    rig.start("--prepare-wait=7.5", "--granularity-without-counters=core")
    (line,) = rig.said("^effective configuration$")
    settings = line["settings"]
    assert set(settings) == set(Settings.model_fields)
    assert settings["node_name"] == NODE
    assert settings["prepare_wait"] == 7.5
    assert settings["granularity_without_counters"] == "core"
    assert settings["cdi_root"] == str(rig.paths.cdi)
    assert settings["rescan_interval"] == 30.0, "a default that nobody has given is there too"


def test_log_lines_of_a_claim_have_its_uid_and_how_long_it_took(rig: Rig) -> None:
    rig.start()
    ref = rig.core("a")
    rig.prepare(ref)
    rig.unprepare(ref)
    about = [line for line in rig.lines() if line.get("claim_uid") == ref.uid]
    assert [(line["message"].split()[0], line["outcome"]) for line in about] == [
        ("prepare", "done"),
        ("unprepare", "done"),
    ]
    assert all(line["claim"] == "default/a" for line in about)
    assert all(0 < line["duration_s"] < 5 for line in about)
    assert {"time", "level", "logger", "message"} <= set(about[0])


def test_text_log_for_people(rig: Rig) -> None:
    daemon = rig.launch("--log-format=text")
    text = eventually(lambda: "ready why=published" in daemon.log.read_text(), "ready in the log", seen=daemon.tail)
    assert text
    assert "{" not in daemon.log.read_text().splitlines()[0]
    assert daemon.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_bc001_stop_leaves_slices_and_records_and_no_socket(rig: Rig, number: signal.Signals) -> None:
    daemon = rig.start()
    rig.prepare(rig.core("a"))
    slices, files = rig.slices(), (rig.records(), rig.specs())
    began = time.monotonic()
    assert daemon.stop(number) == 0
    assert time.monotonic() - began < 5
    assert rig.sockets() == set()
    assert (rig.slices(), (rig.records(), rig.specs())) == (slices, files)
    assert rig.said("^stopped$")
    assert all(line["level"] == "INFO" for line in rig.lines())
    assert [code for _, code in rig.kubelet.health.ends] == ["OK"], "any other end is an error in the kubelet's log"


def test_bc001_sockets_of_a_killed_daemon_go_at_the_next_start(rig: Rig) -> None:
    daemon = rig.start()
    old = rig.sockets()
    assert daemon.stop(signal.SIGKILL) == -signal.SIGKILL
    assert rig.sockets() == old
    slices = rig.slices()
    rig.start()
    assert len(rig.sockets()) == 2
    assert not rig.sockets() & old
    rig.prepare(rig.core("a"))
    assert rig.slices() == slices, "the same versions: nobody wrote"


def test_stop_waits_for_the_call_in_flight(rig: Rig) -> None:
    """A call that is cut off costs its pod more than a minute."""
    daemon = rig.start()
    ref = rig.core("a")
    met = rig.server.faults.plant(Fault(hold=(gate := threading.Event())), verb="get", prefix=CLAIMS)
    with ThreadPoolExecutor(2) as threads:
        call = threads.submit(rig.prepare, ref)
        eventually(met, "the call at work")
        end = threads.submit(daemon.stop)
        eventually(lambda: not rig.server.watches, "the publisher stopped")
        assert not call.done()
        assert len(rig.sockets()) == 2
        gate.set()
        assert [device.device for device in call.result()] == ["core-0-0"]
        assert end.result() == 0
    assert rig.sockets() == set()


def test_only_the_main_thread_takes_the_signal(rig: Rig) -> None:
    """A handler in Python runs in the main thread alone, which isn't woken when the kernel chooses another one."""
    pid = rig.start().pid
    blocked = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
            blocked[int(task.name)] = blocks(task, signal.SIGTERM)
    assert len(blocked) > 10
    assert [thread for thread, is_blocked in blocked.items() if not is_blocked] == [pid]


def blocks(task: Path, number: signal.Signals) -> bool:
    mask = re.findall(r"^SigBlk:\s*([0-9a-f]+)", (task / "status").read_text(), re.MULTILINE)
    return bool(int(mask[0], 16) >> (number - 1) & 1)


def test_second_signal_ends_a_stop_that_hangs(rig: Rig) -> None:
    daemon = rig.start()
    ref = rig.core("a")
    met = rig.server.faults.plant(Fault(hold=(gate := threading.Event())), verb="get", prefix=CLAIMS)
    with ThreadPoolExecutor(2) as threads:
        call = threads.submit(rig.prepare, ref)
        eventually(met, "the call at work")
        end = threads.submit(daemon.stop)
        eventually(lambda: not rig.server.watches, "the publisher stopped")
        assert daemon.stop() == -signal.SIGTERM
        assert end.result() == -signal.SIGTERM
        gate.set()
        assert call.exception() is not None


def test_bc003_get_info_answers_at_once_whatever_else_goes_on(rig: Rig) -> None:
    """From the moment that the socket is there, with the API hanging and the start still under way."""
    gate = threading.Event()
    rig.server.faults.plant(Fault(hold=gate), times=None)
    rig.launch()
    eventually(lambda: list(rig.paths.registry.glob("*-reg.sock")), "the registration socket")
    (path,) = rig.paths.registry.glob("*-reg.sock")
    durations = []
    with grpc.insecure_channel(f"unix:{path}") as channel:
        stub = registration_grpc.RegistrationStub(channel)
        for _ in range(500):
            began = time.monotonic()
            info = stub.GetInfo(registration.InfoRequest(), timeout=1)
            durations.append(time.monotonic() - began)
    gate.set()
    assert info.name == DRIVER
    assert statistics.quantiles(durations, n=100)[98] < 0.1


def test_bc012_kubelet_restarts_one_after_the_other(rig: Rig) -> None:
    rig.start()
    sockets = rig.sockets()
    for number in range(5):
        rig.kubelet.restart()
        rig.kubelet.wait_registered(DRIVER)
        eventually(lambda: len(rig.slices()) == 2, "slices back", seen=rig.process.tail, within=1.0)
        rig.prepare(ref := rig.core(f"c{number}"))
        rig.unprepare(ref)
    assert rig.sockets() == sockets
