"""A kubelet that refuses, or isn't there: told in its own words, tried again under new names, nothing published."""

from tests.contract.driver.conftest import Rig, eventually

REFUSAL = "no handler registered for plugin type: DRAPlugin"


def registration_names(rig: Rig) -> set[str]:
    return {path.name for path in rig.paths.registry.glob("*-reg.sock")}


def test_bc011_refused_registration_is_told_and_tried_again_under_a_new_name(rig: Rig) -> None:
    rig.kubelet.refuse_registrations(REFUSAL)
    daemon = rig.launch()
    seen: set[str] = set()

    def third_name() -> bool:
        seen.update(registration_names(rig))
        return len(seen) >= 3

    eventually(third_name, "three names", seen=rig.process.tail)

    assert REFUSAL in rig.wait_not_ready("refused")
    assert any(REFUSAL in text for text in rig.wait_events("RegistrationRefused"))
    assert rig.said(f"refused .*{REFUSAL}")[0]["level"] == "WARNING"
    assert rig.health("readiness") == "NOT_SERVING"
    assert rig.health("liveness") == "SERVING", "a restart would heal nothing"
    daemon.check()
    assert [change for change in rig.store.history if change.plural == "resourceslices"] == []

    rig.kubelet.refuse_registrations(None)
    rig.wait_ready()
    assert len(rig.device_names()) == 3
    assert len(rig.sockets()) == 2, "refused pairs are gone"
    rig.prepare(rig.core("a"))


def test_refused_again_and_again_is_one_event(rig: Rig) -> None:
    """Each attempt has a path of its own; in the text it would make each another Event, for as long as it lasts."""
    rig.kubelet.refuse_registrations(REFUSAL)
    rig.launch()
    eventually(lambda: len(rig.said("registering again under a new name")) >= 3, "tries", seen=rig.process.tail)
    rig.wait_events("RegistrationRefused")
    assert rig.process.stop() == 0, "events that are waiting are sent"
    assert len(rig.wait_events("RegistrationRefused")) == 1
    assert len({line["socket"] for line in rig.said("^registration refused")}) >= 3, "the log has the paths"


def test_stop_amid_refusals_leaves_nothing(rig: Rig) -> None:
    rig.kubelet.refuse_registrations(REFUSAL)
    rig.launch()
    eventually(lambda: rig.said("registering again under a new name"), "a second try", seen=rig.process.tail)
    assert rig.process.stop() == 0
    assert rig.sockets() == set()


def test_no_kubelet_no_slices(rig: Rig) -> None:
    rig.kubelet.stop()
    rig.launch()
    why = rig.wait_not_ready("waiting for the kubelet to register")
    assert str(rig.paths.registry) in why
    assert rig.health("liveness") == "SERVING"
    assert rig.slices() == []
    assert rig.server.audit.rows(prefix="/apis/resource.k8s.io") == [], "the API isn't even asked"
    assert rig.process.stop() == 0
    assert rig.sockets() == set()


def test_bc028_slices_wait_until_a_lost_socket_is_registered_anew(rig: Rig) -> None:
    rig.start()
    rig.kubelet.refuse_registrations(REFUSAL)
    (path,) = rig.paths.registry.glob("*-reg.sock")
    path.unlink()
    rig.wait_not_ready(REFUSAL)
    for item in rig.slices():
        rig.store.delete("resourceslices", item["metadata"]["name"])
    rig.wait_said("slices blocked: the kubelet hasn't confirmed")
    assert rig.slices() == []
    rig.kubelet.refuse_registrations(None)
    rig.wait_ready()
    assert len(rig.slices()) == 2
