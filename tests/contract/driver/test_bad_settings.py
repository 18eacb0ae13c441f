"""Settings that make no sense end the daemon at once, with a line that names them, before anything is touched."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from dra_driver.simulator.apiserver.server import ApiServer
from dra_driver.simulator.machines import make_machine

ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}


class Place:
    """A node's folders, and the flags that fit them."""

    def __init__(self, root: Path, server: ApiServer) -> None:
        machine = make_machine("trn1.2xlarge", root / "m")
        self.plugins, self.registry, self.cdi = root / "plugins", root / "reg", root / "cdi"
        self.plugins.mkdir()
        self.registry.mkdir()
        self.flags = {
            "node-name": "node-1",
            "kubelet-plugins-dir": self.plugins,
            "kubelet-registrar-dir": self.registry,
            "cdi-root": self.cdi,
            "sysfs-root": machine.sysfs,
            "proc-root": machine.proc,
            "kubeconfig": server.kubeconfig(root / "kubeconfig"),
            "healthcheck-port": 0,
            "metrics-port": 0,
        }

    def run(self, changed: dict[str, object | None], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run the daemon with these flags changed (None: not given) to its end."""
        flags = {name: value for name, value in {**self.flags, **changed}.items() if value is not None}
        command = [sys.executable, "-m", "dra_driver.cli.main", "driver", *(f"--{k}={v}" for k, v in flags.items())]
        return subprocess.run(
            command, env=ENVIRONMENT | env, capture_output=True, text=True, timeout=20, check=False, cwd=Path.cwd()
        )


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.fixture
def place(server: ApiServer) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="dr-") as root:
        yield Place(Path(root), server)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a person reads: the last line, and no traceback anywhere."""
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr.rstrip().splitlines()[-1]


WRONG: Sequence[tuple[dict[str, object | None], dict[str, str], list[str]]] = [
    ({"node-name": None}, {}, ["--node-name", "NODE_NAME", "is needed", "this node's name in the API"]),
    ({"node-name": "Node_1"}, {}, ["--node-name", "'Node_1'", "match pattern"]),
    ({"node-name": "n" * 254}, {}, ["--node-name", "at most 253 characters"]),
    ({"driver-name": "Neuron!"}, {}, ["--driver-name", "'Neuron!'"]),
    ({"driver-name": "d" * 64}, {}, ["--driver-name", "at most 63 characters"]),
    ({"pod-uid": "../../x"}, {}, ["--pod-uid", "'../../x'"]),
    ({"kubelet-plugins-dir": "plugins"}, {}, ["--kubelet-plugins-dir", "'plugins'", "must be an absolute path"]),
    ({"kubelet-registrar-dir": "./r"}, {}, ["--kubelet-registrar-dir", "must be an absolute path"]),
    ({"cdi-root": "cdi"}, {}, ["--cdi-root", "'cdi'", "must be an absolute path"]),
    ({"state-dir": "state"}, {}, ["--state-dir", "'state'", "must be an absolute path"]),
    ({"healthcheck-port": "70000"}, {}, ["--healthcheck-port", "'70000'", "less than or equal to 65535"]),
    ({"healthcheck-port": None}, {"HEALTHCHECK_PORT": "http"}, ["HEALTHCHECK_PORT", "'http'", "valid integer"]),
    ({"metrics-port": "-2"}, {}, ["--metrics-port", "'-2'", "greater than or equal to -1"]),
    ({"coexistence": "maybe"}, {}, ["--coexistence", "'maybe'", "'refuse', 'warn' or 'ignore'"]),
    ({"assume-cdi": "containerd"}, {}, ["--assume-cdi", "'containerd'", "valid boolean"]),
    ({"pod-resources-socket": "kubelet.sock"}, {}, ["--pod-resources-socket", "must be an absolute path"]),
    ({"kubelet-device-plugins-dir": "dp"}, {}, ["--kubelet-device-plugins-dir", "must be an absolute path"]),
    ({"other-drivers": None}, {"OTHER_DRIVERS": "d" * 254}, ["OTHER_DRIVERS", "at most 253 characters"]),
    ({"granularity-without-counters": "half"}, {}, ["--granularity-without-counters", "'half'", "'chip' or 'core'"]),
    ({"prepare-wait": "45"}, {}, ["--prepare-wait", "'45'", "less than or equal to 35"]),
    ({"prepare-wait": "nan"}, {}, ["--prepare-wait", "'nan'"]),
    ({"rescan-interval": "0"}, {}, ["--rescan-interval", "'0'", "greater than or equal to 1"]),
    ({"read-pods": "perhaps"}, {}, ["--read-pods", "'perhaps'", "valid boolean"]),
    ({"log-level": "LOUD"}, {}, ["--log-level", "'LOUD'"]),
    ({"log-format": "xml"}, {}, ["--log-format", "'xml'", "'json' or 'text'"]),
    ({"kubeconfig": "/nonexistent"}, {}, ["no usable credentials", "/nonexistent", "--kubeconfig"]),
    ({"kubeconfig": None}, {}, ["no usable credentials", "serviceaccount", "--kubeconfig"]),
    ({"noed-name": "x"}, {}, ["unrecognized arguments", "--noed-name"]),
]


@pytest.mark.parametrize(
    ("changed", "env", "told"), WRONG, ids=[f"{next(iter(changed))}-{n}" for n, (changed, _, _) in enumerate(WRONG)]
)
def test_value_that_makes_no_sense(
    place: Place, changed: dict[str, object | None], env: dict[str, str], told: list[str]
) -> None:
    done = place.run(changed, env)
    line = last_line(done)
    assert [text for text in told if text not in line] == [], line
    assert done.returncode == 2
    assert [*place.plugins.iterdir(), *place.registry.iterdir()] == [], "nothing was touched"
    assert not place.cdi.exists()


def test_all_wrong_values_are_told_at_once(place: Place) -> None:
    line = last_line(place.run({"log-level": "LOUD", "prepare-wait": "45"}, {"NODE_NAME": "x"}))
    assert "--log-level" in line
    assert "--prepare-wait" in line


@pytest.mark.parametrize("text", ["", "{", "[]", "apiVersion: v1\nkind: Config\n", "current-context: a\ncontexts: 7\n"])
def test_kubeconfig_that_is_none(place: Place, tmp_path: Path, text: str) -> None:
    broken = tmp_path / "broken"
    broken.write_text(text)
    done = place.run({"kubeconfig": broken}, {})
    line = last_line(done)
    assert "no usable credentials" in line
    assert str(broken) in line
    assert done.returncode == 2


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kubelet-registrar-dir": "/nonexistent/reg"}, ["/nonexistent/reg", "doesn't exist", "--root-dir"]),
        ({"kubelet-plugins-dir": "/nonexistent/plugins"}, ["/nonexistent/plugins", "doesn't exist", "--root-dir"]),
        ({"sysfs-root": "/nonexistent/sys"}, ["no sysfs at /nonexistent/sys", "--sysfs-root"]),
        ({"proc-root": "/nonexistent/proc"}, ["/nonexistent/proc/devices", "--proc-root"]),
        ({"kubelet-registrar-dir": "/" + "r" * 120}, ["unix socket"]),
    ],
)
def test_folder_that_isnt_there(place: Place, changed: dict[str, object | None], told: list[str]) -> None:
    """Well-formed, but not true here: what was asked for doesn't hold."""
    done = place.run(changed, {})
    line = last_line(done)
    assert [text for text in told if text not in line] == [], line
    assert done.returncode == 1
    assert list(place.registry.iterdir()) == []
    assert not Path("/nonexistent").exists(), "a wrong path isn't made"


@pytest.mark.parametrize("service", ["healthcheck", "metrics"])
def test_port_that_is_taken(place: Place, service: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = place.run({f"{service}-port": port, f"{service}-address": "127.0.0.1"}, {})
    line = last_line(done)
    assert f"127.0.0.1:{port}" in line
    assert "is the port taken?" in line
    assert done.returncode == 1
    assert list(place.registry.iterdir()) == [], "no socket is left behind"
    assert list(place.plugins.rglob("*.sock")) == []
