"""NodePrepareResources and NodeUnprepareResources on top of a `ClaimService`.

Invariants: each UID asked for is answered and none beyond, since either fault makes the kubelet fail the
whole call; an exception of the service becomes an error text of each claim, not a status of the call.
"""

# ruff: noqa: N802 -- gRPC gives the methods' names and arguments

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

import grpc

from dra_driver.kubelet.api import dra_v1_pb2 as pb
from dra_driver.kubelet.api import dra_v1_pb2_grpc as pb_grpc
from dra_driver.kubelet.in_flight import InFlight
from dra_driver.kubelet.types import ClaimRef, ClaimService, Failed, Prepared

_log = logging.getLogger(__name__)

# gRPC shows "no deadline" as one in the far future.
_NO_DEADLINE: Final = 365 * 24 * 3600.0
_NO_ANSWER: Final = Failed("the driver gave no answer for this claim; its log says more")


class GrpcCall:
    """A gRPC context as a `Call`."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        self._context = context

    def is_active(self) -> bool:
        """Whether the kubelet still waits."""
        return self._context.is_active()

    def time_remaining(self) -> float | None:
        """Seconds until the deadline, None without one."""
        remaining = self._context.time_remaining()
        return None if remaining > _NO_DEADLINE else remaining


class DraServicer(pb_grpc.DRAPluginServicer):
    """The DRA service v1."""

    def __init__(self, service: ClaimService, in_flight: InFlight) -> None:
        self._service = service
        self._in_flight = in_flight

    def NodePrepareResources(
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """Prepare the claims of one pod."""
        with self._in_flight.call(context):
            claims, started = _claims(request.claims), time.monotonic()
            answers = self._prepare(claims, GrpcCall(context))
            response = pb.NodePrepareResourcesResponse()
            for claim in claims:
                answer = answers.get(claim.uid, _NO_ANSWER)
                response.claims[claim.uid].CopyFrom(_prepared(answer))
                _log_outcome("prepare", claim, answer, started)
            return response

    def _prepare(self, claims: Sequence[ClaimRef], call: GrpcCall) -> Mapping[str, Prepared | Failed]:
        try:
            return self._service.prepare(claims, call)
        except Exception as error:  # noqa: BLE001 -- it would fail the whole call
            _log.exception("preparing %s failed unexpectedly", ", ".join(map(str, claims)))
            return {claim.uid: _unexpected(error) for claim in claims}

    def NodeUnprepareResources(
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """Undo the claims of one pod."""
        with self._in_flight.call(context):
            claims, started = _claims(request.claims), time.monotonic()
            answers = self._unprepare(claims)
            response = pb.NodeUnprepareResourcesResponse()
            for claim in claims:
                answer = answers.get(claim.uid, _NO_ANSWER)
                response.claims[claim.uid].error = answer.error if answer else ""
                _log_outcome("unprepare", claim, answer, started)
            return response

    def _unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Failed | None]:
        try:
            return self._service.unprepare(claims)
        except Exception as error:  # noqa: BLE001 -- it would fail the whole call
            _log.exception("unpreparing %s failed unexpectedly", ", ".join(map(str, claims)))
            return {claim.uid: _unexpected(error) for claim in claims}


def _claims(asked: Sequence[pb.Claim]) -> list[ClaimRef]:
    """The claims asked for, each UID once."""
    by_uid = {claim.uid: ClaimRef(claim.namespace, claim.name, claim.uid) for claim in asked}
    return list(by_uid.values())


def _prepared(answer: Prepared | Failed) -> pb.NodePrepareResourceResponse:
    if isinstance(answer, Failed):
        return pb.NodePrepareResourceResponse(error=answer.error)
    devices = [
        pb.Device(
            request_names=device.requests,
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=device.cdi_ids,
        )
        for device in answer.devices
    ]
    return pb.NodePrepareResourceResponse(devices=devices)


def _unexpected(error: Exception) -> Failed:
    return Failed(f"unexpected {type(error).__name__} in the driver: {error}; its log has the details")


def _log_outcome(verb: str, claim: ClaimRef, answer: Prepared | Failed | None, started: float) -> None:
    duration = round(time.monotonic() - started, 6)
    failed = isinstance(answer, Failed)
    _log.log(
        logging.WARNING if failed else logging.INFO,
        "%s %s: %s",
        verb,
        claim,
        answer.error if isinstance(answer, Failed) else "done",
        extra={
            "claim_uid": claim.uid,
            "claim": f"{claim.namespace}/{claim.name}",
            "duration_s": duration,
            "outcome": "failed" if failed else "done",
        },
    )
