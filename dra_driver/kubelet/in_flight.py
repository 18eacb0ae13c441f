"""What a stop has to wait for: handlers that run, and calls whose answer isn't out yet.

One without the other is usual. At its deadline a call ends while its handler runs on; and an answer that the
handler gave isn't sent yet, while the kubelet hangs up as soon as it sees the registration gone.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import grpc


class InFlight:
    """Counts them."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    @contextmanager
    def call(self, context: grpc.RpcContext) -> Iterator[None]:
        """Count a handler while the block runs, and its call until it has ended."""
        self._add(1)
        if context.add_callback(partial(self._add, -1)):
            self._add(1)
        try:
            yield
        finally:
            self._add(-1)

    def _add(self, number: int) -> None:
        with self._condition:
            self._count += number
            self._condition.notify_all()

    def wait_idle(self, timeout: float) -> bool:
        """Wait until no call runs; False when some still do after `timeout` seconds."""
        with self._condition:
            return self._condition.wait_for(lambda: self._count == 0, timeout)
