"""Inside a pod: HTTPS, the service account's files, rotation, proxies in the environment."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_driver.cluster import errors
from dra_driver.cluster.client import Api
from dra_driver.errors import SettingsError
from dra_driver.simulator.apiserver.server import ApiServer

TLS = Path(__file__).parent / "tls"  # a self-signed certificate for 127.0.0.1 that protects nothing
NODE = "/api/v1/nodes/node-a"


@pytest.fixture
def tls_server() -> Iterator[ApiServer]:
    with ApiServer(tls=(TLS / "server.crt", TLS / "server.key")) as server:
        server.store.create("nodes", {"metadata": {"name": "node-a"}})
        server.tokens = {"one"}
        yield server


@pytest.fixture
def account(tmp_path: Path, tls_server: ApiServer, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ca.crt").write_bytes((TLS / "server.crt").read_bytes())
    (tmp_path / "token").write_text("one\n")  # a trailing newline is common, and no part of the token
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", tls_server.url.rsplit(":", 1)[1])
    return tmp_path


def test_the_service_account_is_enough(account: Path, tls_server: ApiServer) -> None:
    with Api(service_account=account) as api:
        for _ in range(10):
            assert api.get(NODE)["kind"] == "Node"
    assert tls_server.connections == 1


def test_bc129_a_rotated_token_is_sent_at_once(account: Path, tls_server: ApiServer) -> None:
    with Api(service_account=account) as api:
        assert api.get(NODE)
        tls_server.tokens = {"two"}
        (account / "token").write_text("two")
        assert api.get(NODE)
        assert api.get(NODE)
    assert [row.code for row in tls_server.audit.rows("get")] == [200, 401, 200, 200]


@pytest.mark.parametrize("content", ["", None])
def test_bc129_a_token_file_that_is_gone_is_an_error_and_not_the_end(
    account: Path, tls_server: ApiServer, content: str | None
) -> None:
    with Api(service_account=account) as api:
        tls_server.tokens = {"two"}
        (account / "token").unlink()
        if content is not None:
            (account / "token").write_text(content)
        with pytest.raises(errors.Unauthorized):
            api.get(NODE)
        (account / "token").write_text("two")
        assert api.get(NODE)


def test_bc130_a_proxy_in_the_environment_is_not_used(
    account: Path, tls_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with Api(service_account=account) as api:
        assert api.get(NODE)
    with Api(service_account=account, in_cluster_proxy=True) as api, pytest.raises(errors.Unavailable, match="roxy"):
        api.get(NODE)


def test_another_servers_certificate_is_refused(account: Path, tls_server: ApiServer, tmp_path: Path) -> None:
    path = tls_server.kubeconfig(tmp_path / "kubeconfig", token="one")
    path.write_text(path.read_text().replace(str(TLS / "server.crt"), str(_system_bundle())))
    with Api(kubeconfig=path) as api, pytest.raises(errors.Unavailable, match="certificate"):
        api.get(NODE)
    assert tls_server.audit.rows() == []


def _system_bundle() -> Path:
    import certifi  # noqa: PLC0415 comes with the client library

    return Path(certifi.where())


def test_outside_of_a_pod_without_a_kubeconfig_the_text_says_what_to_give(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsError, match="--kubeconfig"):
        Api(service_account=tmp_path)


def test_a_watch_over_tls_ends_when_it_is_told_to(account: Path) -> None:
    with Api(service_account=account) as api:
        version = api.list("/api/v1/nodes")["metadata"]["resourceVersion"]
        watch = api.watch("/api/v1/nodes", query={"resourceVersion": version}, read_timeout=60.0)
        with watch:
            watch.close()
            assert list(watch) == []
