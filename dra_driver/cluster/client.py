"""The Kubernetes API as raw JSON: the only module that imports the `kubernetes` package.

It takes credentials, TLS and proxy handling from that package, and its connection pool; objects stay dicts.
Typed models drop fields newer than themselves, refuse nulls that Go servers send (BC-132) and cost several
milliseconds per slice.

Invariants: a timeout on every request; connections are kept and reused (a new one per GET makes a claim's
read three times as slow); nothing is retried behind the caller's back, save a read on a connection that the
server had closed meanwhile, and one 401 after the credentials are read again (BC-129). Thread-safe.
Failures: `ApiError` and its subclasses only.
"""

import json
import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_kube_config
from kubernetes.config.config_exception import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader
from urllib3.exceptions import HTTPError, ProtocolError

from dra_driver import __version__
from dra_driver.cluster.errors import ApiError, Unauthorized, error_from_answer, unavailable
from dra_driver.errors import SettingsError

log = logging.getLogger(__name__)

Obj = dict[str, Any]
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML
_POOL_SIZE = 32  # kept connections; more at once are allowed, but closed after use
_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT", "patch": "PATCH"}


class Timeout(NamedTuple):
    """Seconds to connect, and seconds without a byte while reading."""

    connect: float = 3.0
    read: float = 10.0


def items(obj: Mapping[str, Any], key: str = "items") -> list[Obj]:
    """The list at `key`; null and absent are empty, as Go servers may send either (BC-132)."""
    return obj.get(key) or []


