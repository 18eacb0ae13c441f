"""The kubelet plugin as a whole: one current pair of sockets, replaced when it is lost or refused.

Invariants: `confirmed` is true only if the kubelet confirmed the current pair and both socket files still
lead to it, looked at when asked; without that, slices would bind pods to a driver nobody reaches (BC-028). A
new pair has a new name, since the kubelet's back-off belongs to a path and goes up to two minutes. A pair
that is replaced serves on until its calls are answered. No lost or refused registration ends the process.
"""

import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_driver.errors import KubeletError
from dra_driver.kubelet.endpoint import Endpoint, Served
from dra_driver.kubelet.types import ClaimService, DeviceHealth, RegistrationState, RegistrationStatus
from dra_driver.kubelet.watch import FolderWatch

_log = logging.getLogger(__name__)

STOP_GRACE: Final = 20.0


@dataclass(frozen=True)
class Timing:
    """Seconds; what production uses is the default."""

    health_interval: float = 10.0
    scan_interval: float = 30.0
    confirm_within: float = 60.0
    backoff_first: float = 0.5
    backoff_limit: float = 60.0


class Backoff:
    """When the next pair may be tried: doubling and jittered, from the first again after a success."""

    def __init__(self, *, first: float, limit: float) -> None:
        self._first = first
        self._limit = limit
        self._attempts = 0
        self._not_before = 0.0

    def tried(self) -> None:
        """Count an attempt that hasn't been confirmed so far."""
        longest = min(self._first * 2 ** min(self._attempts, 16), self._limit)
        self._attempts += 1
        self._not_before = time.monotonic() + longest * random.uniform(0.5, 1.0)  # noqa: S311

    def refused(self) -> None:
        """Wait a little also where the last attempt is long ago."""
        self._not_before = max(self._not_before, time.monotonic() + self._first)

    def confirmed(self) -> None:
        """Start afresh."""
        self._attempts = 0
        self._not_before = 0.0

    def remaining(self) -> float:
        """Seconds until the next attempt, 0 or less when it is due."""
        return self._not_before - time.monotonic()


