"""The image: what is in it, and that it serves as a bare pod with the least that a pod can have."""

import ast
import gzip
import json
import re
import subprocess
import sys
import tarfile
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from testbed import driver_image, objects
from testbed.node import Node
from testbed.pod_driver import ACCOUNT, PodDriver

from dra_driver.inventory.classes import device_classes

MIB = 1 << 20
LIB = "opt/coreslice/lib/"


class Image:
    """An OCI archive, opened: its configuration and the files of its layers by path."""

    def __init__(self, archive: Path) -> None:
        self.compressed = archive.stat().st_size
        with tarfile.open(archive) as tar:
            index = self._json(tar, "index.json")
            manifest = self._json(tar, blob(index["manifests"][0]))
            self.config = self._json(tar, blob(manifest["config"]))
            self.sizes: dict[str, int] = {}
            self.bodies: dict[str, bytes] = {}
            for layer in manifest["layers"]:
                self._add(self._read(tar, blob(layer)))

    def _add(self, layer: bytes) -> None:
        with tarfile.open(fileobj=BytesIO(gzip.decompress(layer))) as tar:
            for member in tar.getmembers():
                name = member.name.removeprefix("./")
                self.sizes[name] = member.size
                if name.startswith("opt/coreslice") and member.size < MIB and (found := tar.extractfile(member)):
                    self.bodies[name] = found.read()

    def _json(self, tar: tarfile.TarFile, name: str) -> dict[str, Any]:
        known: dict[str, Any] = json.loads(self._read(tar, name))
        return known

    @staticmethod
    def _read(tar: tarfile.TarFile, name: str) -> bytes:
        found = tar.extractfile(name)
        assert found
        return found.read()


def blob(descriptor: dict[str, str]) -> str:
    return "blobs/" + descriptor["digest"].replace(":", "/")


@pytest.fixture(scope="module")
def image() -> Image:
    return Image(driver_image.build())


def test_runs_the_driver_as_root_without_a_shell(image: Image) -> None:
    config = image.config["config"]
    assert config["Entrypoint"] == ["coreslice"]
    assert config["Cmd"] == ["driver"]
    assert config["User"] == "0:0"
    assert not [
        name for name in image.sizes if name.endswith(("bin/sh", "bin/dash", "bin/bash", "bin/pip", "bin/dpkg"))
    ]


def test_says_what_it_is(image: Image) -> None:
    labels = image.config["config"]["Labels"]
    assert labels["org.opencontainers.image.title"] == "coreslice"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert "opt/coreslice/LICENSE" in image.sizes


def test_every_module_is_byte_compiled(image: Image) -> None:
    """Compiling them at each start took longer than all the rest of the start, on a root nobody can write."""
    modules = [name for name in image.bodies if name.endswith(".py")]
    assert len(modules) > 500
    missing = [name for name in modules if compiled(name) not in image.sizes]
    assert [name for name in missing if parses(image.bodies[name])] == []


def compiled(module: str) -> str:
    path = Path(module)
    return str(path.parent / "__pycache__" / f"{path.stem}.cpython-{python_tag()}.pyc")


@cache
def python_tag() -> str:
    version: str = driver_image.python_of(driver_image.RUN.archive())
    return version.replace(".", "")


def parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def test_byte_code_is_believed_without_a_look_at_the_source(image: Image) -> None:
    """Flags of PEP 552: hash-based, not checked. Times of files change with every copy of a layer."""
    name = compiled(f"{LIB}dra_driver/driver.py")
    assert int.from_bytes(image.bodies[name][4:8], "little") == 0b01


@pytest.mark.parametrize("gone", ["kubernetes/aio", "aiohttp", "yarl", "pip", "setuptools", "tests", "attr"])
def test_what_the_daemon_never_imports_is_left_out(image: Image, gone: str) -> None:
    assert not [name for name in image.sizes if name.startswith(f"{LIB}{gone}/")]


def test_licences_of_what_it_ships_are_kept(image: Image) -> None:
    """A text for each distribution, or at least the licence's name in its metadata where the wheel has no text."""
    entries = [name.split("/", 4)[3:] for name in image.sizes if re.match(rf"{LIB}[^/]+\.dist-info/.", name)]
    shipped = {folder for folder, _ in entries}
    texts = {folder for folder, file in entries if re.search(r"LICEN|COPYING", file, flags=re.IGNORECASE)}
    assert {name.split("-")[0] for name in shipped} >= {"grpcio", "kubernetes", "protobuf", "pydantic", "urllib3"}
    silent = [name for name in shipped - texts if b"icense" not in image.bodies[f"{LIB}{name}/METADATA"]]
    assert silent == []
    assert [name for name in image.sizes if re.match(r"usr/share/doc/python3[^/]*/copyright", name)]