class Api:
    """One API server, one pool of connections.

    `kubeconfig` None means: inside a pod, by its service account. There a proxy from the environment is
    ignored unless `in_cluster_proxy` (BC-130: the API of the own cluster isn't reached through it).
    Raises SettingsError where there are no usable credentials.
    """

    def __init__(
        self,
        *,
        kubeconfig: Path | None = None,
        in_cluster_proxy: bool = False,
        timeout: Timeout | None = None,
        service_account: Path = SERVICE_ACCOUNT,
    ) -> None:
        self.timeout = timeout or Timeout()
        self._kubeconfig = kubeconfig
        self._service_account = service_account
        self._proxy = in_cluster_proxy
        self._config = self._load()
        self._lock = threading.Lock()  # of reading credentials again
        self._client = ApiClient(self._config)
        self._pool = self._client.rest_client.pool_manager
        if not self._config.proxy:  # the host's own pool saves parsing and lookup on each request
            self._pool = self._pool.connection_from_url(self._config.host)
        self._base = urlsplit(self._config.host.rstrip("/"))
        self._agent = f"coreslice/{__version__}"

    def close(self) -> None:
        """Close the kept connections."""
        self._client.rest_client.close()  # closes the pools that its manager made

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, path: str, *, timeout: Timeout | None = None) -> Obj:
        """One object, or any JSON path such as `/version`."""
        return self._request("get", path, timeout=timeout)

    def list(self, path: str, *, field_selector: str = "", query: Mapping[str, str] | None = None) -> Obj:
        """The list object of a collection; read its rows with `items`, its version from its own metadata."""
        selected = {"fieldSelector": field_selector} if field_selector else {}
        return self._request("list", path, query={**selected, **(query or {})})

    def create(self, path: str, obj: Obj, *, dry_run: bool = False) -> Obj:
        """POST to a collection; returns what the server stored, or would have."""
        return self._request("create", path, body=obj, query={"dryRun": "All"} if dry_run else {})

    def replace(self, path: str, obj: Obj) -> Obj:
        """PUT an object; with metadata.resourceVersion only if it is still that version."""
        return self._request("update", path, body=obj)

    def patch(
        self,
        path: str,
        patch: Obj,
        *,
        content_type: str = MERGE_PATCH,
        query: Mapping[str, str] | None = None,
    ) -> Obj:
        """PATCH an object; an apply patch needs `query={"fieldManager": …}`."""
        return self._request("patch", path, body=patch, query=query, content_type=content_type)

    def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> Obj:
        """DELETE an object; with preconditions only if it is still that one."""
        wanted = {"uid": uid, "resourceVersion": resource_version}
        wanted = {key: value for key, value in wanted.items() if value}
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": wanted} if wanted else None
        return self._request("delete", path, body=body)

    def watch(self, path: str, *, query: Mapping[str, str], read_timeout: float) -> "Stream":
        """Open a watch. Its connection is out of the pool meanwhile and isn't missed there."""
        timeout = Timeout(self.timeout.connect, read_timeout)
        response = self._answered("watch", path, {"watch": "true", **query}, None, "", timeout, stream=True)
        return Stream(path, response)

    def _request(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Obj | None = None,
        content_type: str = "application/json",
        timeout: Timeout | None = None,
    ) -> Obj:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        response = self._answered(verb, path, query or {}, data, content_type, timeout or self.timeout)
        try:
            answer = json.loads(response.data)
        except ValueError as error:
            raise unavailable(verb, path, f"the answer isn't JSON: {error}") from error
        if not isinstance(answer, dict):
            raise unavailable(verb, path, f"the answer is a {type(answer).__name__}, not an object")
        return answer

    def _answered(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        data: bytes | None,
        content_type: str,
        timeout: Timeout,
        *,
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        """A 2xx response; after a 401 once more with the credentials read again."""
        for again in (False, True):
            headers = self._headers(content_type if data is not None else "")
            response = self._send(verb, path, query, data, headers, timeout, stream=stream)
            if response.status < 300:  # noqa: PLR2004 HTTP's success
                return response
            error = _refused(verb, path, response, stream=stream)
            if again or not isinstance(error, Unauthorized) or not self._reload(headers):
                break
        raise error

    def _send(
        self,
        verb: str,
        path: str,
        query: Mapping[str, str],
        data: bytes | None,
        headers: Mapping[str, str],
        timeout: Timeout,
        *,
        stream: bool,
    ) -> urllib3.BaseHTTPResponse:
        url = self._base.path + path + ("?" + urlencode(query) if query else "")
        if self._config.proxy:
            url = f"{self._base.scheme}://{self._base.netloc}{url}"
        limits = urllib3.Timeout(connect=timeout.connect, read=timeout.read)
        for stale in (True, False):
            try:
                response: urllib3.BaseHTTPResponse = self._pool.urlopen(
                    _METHODS.get(verb, "DELETE"),
                    url,
                    body=data,
                    headers=headers,
                    timeout=limits,
                    retries=False,
                    redirect=False,
                    preload_content=not stream,
                )
            except ProtocolError as error:
                # A kept connection that the server closed while the request was on its way. Only a read is
                # sent again: whether a write arrived is unknown.
                if not stale or data is not None or verb == "delete":
                    raise unavailable(verb, path, error) from error
            except (HTTPError, OSError) as error:
                raise unavailable(verb, path, error) from error
            else:
                return response
        raise AssertionError("unreachable")

    def _headers(self, content_type: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": self._agent}
        if content_type:
            headers["Content-Type"] = content_type
        try:
            token = self._config.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError) as error:
            raise Unauthorized(f"the credentials can't be read: {error}", status=401) from error
        if token:
            headers["Authorization"] = token.strip()  # a token file may end in a newline
        return headers

    def _reload(self, sent: Mapping[str, str]) -> bool:
        """Read the credentials again; False if they can't be read or are those that were just refused."""
        with self._lock:
            if self._headers("").get("Authorization") == sent.get("Authorization"):
                try:
                    fresh = self._load()
                except SettingsError as error:
                    log.warning("reading the credentials again after a 401: %s", error)
                    return False
                self._config.api_key = fresh.api_key
                self._config.refresh_api_key_hook = fresh.refresh_api_key_hook
            return self._headers("").get("Authorization") != sent.get("Authorization")

    def _load(self) -> Any:
        config = Configuration(connection_pool_maxsize=_POOL_SIZE)
        try:
            if self._kubeconfig is None:
                InClusterConfigLoader(
                    token_filename=str(self._service_account / "token"),
                    cert_filename=str(self._service_account / "ca.crt"),
                    environ=os.environ,
                ).load_and_set(config)
                if not self._proxy:
                    config.proxy = None
            else:
                load_kube_config(str(self._kubeconfig), client_configuration=config)
        except Exception as error:  # a malformed file leads the loader into any error there is
            where = self._kubeconfig or self._service_account
            why = " ".join(str(error).split())  # a parser's error has lines of its own
            raise SettingsError(
                f"no usable credentials for the Kubernetes API in {where}: {why} "
                "(inside a pod: mount the service account's token; outside: give --kubeconfig)"
            ) from error
        config.keep_alive = True
        config.retries = False
        return config


class Stream:
    """A running watch: iterate over its events inside `with`; end it from any other thread with `close`."""

    def __init__(self, path: str, response: urllib3.BaseHTTPResponse) -> None:
        self._path = path
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[Obj]:
        """Events as the server sends them, until it ends the stream or `close`; raises Unavailable."""
        pending = b""
        try:
            while not self._closed and (data := self._response.read1(65536)):
                *lines, pending = (pending + data).split(b"\n")
                for line in lines:
                    yield json.loads(line)
        except (HTTPError, OSError, ValueError) as error:
            if not self._closed:
                raise unavailable("watch", self._path, error) from error

    def close(self) -> None:
        """End the stream at once, also while another thread waits for its next event."""
        self._closed = True
        with suppress(HTTPError, OSError, ValueError, RuntimeError):
            self._response.shutdown()  # reading ends; the socket is closed by the thread that reads

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._response.close()


def _refused(verb: str, path: str, response: urllib3.BaseHTTPResponse, *, stream: bool) -> ApiError:
    try:
        return error_from_answer(verb, path, response.status, response.data, response.headers)
    except (HTTPError, OSError) as error:
        return unavailable(verb, path, error)
    finally:
        if stream:
            response.close()
