"""Connections of the simulated kubelet to unix sockets.

Whether one is up is asked and not subscribed to: gRPC's subscription polls on a thread of its own, which
raises when the channel is closed meanwhile, and closing is half of what a kubelet does.
"""

import threading
import time
from pathlib import Path
from typing import Any, Final

import grpc

_PAUSE: Final = 0.005
_READY: Final = grpc.ChannelConnectivity.READY.value[0]


def open_channel(path: str | Path, *, authority: str | None = None) -> grpc.Channel:
    """A connection of its own; by default gRPC shares one among all channels to an address."""
    options: list[tuple[str, str | int]] = [("grpc.use_local_subchannel_pool", 1)]
    if authority:
        options.append(("grpc.default_authority", authority))
    return grpc.insecure_channel(f"unix:{path}", options=options)


def is_ready(channel: grpc.Channel) -> bool:
    """Whether the connection is up; one that isn't is asked for. False also once it is closed."""
    inner: Any = channel
    try:
        return bool(inner._channel.check_connectivity_state(True) == _READY)  # noqa: SLF001 -- see above
    except ValueError:
        return False


def wait_ready(channel: grpc.Channel, timeout: float) -> bool:
    """Wait for the connection; False when it isn't up in time."""
    deadline, pause = time.monotonic() + timeout, threading.Event()
    while not is_ready(channel):
        if time.monotonic() >= deadline:
            return False
        pause.wait(_PAUSE)
    return True
