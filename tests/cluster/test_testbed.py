"""Parts of the test bed that need no node: what builds are keyed by, images, settings, views."""

import json
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest
from testbed import binaries, driver_image, images, objects, packages, settings
from testbed.node import parse_view, shown
from testbed.proxy import Fault


def a_module(folder: Path, *, requires: str = "example.org/tool", tags: str = "") -> binaries.Module:
    folder.mkdir(exist_ok=True)
    (folder / "go.mod").write_text("module m\n\nrequire (\n\texample.org/tool v1.2.3\n)\n")
    (folder / "go.sum").touch()
    return binaries.Module("m", folder, {"tool": "example.org/tool"}, requires, tags=tags)


def test_build_is_keyed_by_all_that_goes_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESLICE_TESTBED_CACHE", str(tmp_path / "cache"))
    module = a_module(tmp_path / "m")
    home = module.home()
    assert home.parent == tmp_path / "cache"
    assert home.name.startswith("m-v1.2.3-")
    assert a_module(tmp_path / "m").home() == home
    assert a_module(tmp_path / "m", tags="seccomp").home() != home
    (tmp_path / "m/go.sum").write_text("changed")
    assert module.home() != home


def test_module_without_the_named_requirement_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"does not require example.org/other"):
        a_module(tmp_path / "m", requires="example.org/other")


def test_what_the_cache_has_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module's program does not exist: a build would fail."""
    monkeypatch.setenv("CORESLICE_TESTBED_CACHE", str(tmp_path / "cache"))
    module = a_module(tmp_path / "m")
    module.home().mkdir(parents=True)
    (module.home() / "tool").touch()
    assert binaries.build(module) == {"tool": module.home() / "tool"}


def test_failed_build_leaves_nothing_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORESLICE_TESTBED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("GOPROXY", "off")
    module = a_module(tmp_path / "m")
    with pytest.raises(subprocess.CalledProcessError):
        binaries.build(module)
    assert [path.name for path in module.home().iterdir()] == [".lock"]


def test_version_is_stamped_into_kubernetes() -> None:
    flags = " ".join(binaries.kubernetes().flags())
    assert "gitVersion=v1.37.2" in flags
    assert "gitMajor=1" in flags
    assert "gitMinor=37" in flags


def test_archive_is_what_oci_says(tmp_path: Path) -> None:
    made = images.archive("localhost/x:7", {"bin/sh": b"#!", "bin/ls": "sh"}, ["/bin/sh"])
    assert images.archive("localhost/x:7", {"bin/sh": b"#!", "bin/ls": "sh"}, ["/bin/sh"]) == made
    with tarfile.open(fileobj=BytesIO(made)) as tar:
        blobs = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]
    entry = json.loads(blobs["index.json"])["manifests"][0]
    assert entry["annotations"]["io.containerd.image.name"] == "localhost/x:7"
    for name, blob in blobs.items():
        if name.startswith("blobs/"):
            assert images.digest(blob) == f"sha256:{Path(name).name}"
    manifest = json.loads(blobs["blobs/sha256/" + entry["digest"].removeprefix("sha256:")])
    assert manifest["layers"][0]["size"] == len(blobs[f"blobs/sha256/{manifest['layers'][0]['digest'][7:]}"])


def test_kubelet_is_its_own_node_in_the_token_file() -> None:
    assert 'kubelet-token,system:node:here,kubelet,"system:nodes"' in settings.token_file("here").splitlines()


def test_view_tells_environment_and_nodes() -> None:
    text = "A=1\nB=x=y\nNODE /dev/neuron0 f3:a 666\nSHOWN\n"
    view = parse_view(text)
    assert view.env == {"A": "1", "B": "x=y"}
    assert view.nodes == {"/dev/neuron0": "243:10"}
    assert view.cores is None
    assert shown(text) == text
    assert shown("A=1\n") is None


def test_pod_names_its_claims_as_the_api_wants() -> None:
    main = objects.container(claims=["c", ("d", "r")], resources={"example.org/x": 2})
    made = objects.pod("p", main, claims={"c": "template/t", "d": "claim/own"})
    assert made["spec"]["resourceClaims"] == [
        {"name": "c", "resourceClaimTemplateName": "t"},
        {"name": "d", "resourceClaimName": "own"},
    ]
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["claims"] == [{"name": "c"}, {"name": "d", "request": "r"}]
    assert resources["limits"] == {"example.org/x": "2"}


def test_fault_takes_only_what_it_names_and_only_so_often() -> None:
    fault = Fault("GET", r"/resourceclaims/b$", 500, times=1)
    assert not fault.takes("GET", "/apis/x/resourceclaims/a")
    assert not fault.takes("PUT", "/apis/x/resourceclaims/b")
    assert fault.takes("GET", "/apis/x/resourceclaims/b")
    assert not fault.takes("GET", "/apis/x/resourceclaims/b")


def test_version_is_stamped_into_helm() -> None:
    module = binaries.helm()
    assert module.version in " ".join(module.flags())


def a_tree(folder: Path) -> Path:
    for name in ("LICENSE", ".containerignore", "requirements/daemon.txt", "deploy/image/Containerfile", "cdi/a.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def key(tree: Path) -> str:
    return driver_image.fingerprint(driver_image.ingredients(tree))


@pytest.mark.parametrize("changed", ["cdi/a.py", "requirements/daemon.txt", "deploy/image/Containerfile", "cdi/new.py"])
def test_image_is_keyed_by_what_goes_into_it(tmp_path: Path, changed: str) -> None:
    tree = a_tree(tmp_path)
    before = key(tree)
    (tree / changed).write_text("changed")
    assert key(tree) != before


def test_image_is_not_keyed_by_what_does_not(tmp_path: Path) -> None:
    tree = a_tree(tmp_path)
    before = key(tree)
    for name in ("README.md", "requirements/dev.txt", "cdi/__pycache__/a.cpython-311.pyc"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text("changed")
    assert key(tree) == before


def test_fingerprint_tells_parts_apart() -> None:
    assert driver_image.fingerprint([b"ab", b"c"]) != driver_image.fingerprint([b"a", b"bc"])


def test_nothing_is_left_of_what_could_not_be_made(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_text("half")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError, match="no space"):
        driver_image.made(tmp_path / "x.tar", fails)
    assert [path.name for path in tmp_path.iterdir()] == [".x.tar.lock"]
    driver_image.made(tmp_path / "x.tar", lambda path: path.write_text("whole"))
    driver_image.made(tmp_path / "x.tar", fails)
    assert (tmp_path / "x.tar").read_text() == "whole"


def test_a_command_that_fails_says_what_it_said() -> None:
    with pytest.raises(RuntimeError, match=r"exit status 2[\s\S]*No such file"):
        driver_image.run(["ls", "/nowhere/at/all"])


def test_audit_policy_has_the_rules_in_order() -> None:
    rules: list[objects.Object] = [{"level": "Request", "users": ["a"]}, {"level": "None"}]
    assert json.loads(settings.audit_policy(rules))["rules"] == rules


def test_package_is_there_if_a_proof_of_it_is(tmp_path: Path) -> None:
    package = packages.Package("p", (str(tmp_path / "*/tool"), "/nowhere/tool"))
    assert not package.present()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").touch()
    assert package.present()
