"""A long-running program of a test node: started, killed, started again.

The process number is the machine's. They run in the sandbox through
``nsenter``, whose child is the program itself; signals go to the program.
"""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.sandbox import Sandbox
from testbed.waiting import until


class Program:
    """One program with its log. Not running until ``start``."""

    def __init__(self, name: str, argv: Sequence[str], log: Path, *, env: Mapping[str, str], sandbox: Sandbox) -> None:
        self.name = name
        self.argv = list(argv)
        self.log = log
        self.env = dict(env)
        self._sandbox = sandbox
        self._popen: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @property
    def pid(self) -> int:
        """Number of the running (or last) process."""
        return self._pid

    def start(self) -> None:
        """Start it; the log is appended to."""
        if self.alive():
            raise RuntimeError(f"{self.name} is running already (pid {self.pid})")
        command = self._sandbox.enter(*self.argv)
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.env, start_new_session=True
            )
        self._pid = self._program_pid(self._popen.pid)

    def _program_pid(self, nsenter: int) -> int:
        """The child that ``nsenter`` becomes the parent of."""
        children = Path(f"/proc/{nsenter}/task/{nsenter}/children")
        found = until(lambda: children.read_text().split(), what=f"process of {self.name}", timeout=10)
        return int(found[0])

    def alive(self) -> bool:
        """Whether the process runs."""
        return self._popen is not None and self._popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal; nothing happens if the process has ended."""
        if self.alive():
            os.kill(self.pid, number)
            if self._popen and number == signal.SIGCONT:
                self._popen.send_signal(number)  # nsenter stops itself when its child is stopped

    def wait(self, timeout: float = 30.0) -> int:
        """Wait for the end; the exit status (negative: killed by that signal)."""
        if self._popen is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._popen.wait(timeout)

    def kill(self) -> None:
        """``kill -9`` and wait for the end."""
        self.signal(signal.SIGKILL)
        self.reap()

    def reap(self) -> None:
        """Take note of the end of a program whose sandbox is gone, if it was ever started."""
        if self._popen is not None:
            self.wait()

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM and wait for the end; the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(timeout)

    def log_text(self, last: int = 0) -> str:
        """The log, or its ``last`` lines."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-last:])
