"""Socket names: unique per instance, within the kernel's limit, found again by driver."""

import os
import re
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import KubeletError
from dra_driver.kubelet import names

UID = "0f8e7a5c-1111-2222-3333-444455556666"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
DRIVER = "neuron.coreslice.dev"


def test_names_are_those_of_the_field() -> None:
    assert names.registration_socket(REGISTRY, DRIVER, UID) == REGISTRY / f"{DRIVER}-{UID}-reg.sock"
    assert names.dra_socket(Path("/p"), UID) == Path(f"/p/dra-{UID}.sock")


def test_only_the_instance_is_hashed_while_that_is_enough() -> None:
    driver = "a-rather-long-name.neuron.coreslice.dev"
    name = names.registration_socket(REGISTRY, driver, UID).name
    assert re.fullmatch(re.escape(driver) + r"-[\w-]{11}-reg\.sock", name)


def test_a_driver_name_as_long_as_allowed_still_gets_a_name() -> None:
    name = names.registration_socket(REGISTRY, "d" * 63, UID).name
    assert len(name) == 11 + 1 + 11 + len("-reg.sock")
    assert names.registration_pattern("d" * 63).fullmatch(name)


def test_two_instances_never_share_a_shortened_name() -> None:
    folder = Path("/" + "f" * 75)
    assert names.dra_socket(folder, UID) != names.dra_socket(folder, UID + "-2")
    assert names.dra_socket(folder, UID).name != f"dra-{UID}.sock"


def test_a_folder_that_is_too_deep_is_said() -> None:
    folder = Path("/" + "f" * 100)
    with pytest.raises(KubeletError, match=r"no socket fits into /f+: .* use a shorter folder"):
        names.dra_socket(folder, "i")


@given(
    folder=st.integers(min_value=1, max_value=70),
    driver=st.from_regex(r"[a-z][a-z0-9-]{0,30}(\.[a-z]{1,10}){0,2}", fullmatch=True),
    instance=st.from_regex(r"[A-Za-z0-9_-]{1,40}(-[2-9])?", fullmatch=True),
)
def test_every_name_fits_with_its_dot_and_is_found_by_the_pattern(folder: int, driver: str, instance: str) -> None:
    path = names.registration_socket(Path("/" + "f" * folder), driver, instance)
    hidden = names.dot_name(path)
    assert len(os.fsencode(hidden)) <= names.MAX_PATH
    pattern = names.registration_pattern(driver)
    assert pattern.fullmatch(path.name)
    assert pattern.fullmatch(hidden.name)


@pytest.mark.parametrize("length", [names.MAX_PATH, names.MAX_PATH + 1])
def test_the_limit_is_the_kernels(length: int) -> None:
    with tempfile.TemporaryDirectory(prefix="len-") as folder, socket.socket(socket.AF_UNIX) as bound:
        path = f"{folder}/" + "s" * (length - len(folder) - 1)
        if length <= names.MAX_PATH:
            bound.bind(path)
        else:
            with pytest.raises(OSError, match="too long"):
                bound.bind(path)


@pytest.mark.parametrize(
    "name",
    [
        "other.example.dev-uid-reg.sock",
        f"{DRIVER}-reg.sock",
        f"{DRIVER}x-uid-reg.sock",
        f"{DRIVER}-uid.other.dev-reg.sock",
        f"{DRIVER}-uid-reg.sock.bak",
        "kubelet.sock",
    ],
)
def test_sockets_of_others_are_not_ours(name: str) -> None:
    assert not names.registration_pattern(DRIVER).fullmatch(name)


def test_the_dots_of_a_driver_name_are_dots() -> None:
    assert not names.registration_pattern(DRIVER).fullmatch("neuronxcoreslice.dev-uid-reg.sock")


@pytest.mark.parametrize("name", ["dra.sock", "state.json", "dra-uid.sock.tmp", "draft-uid.sock"])
def test_other_files_in_the_plugin_folder_are_not_sockets_of_instances(name: str) -> None:
    assert not names.dra_pattern().fullmatch(name)


@pytest.mark.parametrize(
    ("name", "matches"),
    [
        ("neuron.aws.com-reg.sock", True),
        (f"neuron.aws.com-{UID}-reg.sock", True),
        ("neuron.aws.com-Ab_-9xYz012-reg.sock", True),
        ("neuron.aws.com.example.dev-reg.sock", False),
        ("xneuron.aws.com-reg.sock", False),
        ("neuronxaws.com-reg.sock", False),
        ("neuron.aws.com.sock", False),
        (f"{DRIVER}-{UID}-reg.sock", False),
    ],
)
def test_registration_sockets_of_another_driver(name: str, *, matches: bool) -> None:
    assert bool(names.any_registration_pattern("neuron.aws.com").fullmatch(name)) is matches
