"""What clients asked: one entry per request, as an API server's audit log has it."""

import threading
from dataclasses import dataclass

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})


@dataclass(frozen=True)
class Request:
    """One request and the status of its answer (0: the connection was cut)."""

    verb: str
    path: str
    query: str
    code: int
    user_agent: str
    dry_run: bool


class Audit:
    """Thread-safe, append-only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[Request] = []

    def add(self, row: Request) -> None:
        """Record a request once its answer is known; a watch when it starts."""
        with self._lock:
            self._rows.append(row)

    def rows(self, verb: str = "", prefix: str = "/") -> list[Request]:
        """Requests so far with this verb (any if empty) and path prefix."""
        with self._lock:
            return [row for row in self._rows if verb in ("", row.verb) and row.path.startswith(prefix)]

    def writes(self) -> list[Request]:
        """Requests that asked for a change; a dry run asks for none, nor does the creation of an access review."""
        return [row for row in self.rows() if row.verb in WRITES and not row.dry_run and row.path != REVIEWS]
