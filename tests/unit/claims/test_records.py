"""The file of one claim: whole or damaged, never something in between."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.claims.records import Record, RecordError, checked_uid, decode, encode
from dra_driver.claims.refusals import Reason, Refusal
from dra_driver.simulator.samples import claim, result

MakeRecord = Callable[..., Record]


@pytest.fixture
def record(recorded: MakeRecord) -> Record:
    return recorded(claim("a", "core-0-0", "core-0-1", owner="p", users=["q"]))


def changed(content: bytes, **fields: Any) -> bytes:
    """The same file with other fields and a checksum that matches."""
    body = json.loads(content.partition(b"\n")[0]) | fields
    line = json.dumps(body).encode()
    return line + b"\nsha256:" + sha256(line).hexdigest().encode() + b"\n"


def test_what_is_written_is_read(record: Record) -> None:
    assert decode(encode(record), uid="uid-a") == record


def test_it_holds_the_devices_as_published_and_the_whole_cdi_spec(record: Record) -> None:
    found = decode(encode(record), uid="uid-a")
    assert [held.wire["name"] for held in found.devices] == ["core-0-0", "core-0-1"]
    assert found.devices[1].cores == {(0, 1)}
    assert found.spec.to_json() == record.spec.to_json()
    assert found.requests == {"req"}
    assert found.holders() == "claim default/a (uid-a) (pod p)"


def test_who_holds_a_shared_claim(recorded: MakeRecord) -> None:
    assert recorded(claim("s", "core-0-0", users=["p", "q"])).holders() == "claim default/s (uid-s) (pod p, q)"
    assert recorded(claim("s", "core-0-0")).holders() == "claim default/s (uid-s) (pod no pod)"


def test_monitoring_access_holds_nothing(recorded: MakeRecord) -> None:
    (held,) = recorded(claim("a", result("chip-0", admin=True), owner="p")).devices
    assert held.cores == frozenset()


def test_equal_records_are_equal_bytes(record: Record, recorded: MakeRecord) -> None:
    again = recorded(claim("a", "core-0-0", "core-0-1", owner="p", users=["q"]))
    assert encode(again) == encode(record)
    assert encode(decode(encode(record), uid="uid-a")) == encode(record)


def test_cut_off_at_every_byte_it_is_damaged(record: Record) -> None:
    content = encode(record)
    for length in range(len(content)):
        with pytest.raises(RecordError):
            decode(content[:length], uid="uid-a")


def test_a_byte_altered_anywhere_makes_it_damaged(record: Record) -> None:
    content = encode(record)
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= 1
        with pytest.raises(RecordError):
            decode(bytes(altered), uid="uid-a")


@given(content=st.binary(max_size=200) | st.builds(lambda line: line + b"\n", st.binary(max_size=200)))
def test_any_other_bytes_are_damaged(content: bytes) -> None:
    with pytest.raises(RecordError):
        decode(content, uid="uid-a")


def test_bc089_a_field_of_a_later_release_is_no_fault(record: Record) -> None:
    body = json.loads(encode(record).partition(b"\n")[0])
    body["claim"]["new"] = body["devices"][0]["new"] = {"x": 1}
    assert decode(changed(encode(record), **body, new=[1]), uid="uid-a") == record


def test_what_an_earlier_release_left_out_has_its_default(record: Record) -> None:
    body = json.loads(encode(record).partition(b"\n")[0])
    for name in ("users", "unit", "owner"):
        del body[name]
    line = json.dumps(body).encode()
    found = decode(line + b"\nsha256:" + sha256(line).hexdigest().encode() + b"\n", uid="uid-a")
    assert (found.users, found.unit, found.owner) == ((), (), None)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"apiVersion": "state.coreslice.dev/v9"}, "state.coreslice.dev/v9"),
        ({"kind": "Other"}, "Other"),
        ({"claim": {"namespace": "default", "name": "a", "uid": "else"}}, "claim else"),
        ({"bootID": None}, "bootID"),
        ({"devices": [{"request": "r", "pool": "p", "published": {"name": "x"}}]}, "'x'"),
        ({"spec": {"cdiVersion": "0.5.0", "kind": "a.b/claim", "devices": []}}, "at least one device"),
        ({"spec": {"kind": 7}}, "kind"),
    ],
)
def test_a_whole_file_that_this_release_cannot_use_says_why(record: Record, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(RecordError, match=told):
        decode(changed(encode(record), **fields), uid="uid-a")


@pytest.mark.parametrize("uid", ["", "..", "a/b", "-a", ".a", "a" * 64, "a\n", "ä"])
def test_a_uid_that_is_no_file_name_is_refused(uid: str) -> None:
    with pytest.raises(Refusal) as caught:
        checked_uid(uid)
    assert caught.value.reason is Reason.CLAIM_MALFORMED
