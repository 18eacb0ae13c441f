"""The simulated API server and a client of it that knows HTTP and JSON only."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from dra_driver.simulator.apiserver.server import ApiServer

Obj = dict[str, Any]


@dataclass
class Client:
    """One kept-alive connection; every call returns status and decoded body."""

    connection: HTTPConnection

    def __call__(
        self, method: str, path: str, body: Any = None, *, kind: str = "application/json", token: str = ""
    ) -> tuple[int, Obj]:
        headers = {"Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {})}
        self.connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = self.connection.getresponse()
        return answer.status, json.loads(answer.read())

    def watch(self, path: str) -> Iterator[Obj]:
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        assert answer.status == 200, answer.read()
        while line := answer.readline():
            yield json.loads(line)


def connect(server: ApiServer) -> Client:
    url = urlsplit(server.url)
    assert url.hostname
    return Client(HTTPConnection(url.hostname, url.port, timeout=20))


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def call(server: ApiServer) -> Iterator[Client]:
    client = connect(server)
    yield client
    client.connection.close()
