"""The grammar of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.errors import CdiError, InvalidNameError
from cdi.names import QualifiedName, device_fault, file_name, kind_fault, parse_name

_INNER = "abzAZ059_-."
_KIND_PARTS = st.builds(
    lambda first, inner, last: first + inner + last,
    st.sampled_from("azAZ"),
    st.text(_INNER, max_size=20),
    st.sampled_from("azAZ09"),
)
_DEVICE_NAMES = st.one_of(
    st.sampled_from("az09"),
    st.builds(
        lambda first, inner, last: first + inner + last,
        st.sampled_from("azAZ09"),
        st.text(_INNER + ":", max_size=20),
        st.sampled_from("azAZ09"),
    ),
)


@given(vendor=_KIND_PARTS, klass=_KIND_PARTS, device=_DEVICE_NAMES)
def test_every_name_of_the_grammar_reads_back_as_itself(vendor: str, klass: str, device: str) -> None:
    text = f"{vendor}/{klass}={device}"
    assert parse_name(text) == QualifiedName(f"{vendor}/{klass}", device)
    assert str(parse_name(text)) == text


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused_with_our_error(text: str) -> None:
    try:
        name = str(parse_name(text))
    except InvalidNameError as error:
        name = str(error)
    assert name == text or name.startswith(f"{text!r} is not a qualified CDI device name")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dev",
        "vendor.com/class",
        "vendor.com/class=",
        "class=dev",
        "/class=dev",
        "vendor.com/=dev",
        "vendor.com/class=a/b",
        "vendor.com/class=a=b",
        "vendor.com/a/b=dev",
        "vendor.com/class=dev\n",
        "vendor.com/class=-dev",
        "vendor.com/class=dev.",
        "vendor.com/clàss=dev",
    ],
)
def test_what_is_no_qualified_name(text: str) -> None:
    with pytest.raises(InvalidNameError, match="not a qualified CDI device name"):
        parse_name(text)


@pytest.mark.parametrize("kind", ["v/class", "vendor/c"])
def test_one_character_is_refused_because_podman_panics_on_it(kind: str) -> None:
    assert "two characters or more" in str(kind_fault(kind))


@pytest.mark.parametrize("kind", ["9vendor/class", "-vendor/class", "vendor-/class", "ven dor/class", "vendor"])
def test_bad_kinds(kind: str) -> None:
    assert kind_fault(kind)


@pytest.mark.parametrize("name", ["0", "00", "0abc", "a:b.c-d_e", "0f0a-core-3-1"])
def test_good_device_names(name: str) -> None:
    assert device_fault(name) is None


def test_file_names_follow_the_convention() -> None:
    assert file_name("vendor.com/class") == "vendor.com-class.json"
    assert file_name("vendor.com/claim", "a/b") == "vendor.com-claim_a_b.json"
    with pytest.raises(CdiError, match="no file name"):
        file_name("../../etc/passwd")
