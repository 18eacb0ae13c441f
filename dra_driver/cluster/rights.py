"""The rights that the driver's account needs: the one table of them, and a look at which are missing (BC-099).

A missing right shows otherwise only when it is needed, perhaps days later, to the user whose pod doesn't start.
Invariants: the server is asked by SelfSubjectAccessReview, which everybody who is authenticated may create and which
stores nothing; one pass after `start`, and while something is missing another one when `look_again` says that
there is a reason, so an idle node asks nothing. Nothing waits for the answers.
Failures: without an answer it is tried again; a server that refuses the question is told of once, and that is all.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.cluster.backoff import Backoff
from dra_driver.cluster.client import Api
from dra_driver.cluster.errors import ApiError, Unauthorized

log = logging.getLogger(__name__)

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SPACING = 10.0  # seconds at least between two passes
_DRA = "resource.k8s.io"


@dataclass(frozen=True)
class Right:
    """One verb on one resource, and in words what doesn't work without it."""

    verb: str
    resource: str
    without: str
    group: str = ""

    def __str__(self) -> str:
        return f"can't {self.verb} {self.resource}: {self.without}"

    @property
    def rule(self) -> str:
        """How a ClusterRole would grant it."""
        return f'verb "{self.verb}" on "{self.resource}" in API group "{self.group}"'


GET_PODS = Right("get", "pods", "pods with several claims or requests of this driver are refused")
CREATE_EVENTS = Right("create", "events", "refusals and findings are in the driver's log only")
RIGHTS = (
    Right("get", "resourceclaims", "no claim can be prepared", _DRA),
    Right("list", "resourceslices", "nothing is published", _DRA),
    Right("watch", "resourceslices", "slices that somebody else deletes are restored seconds later", _DRA),
    Right("create", "resourceslices", "nothing is published", _DRA),
    Right("update", "resourceslices", "what changes on the node isn't published", _DRA),
    Right("delete", "resourceslices", "slices that should go stay, and their devices are given out", _DRA),
    Right("get", "nodes", "nothing is published, since the slices' owner isn't known"),
    GET_PODS,
    CREATE_EVENTS,
    Right("patch", "events", "an Event that happens again isn't counted"),
)


def needed(*, read_pods: bool) -> tuple[Right, ...]:
    """The table, without what the settings do without."""
    return tuple(right for right in RIGHTS if read_pods or right is not GET_PODS)


def told(missing: Iterable[Right]) -> str:
    """Missing rights in one line; empty without any."""
    return "; ".join(map(str, missing))


class RightsCheck:
    """Asks for `rights` from a thread of its own, between `start` and `stop`.

    `changed` is called from it with all that are missing, whenever those are others than before (none at first).
    """

    def __init__(
        self,
        api: Api,
        rights: Sequence[Right],
        *,
        changed: Callable[[Sequence[Right]], None],
        spacing: float = _SPACING,
    ) -> None:
        self._api = api
        self._rights = tuple(rights)
        self._changed = changed
        self._spacing = spacing
        self._missing: tuple[Right, ...] = ()
        self._backoff = Backoff(first=0.5, limit=60.0)
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._started = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="rights", daemon=True)

    @property
    def missing(self) -> Sequence[Right]:
        """What is known to be missing, in the table's order."""
        return self._missing

    def start(self) -> None:
        """Begin; returns at once, further calls do nothing."""
        if self._started.acquire(blocking=False) and not self._stop.is_set():
            self._thread.start()

    def look_again(self) -> None:
        """Something went otherwise than before, perhaps since a right was granted. Returns at once."""
        self._wake.set()

    def stop(self, timeout: float = 0.1) -> None:
        """End the thread; a request under way may outlive `timeout`, without effect."""
        self._stop.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        open_questions = self._rights
        while open_questions and not self._stop.is_set():
            try:
                missing = tuple(right for right in open_questions if not self._granted(right))
            except ApiError as error:
                if not error.transient and not isinstance(error, Unauthorized):
                    log.warning("whether rights are missing can't be told: %s", error)
                    return
                self._stop.wait(self._backoff.next(error.retry_after))
                continue
            self._found(missing)
            open_questions = missing
            if missing:
                self._wait_for_a_reason()

    def _wait_for_a_reason(self) -> None:
        self._stop.wait(self._spacing)
        self._wake.wait()
        self._wake.clear()

    def _granted(self, right: Right) -> bool:
        attributes = {"verb": right.verb, "group": right.group, "resource": right.resource}  # in all namespaces
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        status: Any = self._api.create(REVIEWS, review).get("status")
        return bool((status or {}).get("allowed"))

    def _found(self, missing: tuple[Right, ...]) -> None:
        if self._stop.is_set() or missing == self._missing:
            return
        before, self._missing = self._missing, missing
        for right in missing:
            if right not in before:
                log.warning("%s (the account needs %s)", right, right.rule)
        for right in before:
            if right not in missing:
                log.info("the account can %s %s now", right.verb, right.resource)
        self._changed(missing)
