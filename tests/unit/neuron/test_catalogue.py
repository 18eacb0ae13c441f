"""Sizes, versions: the small tables."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.neuron.catalogue import GIB, SIZES, instance_is_neuron, lookup
from dra_driver.neuron.version import UNKNOWN, parts, semver

# semver.org's grammar: what the API server's parser takes.
SEMVER = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(-(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)(\.(0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*)?"
    r"(\+[0-9a-zA-Z-]+(\.[0-9a-zA-Z-]+)*)?"
)


def test_trn1_2xlarge() -> None:
    size = SIZES["trn1.2xlarge"]
    assert (size.chips, size.physical_cores, size.memory) == (1, 2, 34359738368)
    assert size.memory == 32 * GIB
    assert (size.family, size.core_architecture) == ("Trainium1", "NCv2")


def test_rows_stand_under_their_names_and_links_are_mutual() -> None:
    for name, size in SIZES.items():
        assert size.name == name
        for chip, links in enumerate(size.links):
            assert all(chip in size.links[other] for other in links)


def test_sagemaker_hosts_are_the_same_hardware() -> None:
    assert lookup("ml.trn1.2xlarge") is SIZES["trn1.2xlarge"]
    assert lookup("trn9.2xlarge") is None


@pytest.mark.parametrize(
    "name",
    ["trn1.2xlarge", "inf1.xlarge", "inf2.48xlarge", "ml.trn1n.32xlarge", "trn2u-ac.24xlarge", "trn9.metal"],
)
def test_names_that_promise_neuron_hardware(name: str) -> None:
    assert instance_is_neuron(name)


@pytest.mark.parametrize("name", ["", "m5.large", "p5.48xlarge", "inf", "trn1", "trainium.2xlarge", "xtrn1.2xlarge"])
def test_names_that_do_not(name: str) -> None:
    assert not instance_is_neuron(name)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.30.2.0", "2.30.2+0"),
        ("2.29.0.0", "2.29.0+0"),
        ("2.21.37.12", "2.21.37+12"),
        ("2.30.2", "2.30.2"),
        ("2.29", UNKNOWN),
        ("2.x.8072.0", UNKNOWN),
        ("02.1.0.0", UNKNOWN),
        ("2.30.2.0-dirty", UNKNOWN),
        ("v2.30.2.0", UNKNOWN),
        ("2.30.2.0\n", UNKNOWN),
        ("2.99999999999999999999.2.0", UNKNOWN),  # beyond the 64 bits of the API server's parser
        ("", UNKNOWN),
        ("garbage", UNKNOWN),
        ("1" * 70, UNKNOWN),
        ("٢.٣٠.٢", UNKNOWN),
    ],
)
def test_bc014_version_is_not_semver(text: str, version: str) -> None:
    assert semver(text) == version


@given(st.text() | st.from_regex(r"[0-9]{0,12}(\.[0-9x]{0,12}){0,5}"))
def test_bc014_any_text_becomes_a_valid_version(text: str) -> None:
    version = semver(text)
    assert SEMVER.fullmatch(version)
    assert len(version.encode()) <= 64


def test_versions_compare_by_number() -> None:
    assert parts("2.9.0.0") < parts("2.30.2.0")
    assert parts("garbage") == ()
