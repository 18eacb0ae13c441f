"""An API server whose counters the driver can't use yet."""

from tests.contract.driver.conftest import Rig, eventually, result


def test_bc032_an_old_server_gets_chips_only_and_the_reason_is_told_once(rig: Rig) -> None:
    """1.34 with the gate on keeps counters, in another layout: nothing is dropped, and still there are no cores."""
    rig.store.minor = 34
    rig.start()
    assert rig.device_names() == ["chip-0"]
    (text,) = rig.wait_events("CountersUnused")
    assert "1.34" in text
    assert "chip" in text
    ref = rig.claim("a", result("chip-0"))
    rig.prepare(ref)
    rig.unprepare(ref)
    assert len(rig.said("only one granularity")) == 1
    assert rig.events("CountersDropped") == []


def test_bc032_after_the_servers_upgrade_cores_come_without_a_restart(rig: Rig) -> None:
    rig.store.minor = 34
    rig.start()
    rig.store.minor = 35
    rig.server.cut_connections()
    eventually(lambda: len(rig.device_names()) == 3, "cores", seen=rig.process.tail)
    rig.wait_ready()
