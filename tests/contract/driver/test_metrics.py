"""What a scraper gets from the daemon, from the first scrape to the last."""

import re
import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dra_driver import __version__
from dra_driver.claims.refusals import Reason
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.kubelet import PrepareError
from tests.contract.driver.conftest import CLAIMS, SLICES, Rig, eventually


def series(rig: Rig) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
    """Name and labels of every sample."""
    families = text_string_to_metric_families(rig.scrape())
    return {(sample.name, tuple(sorted(sample.labels.items()))) for family in families for sample in family.samples}


def value(rig: Rig, name: str, **labels: str) -> float:
    (found,) = [value for own, value in rig.metrics(name) if labels.items() <= own.items()]
    return found


def test_every_series_is_there_from_the_first_scrape(rig: Rig) -> None:
    """A series that appears with its first event has no rate for that event."""
    rig.launch("--prepare-wait=0")
    rig.wait_said("^metrics are served$")
    first = series(rig)
    rig.wait_ready()
    rig.prepare(ref := rig.core("a"))
    rig.unprepare(ref)
    with pytest.raises(PrepareError):
        rig.prepare(rig.core("b", "core-7-7"))
    rig.store.delete("resourceslices", rig.slices()[0]["metadata"]["name"])
    eventually(lambda: value(rig, "coreslice_publishes_total", result="done") >= 2, "restored")
    assert series(rig) == first
    assert {dict(labels)["reason"] for name, labels in first if name == "coreslice_refusals_total"} == {
        reason.code for reason in Reason
    }


def test_names_have_the_prefix_and_a_text(rig: Rig) -> None:
    rig.start()
    names = re.findall(r"^# HELP (\S+) (.+)$", rig.scrape(), re.MULTILINE)
    assert [name for name, _ in names if not name.startswith("coreslice_")] == []
    assert [name for name, text in names if not text.endswith(".")] == []
    assert len(names) > 8


def test_build_devices_readiness_and_registration(rig: Rig) -> None:
    rig.start()
    ((labels, one),) = rig.metrics("coreslice_build_info")
    assert (labels["version"], one) == (__version__, 1)
    devices = {labels["type"]: number for labels, number in rig.metrics("coreslice_devices")}
    assert devices == {"core": 2, "core-run": 0, "chip": 1, "chip-group": 0}
    assert value(rig, "coreslice_ready") == 1
    assert value(rig, "coreslice_registered") == 1
    assert value(rig, "coreslice_withheld") == 0
    assert value(rig, "coreslice_counters_dropped") == 0
    assert value(rig, "coreslice_publishes_total", result="done") == 1
    assert value(rig, "coreslice_publishes_total", result="failed") == 0


def test_ready_is_asked_at_each_scrape(rig: Rig) -> None:
    """Not what was told last: the sockets are looked at."""
    rig.kubelet.refuse_registrations("not today")
    rig.launch()
    rig.wait_not_ready("not today")
    assert value(rig, "coreslice_ready") == 0
    assert value(rig, "coreslice_registered") == 0
    rig.kubelet.refuse_registrations(None)
    rig.wait_ready()
    assert value(rig, "coreslice_ready") == 1
    assert value(rig, "coreslice_registered") == 1


def test_prepares_and_undoing_by_result_with_their_time(rig: Rig) -> None:
    rig.start("--prepare-wait=0")
    rig.prepare(ref := rig.core("a"))
    rig.unprepare(ref)
    rig.server.faults.plant(Fault(code=500), verb="get", prefix=CLAIMS, times=None)
    with pytest.raises(PrepareError):
        rig.prepare(rig.core("b"))
    assert value(rig, "coreslice_prepare_duration_seconds_count", result="done") == 1
    assert value(rig, "coreslice_prepare_duration_seconds_count", result="failed") == 1
    assert value(rig, "coreslice_unprepare_duration_seconds_count", result="done") == 1
    assert value(rig, "coreslice_unprepare_duration_seconds_count", result="failed") == 0
    assert 0 < value(rig, "coreslice_prepare_duration_seconds_sum", result="done") < 5
    assert value(rig, "coreslice_prepare_duration_seconds_bucket", result="done", le="40.0") == 1
    refusals = {labels["reason"]: number for labels, number in rig.metrics("coreslice_refusals_total") if number}
    assert refusals == {"ClaimUnreadable": 1}


def test_failed_publishes_are_counted(rig: Rig) -> None:
    rig.server.faults.plant(Fault(code=403), verb="create", prefix=SLICES, times=2)
    rig.start()
    assert value(rig, "coreslice_publishes_total", result="failed") == 2
    assert value(rig, "coreslice_publishes_total", result="done") == 1


def test_counters_that_the_api_server_drops(rig: Rig) -> None:
    rig.store.partitionable = False
    rig.start()
    assert value(rig, "coreslice_counters_dropped") == 1
    assert value(rig, "coreslice_devices", type="chip") == 1
    assert value(rig, "coreslice_devices", type="core") == 0


def test_no_metrics_when_switched_off(rig: Rig) -> None:
    """The last flag wins; the rig's own asks for a port."""
    rig.start("--metrics-port=-1")
    assert rig.said("^metrics are served$") == []
    rig.prepare(rig.core("a"))
    assert rig.process.stop() == 0


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 on its loopback device")
@pytest.mark.parametrize("address", ["::1", "[::1]"])
def test_health_and_metrics_on_ipv6(rig: Rig, address: str) -> None:
    rig.launch(f"--metrics-address={address}", f"--healthcheck-address={address}")
    metrics, health = (rig.wait_said(f"^{name} (is|are) served$")["port"] for name in ("metrics", "health"))
    with urllib.request.urlopen(f"http://[::1]:{metrics}/metrics", timeout=5) as answer:
        assert b"coreslice_build_info" in answer.read()
    with socket.create_connection(("::1", health), timeout=5):
        pass


def test_port_is_given_back_at_the_end(rig: Rig) -> None:
    rig.start()
    port = rig.said("^metrics are served$")[-1]["port"]
    assert rig.process.stop() == 0
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)
    rig.start(f"--metrics-port={port}")
    assert value(rig, "coreslice_ready") == 1
