"""Findings: what a person should know of this node, and who tells it, once.

Whoever finds something says so for as long as it holds, and logs it. Here what is new becomes an Event on the Node, and
the metric follows what holds now.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dra_driver.claims.refusals import Reason
from dra_driver.claims.store import RecordStore
from dra_driver.observe.metrics import Metrics


@dataclass(frozen=True)
class Finding:
    """What a person should know of hardware, records or neighbours; `reason` is that of an Event."""

    reason: str
    text: str


Source = Callable[[], Iterable[Finding]]  # all that holds now


class Findings:
    """All findings of `sources`. `on_node` takes reason and text of an Event, and must not block."""

    def __init__(self, sources: Sequence[Source], *, on_node: Callable[[str, str], None], metrics: Metrics) -> None:
        self._sources = sources
        self._on_node = on_node
        self._metrics = metrics
        self._lock = threading.Lock()
        self._told: Sequence[Finding] = ()

    def tell(self) -> None:
        """Tell what is new; called by whoever may have found something, from any thread."""
        with self._lock:
            now = [finding for source in self._sources for finding in source()]
            for finding in now:
                if finding not in self._told:
                    self._on_node(finding.reason, finding.text)
            self._told = now
            reasons = [finding.reason for finding in now]
            self._metrics.conflicts(reasons)
            self._metrics.hardware_problems(sum(reason.startswith("Hardware") for reason in reasons))


def damaged_records(store: RecordStore) -> list[Finding]:
    """One finding for each record that can't be read.

    Raises:
        Refusal: not even the directory can.
    """
    with store.locked():
        damaged = store.damaged()
    return [
        Finding(
            Reason.RECORD_UNREADABLE.code,
            f"record {bad.path} can't be read ({bad.reason}): what it may hold isn't given to anybody; "
            f"delete the pod of claim {bad.uid}, or remove the file once nothing of it runs",
        )
        for bad in damaged
    ]