class KubeletPlugin:
    """Serves claims and health to the kubelet under `driver_name`.

    `plugins_dir` and `registry_dir` are the kubelet's folders, in the host's view; `instance` is the pod's
    UID or any unique token of letters, digits, `-` and `_`. `on_registration` gets each new state in order,
    on the plugin's own thread, so it hands work over. Claims may be asked for as soon as `start` runs.
    """

    def __init__(  # noqa: PLR0913 -- what a plugin is made of, by keyword
        self,
        *,
        driver_name: str,
        plugins_dir: Path,
        registry_dir: Path,
        instance: str,
        service: ClaimService,
        health: Callable[[], Sequence[DeviceHealth]],
        on_registration: Callable[[RegistrationState], None],
        timing: Timing | None = None,
    ) -> None:
        self._timing = timing or Timing()
        self._served = Served(
            driver=driver_name,
            plugin_dir=(plugins_dir / driver_name).absolute(),
            registry_dir=registry_dir.absolute(),
            service=service,
            health=health,
            health_interval=self._timing.health_interval,
        )
        self._instance = instance
        self._on_registration = on_registration
        self._backoff = Backoff(first=self._timing.backoff_first, limit=self._timing.backoff_limit)
        self._states: queue.SimpleQueue[RegistrationState] = queue.SimpleQueue()
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._watch = FolderWatch((self._served.plugin_dir, self._served.registry_dir), self._wake.set)
        self._thread = threading.Thread(target=self._run, name="registration-watch", daemon=True)
        self._retired: list[threading.Thread] = []
        self._pairs = 0
        self._current = self._next_pair()
        self._state = RegistrationState(RegistrationStatus.PENDING, self._current.sockets[1], "not started")
        self._pending_since = 0.0

    def start(self) -> None:
        """Serve and offer for registration; raises KubeletError, with nothing left behind."""
        with self._lock:
            self._offer(self._current)
        self._watch.start()
        self._thread.start()

    def stop(self, grace: float = STOP_GRACE) -> None:
        """Serve until nothing is in flight, at most `grace` seconds, then leave; slices are not touched."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
            self._watch.stop()
        self._current.stop(grace)
        for thread in self._retired:
            thread.join()

    @property
    def state(self) -> RegistrationState:
        """The last registration; whether its sockets are still there is `confirmed`'s business."""
        return self._state

    @property
    def confirmed(self) -> bool:
        """Whether the kubelet reaches this instance, as far as can be told now."""
        with self._lock:
            return self._state.status is RegistrationStatus.CONFIRMED and not self._current.lost()

    @property
    def alive(self) -> bool:
        """Whether the watch over the sockets runs, which repairs a lost registration."""
        return self._thread.is_alive()

    @property
    def sockets(self) -> tuple[Path, Path]:
        """Paths of the current DRA and registration socket."""
        return self._current.sockets

    @property
    def open_health_streams(self) -> int:
        """How many health streams the current pair holds; the kubelet's is one."""
        return self._current.streams.open

    def health_changed(self) -> None:
        """Tell the kubelet of a changed health now."""
        self._current.streams.changed()

    def _next_pair(self) -> Endpoint:
        self._pairs += 1
        suffix = f"-{self._pairs}" if self._pairs > 1 else ""
        return Endpoint(self._served, self._instance + suffix, self._notified)

    def _offer(self, pair: Endpoint) -> None:
        """Start a pair under the lock, so that its verdict finds it as the current one."""
        self._backoff.tried()
        pair.start()
        self._current = pair
        self._pending_since = time.monotonic()
        self._publish(RegistrationStatus.PENDING, f"waiting for the kubelet to register {pair.sockets[1]}")

    def _notified(self, pair: Endpoint, registered: bool, text: str) -> None:  # noqa: FBT001
        """The kubelet's verdict, on a gRPC thread; one about a pair that was replaced doesn't count."""
        with self._lock:
            if pair is not self._current:
                return
            if registered:
                self._backoff.confirmed()
                self._publish(RegistrationStatus.CONFIRMED, "")
            else:
                self._backoff.refused()
                # Without the path, which is another one at each attempt: the text becomes an Event.
                self._publish(RegistrationStatus.REFUSED, f"the kubelet refused this driver: {text}")

    def _publish(self, status: RegistrationStatus, text: str) -> None:
        state = RegistrationState(status, self._current.sockets[1], text)
        if state != self._state:
            self._state = state
            self._states.put(state)
            level = logging.WARNING if status is RegistrationStatus.REFUSED else logging.INFO
            _log.log(level, "%s", state, extra={"socket": str(state.socket)})
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._watch.rearm()
            self._scan()
            self._deliver()
            self._wake.wait(self._next_look())
            self._wake.clear()

    def _scan(self) -> None:
        with self._lock:
            if lost := self._current.lost():
                self._replace(f"{' and '.join(map(str, lost))} vanished or was replaced by another socket")
            elif self._state.status is RegistrationStatus.REFUSED:
                self._replace(self._state.text)
            elif self._state.status is RegistrationStatus.PENDING and self._overdue() <= 0:
                self._publish(RegistrationStatus.PENDING, self._overdue_text())

    def _replace(self, why: str) -> None:
        """Offer a new pair when it is due, then let the old one finish."""
        if self._state.status is RegistrationStatus.CONFIRMED:
            self._publish(RegistrationStatus.PENDING, why)
        if self._backoff.remaining() > 0:
            return
        _log.warning("registering again under a new name: %s", why)
        old = self._current
        try:
            self._offer(self._next_pair())
        except KubeletError as error:
            _log.error("registering again failed: %s", error)
            self._publish(self._state.status, f"{why}; registering again failed: {error}")
            return
        self._retire(old)

    def _retire(self, pair: Endpoint) -> None:
        thread = threading.Thread(target=pair.stop, args=(STOP_GRACE,), name="retire-sockets", daemon=True)
        thread.start()
        self._retired = [*(t for t in self._retired if t.is_alive()), thread]

    def _overdue(self) -> float:
        return self._pending_since + self._timing.confirm_within - time.monotonic()

    def _overdue_text(self) -> str:
        return (
            f"not confirmed within {self._timing.confirm_within:g} s: does a kubelet watch "
            f"{self._served.registry_dir}? Check that it runs, its --root-dir, and its log for this driver"
        )

    def _next_look(self) -> float:
        """Seconds until there is something to do without a trigger."""
        with self._lock:
            looks = [self._timing.scan_interval]
            if self._state.status is RegistrationStatus.REFUSED or self._current.lost():
                looks.append(self._backoff.remaining())
            elif self._state.status is RegistrationStatus.PENDING and self._overdue() > 0:
                looks.append(self._overdue())
            return max(min(looks), 0.0)

    def _deliver(self) -> None:
        while not self._states.empty():
            state = self._states.get()
            try:
                self._on_registration(state)
            except Exception:  # noqa: BLE001 -- the watch has to live on
                _log.exception("whoever asked for registration states failed on: %s", state)
