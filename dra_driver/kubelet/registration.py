"""What the kubelet asks on the registration socket, for the whole life of the instance.

`GetInfo` has one second and comes again with each attempt and each kubelet restart, so it answers from
constants: no lock, no disk, no API (BC-003, BC-012).
"""

# ruff: noqa: N802, ARG002 -- gRPC gives the methods' names and arguments

from collections.abc import Callable
from pathlib import Path

import grpc

from dra_driver.kubelet.api import pluginregistration_v1_pb2 as pb
from dra_driver.kubelet.api import pluginregistration_v1_pb2_grpc as pb_grpc

# The DRA entry first: the kubelet takes the first that it knows in the plugin's order.
VERSIONS = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")


class RegistrationServicer(pb_grpc.RegistrationServicer):
    """Answers for one pair of sockets; `notified` gets the kubelet's verdict and text, and must be quick."""

    def __init__(self, *, driver: str, endpoint: Path, notified: Callable[[bool, str], None]) -> None:
        self._info = pb.PluginInfo(
            type="DRAPlugin",
            name=driver,
            endpoint=str(endpoint.absolute()),
            supported_versions=VERSIONS,
        )
        self._notified = notified

    def GetInfo(self, request: pb.InfoRequest, context: grpc.ServicerContext) -> pb.PluginInfo:
        """Say who serves what where."""
        return self._info

    def NotifyRegistrationStatus(
        self, request: pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """Take the verdict. Whatever is answered to a refusal, the kubelet counts the attempt as failed."""
        self._notified(request.plugin_registered, request.error)
        return pb.RegistrationStatusResponse()
