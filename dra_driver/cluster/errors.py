# ruff: noqa: N818  the names are the API's own reasons
"""What can go wrong with the Kubernetes API, by kind.

A caller catches a class, never a text or a number. Texts say what was tried, on which path, what the server
said and what to do.

ApiError
├── Unauthorized      401, also after the credentials were read again
├── Forbidden         403, names the missing right
├── NotFound          404
├── AlreadyExists     409 on a create
├── Conflict          409 on a change: the object is another one by now
├── Gone              410: the resource version is too old, list again
├── Invalid           422
├── TooManyRequests   429
├── ServerError       5xx
└── Unavailable       no answer at all: connection, timeout, or an answer that isn't JSON
"""

import json
from collections.abc import Mapping
from typing import Any

from dra_driver.errors import CoresliceError

_TEXT_LIMIT = 1000  # characters of a server's text that are kept


class ApiError(CoresliceError):
    """A request that failed. `status` is the HTTP status (0: no answer), `reason` the Status reason.

    `transient`: the same request may succeed later without anybody's help. `retry_after`: seconds the server
    asked to wait, None if it didn't say.
    """

    transient = False

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Unauthorized(ApiError):
    """401: the credentials aren't taken, the ones read again neither."""


class Forbidden(ApiError):
    """403: the account lacks a right, or an admission policy refuses."""


class NotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 on a create: the name is taken."""


class Conflict(ApiError):
    """409 on a change: version or UID is no longer the given one."""


class Gone(ApiError):
    """410: the resource version is too old."""


class Invalid(ApiError):
    """422: the server's validation refuses the object."""


class TooManyRequests(ApiError):
    """429."""

    transient = True


class ServerError(ApiError):
    """5xx."""

    transient = True


class Unavailable(ApiError):
    """No usable answer: connection refused, reset, timed out, or not JSON."""

    transient = True


_BY_STATUS: Mapping[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_REMEDIES: Mapping[type[ApiError], str] = {
    Unauthorized: "the credentials were read again and are still refused: check the service account's token",
    Gone: "list again",
    TooManyRequests: "the server is overloaded, it will be tried again",
}


def error_from_answer(
    verb: str, path: str, status: int, body: bytes, headers: Mapping[str, str] | None = None
) -> ApiError:
    """The error for an answer that isn't 2xx; the body may be a Status, or anything else."""
    told = _as_status(body)
    reason = str(told.get("reason") or "")
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_STATUS.get(status, ApiError)
    if status >= 500:  # noqa: PLR2004 HTTP's server errors
        kind = ServerError
    said = str(told.get("message") or body[:_TEXT_LIMIT].decode(errors="replace") or "no text")
    remedy = _right(verb, path) if kind is Forbidden else _REMEDIES.get(kind, "")
    text = f"{verb} {path}: {status} {reason}: {said[:_TEXT_LIMIT]}" + (f" ({remedy})" if remedy else "")
    return kind(text, status=status, reason=reason, retry_after=_seconds((headers or {}).get("Retry-After")))


def error_from_status(verb: str, path: str, told: Mapping[str, Any]) -> ApiError:
    """The error for a Status object inside a watch stream."""
    code = told.get("code")
    return error_from_answer(verb, path, code if isinstance(code, int) else 500, json.dumps(told).encode())


def unavailable(verb: str, path: str, cause: object) -> Unavailable:
    """The error for a request that got no answer."""
    return Unavailable(f"{verb} {path}: no answer from the API server: {cause} (it will be tried again)")


def _as_status(body: bytes) -> dict[str, Any]:
    try:
        told = json.loads(body)
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _right(verb: str, path: str) -> str:
    """The right that RBAC would have to grant, as a rule's words."""
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "apis" else ""
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if len(rest) > 2 and rest[0] == "namespaces":  # noqa: PLR2004 namespaces/NS/plural
        rest = rest[2:]
    if not rest:
        return "the account may not read this path"
    resource = "/".join([rest[0], *rest[2:]])
    return f'missing right unless a policy refused: verb "{verb}" on "{resource}" in API group "{group}"'


def _seconds(value: str | None) -> float | None:
    return float(value) if value and value.isdecimal() else None