def test_sources_are_those_of_the_tree(image: Image) -> None:
    for folder in ("cdi", "dra_driver"):
        ours = {str(path.relative_to(driver_image.TREE)) for path in (driver_image.TREE / folder).rglob("*.py")}
        theirs = {name.removeprefix(LIB) for name in image.sizes if name.startswith(f"{LIB}{folder}/")}
        assert {name for name in theirs if name.endswith(".py")} == ours


def test_is_small(image: Image) -> None:
    uncompressed = sum(image.sizes.values())
    print(f"\nimage: {uncompressed / MIB:.0f} MiB, compressed {image.compressed / MIB:.0f} MiB")
    assert image.compressed < 45 * MIB
    assert uncompressed < 170 * MIB


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_every_dependency_is_a_wheel_on(architecture: str, tmp_path: Path) -> None:
    """As the recipe chooses them, for both machines that Neuron instances and their build hosts may be."""
    arguments = driver_image.pip_arguments("3.11", architecture)
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", *arguments]
    report = tmp_path / "report.json"
    files = ["--target", str(tmp_path / "x"), "--report", str(report), "-r", "requirements/daemon.txt"]
    done = subprocess.run([*command, *files], cwd=driver_image.TREE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    chosen = [item["download_info"]["url"].rsplit("/", 1)[1] for item in json.loads(report.read_text())["install"]]
    assert all(name.endswith(".whl") for name in chosen)
    native = [name for name in chosen if "any.whl" not in name]
    assert native
    assert all(driver_image.WHEELS_OF[architecture] in name for name in native)


# In a pod ------------------------------------------------------------------------------------


@pytest.fixture
def one_core(pod_driver: PodDriver) -> Node:
    node = pod_driver.node
    node.apply(*device_classes(pod_driver.name), objects.template("one-core", r="neuron-core"))
    return node


def test_serves_with_no_right_on_the_node(pod_driver: PodDriver) -> None:
    """Registered, published and ready: what readiness means. And of privilege, nothing."""
    devices = [device["name"] for item in pod_driver.slices() for device in item["spec"].get("devices", [])]
    assert sorted(devices) == ["chip-0", "core-0-0", "core-0-1"]
    process = pod_driver.process()
    assert process["CapEff"] == process["CapBnd"] == "0" * 16
    assert process["NoNewPrivs"] == "1"
    assert process["Seccomp"] == "2"
    assert process["Name"] in {"coreslice", "python3"}
    assert pod_driver.python("import os; print(os.getuid())").strip() == "0"
    for folder in ("/", "/opt/coreslice/lib", "/tmp"):
        ran = pod_driver.node.exec(pod_driver.pod, "python3", "-c", f"open('{folder}/x', 'w')")
        assert "Read-only file system" in ran.text or "No such file" in ran.text, ran.text


def test_claim_pod_gets_its_core(pod_driver: PodDriver, one_core: Node) -> None:
    one_core.run_pod(objects.pod("a", objects.container(claims=["c"]), claims={"c": "template/one-core"}))
    view = one_core.view("a")
    assert view.cores in {"0", "1"}
    assert view.nodes == {"/dev/neuron0": f"{pod_driver.major}:0"}
    assert len(pod_driver.cdi_files()) == 1
    one_core.delete_pods("a")
    assert pod_driver.cdi_files() == []


def test_memory(pod_driver: PodDriver, one_core: Node) -> None:
    one_core.run_pod(objects.pod("a", objects.container(claims=["c"]), claims={"c": "template/one-core"}))
    resident = int(pod_driver.process()["VmRSS"].split()[0]) / 1024
    print(f"\nresident: {resident:.0f} MiB")
    assert resident < 110


def test_reaches_the_api_as_on_any_cluster(pod_driver: PodDriver) -> None:
    """By service address, token and CA. Nothing it asked for was refused. Other tests had accounts of that name."""
    assert "KUBECONFIG" not in pod_driver.python("import os; print(list(os.environ))")
    uid = pod_driver.node.api.get("serviceaccounts", ACCOUNT)["metadata"]["uid"]
    asked = [event for event in pod_driver.node.audit(pod_driver.user) if event["user"].get("uid") == uid]
    assert {event["objectRef"]["resource"] for event in asked if "objectRef" in event} >= {"nodes", "resourceslices"}
    assert [event for event in asked if event["responseStatus"]["code"] in {401, 403}] == []


def test_ends_at_once_on_term_as_process_1(pod_driver: PodDriver) -> None:
    """Process 1 has no default handlers: without its own, TERM would be nothing and the grace period would pass."""
    pod_driver.python("import os, signal; os.kill(1, signal.SIGTERM)")
    pod_driver.wait_restarted(since=0)
    assert pod_driver.status()["lastState"]["terminated"]["exitCode"] == 0
    assert pod_driver.slices()


def test_commands_run_in_the_container(pod_driver: PodDriver) -> None:
    node, pod = pod_driver.node, pod_driver.pod
    assert node.exec(pod, "coreslice", "--version").text.startswith("coreslice ")
    assert "trn1.2xlarge" in node.exec(pod, "coreslice", "machine", "list").text
