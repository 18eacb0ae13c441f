"""`coreslice uninstall-check` against a simulated API server."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cli.main import main
from dra_driver.simulator.apiserver.faults import Fault
from dra_driver.simulator.apiserver.server import ApiServer

Check = Callable[..., tuple[int, str, str]]
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
DRIVER = "neuron.coreslice.dev"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def check(server: ApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")

    def check(*flags: str) -> tuple[int, str, str]:
        status = main(["uninstall-check", f"--kubeconfig={kubeconfig}", *flags])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return check


def claim(server: ApiServer, name: str, *devices: str, driver: str = DRIVER, pods: int = 0, ns: str = "team") -> None:
    made = server.store.create("resourceclaims", {"metadata": {"name": name, "namespace": ns}, "spec": {}})
    results: list[dict[str, Any]] = [
        {"request": "r", "driver": driver, "pool": f"{driver}/node-7", "device": device} for device in devices
    ]
    if results:
        reserved = [{"resource": "pods", "name": f"pod-{number}", "uid": str(number)} for number in range(pods)]
        made["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        server.store.update("resourceclaims", made, subresource="status")


def test_none(server: ApiServer, check: Check) -> None:
    claim(server, "waiting")
    claim(server, "foreign", "gpu-0", driver="gpu.example.dev")
    assert check() == (0, f"no claim holds a device of {DRIVER}\n", "")


def test_claims_of_all_namespaces_that_hold_something(server: ApiServer, check: Check) -> None:
    claim(server, "a", "core-0-0", "core-0-1", pods=1)
    claim(server, "b", "chip-3", ns="other")
    claim(server, "waiting")
    status, told, _ = check()
    assert status == 1
    lines = told.splitlines()
    assert "team/a: core-0-0 on node-7, core-0-1 on node-7; used by pods pod-0" in lines
    assert "other/b: chip-3 on node-7; used by no pod" in lines
    assert lines[-1].startswith(f"2 claims still hold devices of {DRIVER}")
    assert len(lines) == 3
    assert server.audit.writes() == []


def test_shared_by_many_pods_stays_one_line(server: ApiServer, check: Check) -> None:
    claim(server, "a", "chip-0", pods=256)
    line = check()[1].splitlines()[0]
    assert line.endswith("pod-7 and 248 more")


def test_more_claims_than_a_page(server: ApiServer, check: Check) -> None:
    for number in range(501):
        claim(server, f"c{number:03}", "core-0-0")
    status, told, _ = check()
    assert status == 1
    assert told.splitlines()[-1].startswith("501 claims")
    assert len(server.audit.rows("list", CLAIMS)) == 2


def test_another_drivers_name(server: ApiServer, check: Check) -> None:
    claim(server, "a", "chip-0", driver="other.example.dev")
    assert check()[0] == 0
    assert check("--driver-name=other.example.dev")[0] == 1


def test_page_that_the_server_has_forgotten(server: ApiServer, check: Check) -> None:
    claim(server, "a", "chip-0")
    met = server.faults.plant(Fault(code=410), verb="list", prefix=CLAIMS)
    assert check()[0] == 1
    assert met() == 1


def test_bc099_missing_right_is_named(server: ApiServer, check: Check) -> None:
    server.faults.plant(Fault(code=403), verb="list", prefix=CLAIMS)
    status, told, error = check()
    assert (status, told) == (1, "")
    assert 'verb "list" on "resourceclaims" in API group "resource.k8s.io"' in error
    assert "Traceback" not in error


def test_api_that_is_away(server: ApiServer, check: Check) -> None:
    """Not to be mistaken for a cluster without claims."""
    server.stop()
    status, _, error = check()
    assert status == 1
    assert "no answer from the API server" in error
    server.start()
