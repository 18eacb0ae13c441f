"""The real driver as a process of its own, against a simulated cluster: what the demo and tests start.

Nothing of it runs in this process. Its environment is reduced to what Python needs, so that settings of the caller's
shell don't reach it; its log goes to a file.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from dra_driver.errors import CoresliceError
from dra_driver.simulator.cluster import Cluster, NodePaths
from dra_driver.simulator.machines import MachinePaths

_KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "TMPDIR", "VIRTUAL_ENV")
_STOP_TIMEOUT = 10.0
_TOLD = 15  # lines of the log in an error


class DaemonError(CoresliceError):
    """The driver's process ended or doesn't end; `tail` has the end of its log."""


class DriverProcess:
    """Use as a context: on leaving, the process is gone, whatever happened."""

    def __init__(
        self,
        *,
        node: str,
        paths: NodePaths,
        machine: MachinePaths,
        kubeconfig: Path,
        driver_name: str,
        extra: Sequence[str] = (),
    ) -> None:
        """`extra` are further flags of `coreslice driver`."""
        self.log = paths.root / "driver.log"
        self._command = [
            *(sys.executable, "-m", "dra_driver.cli.main", "driver"),
            *("--node-name", node, "--driver-name", driver_name),
            *("--kubelet-plugins-dir", str(paths.plugins), "--kubelet-registrar-dir", str(paths.registry)),
            *("--cdi-root", str(paths.cdi), "--kubeconfig", str(kubeconfig)),
            *("--sysfs-root", str(machine.sysfs), "--proc-root", str(machine.proc)),
            *("--kubelet-device-plugins-dir", str(paths.device_plugins)),
            *("--pod-resources-socket", str(paths.pod_resources / "kubelet.sock")),
            *("--metrics-port", "0", "--metrics-address", "127.0.0.1"),
            *("--healthcheck-port", "0", "--healthcheck-address", "127.0.0.1"),
            *extra,
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def on(cls, cluster: Cluster, machine: MachinePaths, *, driver_name: str, extra: Sequence[str] = ()) -> Self:
        """The driver of the node of a simulated cluster."""
        return cls(
            node=cluster.node_name,
            paths=cluster.paths,
            machine=machine,
            kubeconfig=cluster.kubeconfig,
            driver_name=driver_name,
            extra=extra,
        )

    @property
    def pid(self) -> int:
        """Process id; it has to be started."""
        if self._process is None:
            raise DaemonError("the driver wasn't started")
        return self._process.pid

    def start(self) -> None:
        """Start it; being there is for the kubelet to see."""
        with self.log.open("ab") as log:
            # A session of its own: a Ctrl-C at the terminal is for the caller, who then stops it in order.
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(),
                start_new_session=True,
            )

    def check(self) -> None:
        """Raise DaemonError if it has ended by itself."""
        if self._process is not None and (status := self._process.poll()) is not None:
            raise DaemonError(f"the driver's process ended with status {status}")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send the signal, wait for the end, give the exit status (negative: the signal that ended it)."""
        if self._process is None:
            raise DaemonError("the driver wasn't started")
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            raise DaemonError(f"the driver doesn't end within {_STOP_TIMEOUT:g} s") from error

    def tail(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join(lines[-_TOLD:]) or "(it logged nothing)"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def _environment() -> dict[str, str]:
    """Enough to find this very package again, also from a checkout that isn't installed."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    here = str(Path(__file__).parents[2])
    paths = [here, *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))]
    return kept | {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONUNBUFFERED": "1"}
