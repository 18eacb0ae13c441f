"""A ClaimService whose answers are counted, with the time that they took."""

import time
from collections.abc import Mapping, Sequence

from dra_driver.kubelet.types import Call, ClaimRef, ClaimService, Failed, Prepared
from dra_driver.observe.metrics import Metrics


class MeasuredClaims:
    """Passes everything on. A call that raises is the kubelet service's to answer, and counts as failed here."""

    def __init__(self, service: ClaimService, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics

    def prepare(self, claims: Sequence[ClaimRef], call: Call) -> Mapping[str, Prepared | Failed]:
        """As the service does."""
        began, answers = time.monotonic(), {}
        try:
            answers = dict(self._service.prepare(claims, call))
        finally:
            seconds = time.monotonic() - began
            for claim in claims:
                self._metrics.prepare(seconds, done=isinstance(answers.get(claim.uid), Prepared))
        return answers

    def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Failed | None]:
        """As the service does."""
        began, answers = time.monotonic(), {}
        try:
            answers = dict(self._service.unprepare(claims))
        finally:
            seconds = time.monotonic() - began
            for claim in claims:
                self._metrics.unprepare(seconds, done=answers.get(claim.uid, Failed("")) is None)
        return answers
