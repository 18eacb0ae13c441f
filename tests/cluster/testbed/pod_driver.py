"""The driver as a pod of its image, without a chart: what the image itself needs and no more.

It has the least that a pod can have: no capability, a read-only root, no privilege.
The simulated machine lies on the node and is mounted into the pod at its own path.
"""

import re
from pathlib import Path
from typing import Any

from dra_driver.neuron.catalogue import Size
from dra_driver.simulator.machines import MachinePaths, make_machine, unused_major
from testbed import settings
from testbed.api import Object
from testbed.driver import DRIVER_NAME
from testbed.node import Node
from testbed.waiting import until

READY_SECONDS = 60.0
ACCOUNT = "bare-driver"
LEAST: Object = {
    "runAsUser": 0,
    "privileged": False,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


class PodDriver:
    """``coreslice driver`` in a pod, serving the node's kubelet."""

    def __init__(self, node: Node, *, image: str, size: str | Size = "trn1.2xlarge", pod: str = "driver") -> None:
        self.node, self.name, self.image, self.pod = node, DRIVER_NAME, image, pod
        self.major = unused_major()
        self.machine: MachinePaths = make_machine(size, node.paths.scratch / f"machine-{pod}", major=self.major)
        self._rights = settings.role(ACCOUNT, settings.DRIVER_RULES, to=f"User/{self.user}")

    @property
    def user(self) -> str:
        """The driver's user name in the API."""
        return f"system:serviceaccount:default:{ACCOUNT}"

    def folders(self) -> dict[str, tuple[Path, bool]]:
        """What of the node is mounted, by volume: path, and whether it may be written."""
        return {
            "plugin": (self.node.paths.plugins / self.name, True),
            "registry": (self.node.paths.registry, True),
            "cdi": (self.node.paths.cdi, True),
            "sysfs": (self.machine.sysfs, False),
            "proc": (self.machine.proc, False),
        }

    def manifest(self) -> Object:
        """The pod."""
        folders = self.folders()
        volumes = [
            {"name": name, "hostPath": {"path": str(path), "type": "DirectoryOrCreate"}}
            for name, (path, _) in folders.items()
        ]
        mounts = [
            {"name": name, "mountPath": str(path), "readOnly": not writable}
            for name, (path, writable) in folders.items()
        ]
        health = {"grpc": {"port": 51515, "service": "readiness"}, "periodSeconds": 1}
        main = {
            "name": "main",
            "image": self.image,
            "imagePullPolicy": "Never",
            "env": self._environment(),
            "securityContext": LEAST,
            "readinessProbe": health,
            "volumeMounts": mounts,
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.pod, "namespace": "default"},
            "spec": {"serviceAccountName": ACCOUNT, "containers": [main], "volumes": volumes},
        }

    def _environment(self) -> list[Object]:
        values = {
            "DRIVER_NAME": self.name,
            "KUBELET_PLUGINS_DIRECTORY_PATH": str(self.node.paths.plugins),
            "KUBELET_REGISTRAR_DIRECTORY_PATH": str(self.node.paths.registry),
            "CDI_ROOT": str(self.node.paths.cdi),
            "SYSFS_ROOT": str(self.machine.sysfs),
            "PROC_ROOT": str(self.machine.proc),
        }
        fields = {"NODE_NAME": "spec.nodeName", "POD_UID": "metadata.uid"}
        return [
            *({"name": key, "value": value} for key, value in values.items()),
            *({"name": key, "valueFrom": {"fieldRef": {"fieldPath": path}}} for key, path in fields.items()),
        ]

    def start(self) -> None:
        """Create account, rights and pod; until it is ready."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "default"}}
        self.node.apply(account, *self._rights)
        self.node.run_pod(self.manifest(), timeout=READY_SECONDS)

    def close(self) -> None:
        """Take all of it away, the slices too."""
        self.node.delete_pods(self.pod, timeout=READY_SECONDS)
        self.node.delete_all_of(self._rights)
        self.node.api.delete("serviceaccounts", ACCOUNT)
        for item in self.slices():
            self.node.api.delete("resourceslices", item["metadata"]["name"])

    def slices(self) -> list[Object]:
        """Its slices in the API."""
        return self.node.slices(self.name)

    def cdi_files(self) -> list[Path]:
        """Its CDI files."""
        return sorted(self.node.paths.cdi.glob(f"{self.name}-*"))

    def process(self) -> dict[str, str]:
        """``/proc/1/status`` of the container, by field."""
        text = self.python("print(open('/proc/1/status').read())")
        return dict(re.findall(r"^(\w+):\s*(.*)$", text, flags=re.MULTILINE))

    def python(self, program: str) -> str:
        """Run a Python program in the container, which has no shell; what it prints."""
        ran = self.node.exec(self.pod, "python3", "-c", program)
        if ran.status:
            raise AssertionError(f"python3 in {self.pod}: {ran.status}: {ran.text}")
        return ran.text

    def status(self) -> dict[str, Any]:
        """Status of the container."""
        pod = self.node.api.get("pods", self.pod)
        status: dict[str, Any] = pod["status"]["containerStatuses"][0]
        return status

    def wait_restarted(self, since: int) -> None:
        """Wait until the container has been started again and is ready."""
        until(
            lambda: self.status()["restartCount"] > since and self.status()["ready"],
            what=f"{self.pod} started again",
            timeout=READY_SECONDS,
            seen=lambda: self.node.describe(self.pod),
        )
