"""Refusals as the API gives them: a `Status` object with code, reason and message."""

from typing import Any

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Refusal(Exception):  # noqa: N818 the word of this package for a non-2xx answer
    """A request that is refused; `status` is what the client gets."""

    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.status = status(code, message, reason)


def status(code: int, message: str, reason: str = "") -> dict[str, Any]:
    """A v1 Status of a failure."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or _REASONS.get(code, ""),
        "code": code,
    }


def success(details: dict[str, Any] | None = None) -> dict[str, Any]:
    """A v1 Status of a success, as a delete answers."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details or {},
    }
