"""The driver under test, as its own process against a test node and a simulated machine."""

import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import grpc

from dra_driver.kubelet.api import grpc_health_v1_pb2 as health_pb2
from dra_driver.kubelet.api import grpc_health_v1_pb2_grpc as health_pb2_grpc
from dra_driver.simulator.machines import MachinePaths, make_machine, unused_major
from testbed.api import Object
from testbed.node import Node
from testbed.program import Program
from testbed.waiting import until

DRIVER_NAME = "neuron.coreslice.dev"
READY_SECONDS = 30.0


class Driver:
    """``coreslice driver`` in the node's namespaces, serving its kubelet.

    The machine's trees lie below the node's scratch folder; its chips are real
    character devices on the node, of a major that no driver owns (opening one gives
    ENXIO where it is permitted, EPERM where it is not).
    """

    def __init__(
        self,
        node: Node,
        *,
        size: str = "trn1.2xlarge",
        name: str = DRIVER_NAME,
        options: Sequence[str] = (),
        kubeconfig: Path | None = None,
        health_port: int = 51515,
        stats: bool = True,
    ) -> None:
        """Without ``stats`` the machine has no counters: on large ones nine of ten files."""
        self.node, self.name = node, name
        self.major = unused_major()
        root = node.paths.scratch / f"machine-{name}"
        self.machine: MachinePaths = make_machine(size, root, major=self.major, stats=stats)
        self.chips = sorted(entry.name for entry in (self.machine.sysfs / "class/neuron_device").glob("neuron[0-9]*"))
        for chip in self.chips:
            node.make_device(chip, self.major, int(chip.removeprefix("neuron")))
        self.health = f"{node.stack.sandbox.address}:{health_port}"
        self.kubeconfig = kubeconfig or node.paths.kubeconfig("driver")
        log = node.paths.logs / f"driver-{name}.log"
        env = {"PATH": os.environ["PATH"], "HOME": str(node.paths.scratch), "LANG": "C.UTF-8"}
        self.program = Program("driver", [*self.command(), *options], log, env=env, sandbox=node.stack.sandbox)
        node.stack.guests.append(self.program)

    def command(self) -> list[str]:
        """The command line."""
        address, _, port = self.health.partition(":")
        flags = {
            "node-name": self.node.name,
            "driver-name": self.name,
            "kubelet-plugins-dir": self.node.paths.plugins,
            "kubelet-registrar-dir": self.node.paths.registry,
            "cdi-root": self.node.paths.cdi,
            "sysfs-root": self.machine.sysfs,
            "proc-root": self.machine.proc,
            "kubeconfig": self.kubeconfig,
            "healthcheck-port": port,
            "healthcheck-address": address,
            "metrics-port": -1,  # several drivers share the sandbox's network
        }
        coreslice = str(Path(sys.executable).with_name("coreslice"))
        return [coreslice, "driver", *(f"--{key}={value}" for key, value in flags.items())]

    def start(self) -> None:
        """Start it and wait until it says it is ready."""
        self.program.start()
        self.wait_ready()

    def serving(self, service: str = "readiness") -> bool:
        """Whether gRPC health answers SERVING for ``liveness`` or ``readiness``."""
        if not self.program.alive():
            raise RuntimeError(f"the driver has ended: {self.program.log_text(last=20)}")
        with grpc.insecure_channel(self.health) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            try:
                answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)
            except grpc.RpcError:
                return False
            return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def wait_ready(self, timeout: float = READY_SECONDS) -> None:
        """Wait until the driver is ready."""
        until(
            self.serving,
            what="driver ready",
            timeout=timeout,
            seen=lambda: self.program.log_text(last=20),
        )

    def kill(self) -> None:
        """``kill -9``."""
        self.program.kill()

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM; the exit status."""
        return self.program.terminate(timeout)

    def pause(self) -> None:
        """SIGSTOP: it is there and does nothing."""
        self.program.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.program.signal(signal.SIGCONT)

    def close(self) -> None:
        """End it, if it runs, and take its chips off the node."""
        if self.program.alive():
            self.resume()
            self.terminate()
        for chip in self.chips:
            self.node.remove_device(chip)

    def log(self) -> str:
        """Everything it has said."""
        return self.program.log_text()

    def said(self, since: int = 0) -> list[Object]:
        """Its log lines as objects, but for the first ``since``; a whole line that is no JSON is an error."""
        whole = self.program.log.read_text().split("\n")[:-1] if self.program.log.exists() else []
        return [json.loads(line) for line in whole[since:]]

    def wait_said(self, pattern: str, *, since: int = 0, timeout: float = READY_SECONDS) -> Object:
        """The first log line after the first ``since`` whose message matches the pattern."""

        def found() -> Object | None:
            return next((line for line in self.said(since) if re.search(pattern, line["message"])), None)

        what = f"{pattern!r} in the driver's log"
        return until(found, what=what, timeout=timeout, seen=lambda: self.program.log_text(last=20))

    def slices(self) -> list[Object]:
        """Its slices in the API."""
        return self.node.slices(self.name)

    def cdi_files(self) -> list[Path]:
        """Its CDI files."""
        return sorted(self.node.paths.cdi.glob(f"{self.name}-*"))

    def records(self) -> list[Path]:
        """Its claim records."""
        return sorted((self.node.paths.plugins / self.name / "claims").glob("*.record"))

    def sockets(self) -> list[Path]:
        """Its sockets, registration included."""
        folders = (self.node.paths.plugins / self.name, self.node.paths.registry)
        return sorted(path for folder in folders for path in folder.glob("*") if path.is_socket())
