"""From an answer to an error that says what to do."""

import json

import pytest

from dra_driver.cluster import errors
from dra_driver.cluster.errors import ApiError, error_from_answer, error_from_status

CLAIM = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c"


def told(code: int, reason: str, message: str = "said") -> bytes:
    return json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode()


@pytest.mark.parametrize(
    ("code", "reason", "kind", "transient"),
    [
        (400, "BadRequest", ApiError, False),
        (401, "Unauthorized", errors.Unauthorized, False),
        (403, "Forbidden", errors.Forbidden, False),
        (404, "NotFound", errors.NotFound, False),
        (409, "Conflict", errors.Conflict, False),
        (409, "AlreadyExists", errors.AlreadyExists, False),
        (410, "Expired", errors.Gone, False),
        (422, "Invalid", errors.Invalid, False),
        (429, "TooManyRequests", errors.TooManyRequests, True),
        (500, "InternalError", errors.ServerError, True),
        (503, "ServiceUnavailable", errors.ServerError, True),
        (504, "Timeout", errors.ServerError, True),
    ],
)
def test_each_status_has_its_class(code: int, reason: str, kind: type[ApiError], transient: bool) -> None:  # noqa: FBT001
    error = error_from_answer("get", CLAIM, code, told(code, reason))
    assert type(error) is kind
    assert (error.status, error.reason, error.transient) == (code, reason, transient)
    assert str(error).startswith(f"get {CLAIM}: {code} {reason}: said")


@pytest.mark.parametrize(
    ("path", "right"),
    [
        (CLAIM, '"get" on "resourceclaims" in API group "resource.k8s.io"'),
        (CLAIM + "/status", '"get" on "resourceclaims/status" in API group "resource.k8s.io"'),
        ("/api/v1/nodes/n", '"get" on "nodes" in API group ""'),
        ("/apis/resource.k8s.io/v1/resourceslices", '"get" on "resourceslices" in API group "resource.k8s.io"'),
        ("/version", "may not read this path"),
    ],
)
def test_forbidden_names_the_missing_right(path: str, right: str) -> None:
    assert right in str(error_from_answer("get", path, 403, told(403, "Forbidden")))


def test_a_body_that_is_no_status_is_quoted_and_bounded() -> None:
    error = error_from_answer("get", CLAIM, 502, b"<html>" + b"x" * 100_000)
    assert "<html>xxx" in str(error)
    assert len(str(error)) < 2000
    assert "no text" in str(error_from_answer("get", CLAIM, 503, b""))
    assert "[1]" in str(error_from_answer("get", CLAIM, 500, b"[1]"))


def test_retry_after_is_seconds_or_nothing() -> None:
    for value, seconds in (("7", 7.0), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None)):
        error = error_from_answer("get", CLAIM, 429, b"", {"Retry-After": value})
        assert error.retry_after == seconds


def test_a_status_in_a_watch_stream_is_the_same_kind_of_error() -> None:
    assert isinstance(error_from_status("watch", CLAIM, {"code": 410, "message": "old"}), errors.Gone)
    assert isinstance(error_from_status("watch", CLAIM, {"code": None}), errors.ServerError)
