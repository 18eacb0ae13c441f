"""A release of the chart on a node with a simulated machine: installed, upgraded, rolled back, taken away by helm."""

import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from dra_driver.neuron.catalogue import SIZES
from dra_driver.settings import DRIVER_NAME
from dra_driver.simulator.machines import MachinePaths, make_machine, unused_major
from testbed import driver_image
from testbed.api import Object
from testbed.charts import CHART, NAMESPACE
from testbed.node import Node, Ran
from testbed.waiting import until

USER = f"system:serviceaccount:{NAMESPACE}:coreslice"
TREES = ("sys", "proc", "dev")
SECONDS = 120.0


@dataclass(frozen=True)
class Site:
    """A node with a simulated trn1.2xlarge, and the values that suit it; ``extra`` are values of the site's own."""

    node: Node
    machine: MachinePaths
    major: int
    extra: Mapping[str, Any] = field(default_factory=dict)
    name: str = DRIVER_NAME

    @classmethod
    @contextmanager
    def prepared(cls, node: Node, *, folder: str = "machine-chart", **extra: Any) -> Iterator["Site"]:
        """One on a node that has the driver's image; the machine goes at the end."""
        major = unused_major()
        site = cls(node, make_machine("trn1.2xlarge", node.paths.scratch / folder, major=major), major, extra)
        node.make_device("neuron0", major, 0)
        yield site
        site.take_devices()
        shutil.rmtree(site.machine.sysfs.parent)

    @property
    def reads_pods(self) -> bool:
        """The value ``rbac.readPods``."""
        return bool(self.extra.get("rbac", {}).get("readPods", True))

    # The machine ---------------------------------------------------------------------------

    def become(self, chips: int) -> None:
        """Another number of chips, at once as the driver sees it, with a node each. They have two cores each."""
        root = self.machine.sysfs.parent
        size = replace(SIZES["trn1.2xlarge"], links=((),) * chips)
        make_machine(size, root / "next", major=self.major)
        for tree in TREES:
            (root / tree).rename(root / f"old-{tree}")
            (root / "next" / tree).rename(root / tree)
            shutil.rmtree(root / f"old-{tree}")
        (root / "next").rmdir()
        self.take_devices()
        for chip in range(chips):
            self.node.make_device(f"neuron{chip}", self.major, chip)

    def take_devices(self) -> None:
        """No Neuron device in the node's ``/dev``."""
        for path in (self.node.stack.sandbox.root / "dev").glob("neuron[0-9]*"):
            self.node.remove_device(path.name)

    def label(self, text: str) -> None:
        """Set or remove (`key-`) a label of the node."""
        self.node.kubectl("label", "node", self.node.name, text, "--overwrite")

    # helm ----------------------------------------------------------------------------------

    @property
    def values(self) -> Object:
        """Paths of this node, and its image."""
        repository, _, tag = driver_image.REFERENCE.rpartition(":")
        return {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "kubelet": {"root": str(self.node.paths.kubelet)},
            "cdi": {"root": str(self.node.paths.cdi)},
            "hardware": {
                "hostPath": str(self.machine.sysfs.parent),
                "sysfsRoot": str(self.machine.sysfs),
                "procRoot": str(self.machine.proc),
            },
            **self.extra,
        }

    def install(self, *flags: str, release: str = "coreslice", namespace: str = NAMESPACE, check: bool = True) -> Ran:
        """`helm install`; with ``--wait`` until it is ready."""
        command = ("install", release, str(CHART), "--namespace", namespace, "--create-namespace", "--values", "-")
        return self.node.helm(*command, *flags, stdin=yaml.safe_dump(self.values), check=check)

    def upgrade(self, *, tag: str | None = None, **values: Any) -> Ran:
        """`helm upgrade`, and until it is ready."""
        command = ("upgrade", "coreslice", str(CHART), "--namespace", NAMESPACE, "--wait", "--values", "-")
        wanted = self.values | values
        wanted["image"] = wanted["image"] | ({"tag": tag} if tag else {})
        return self.node.helm(*command, stdin=yaml.safe_dump(wanted))

    def rollback(self, revision: int) -> Ran:
        """`helm rollback`, and until it is ready."""
        return self.node.helm("rollback", "coreslice", str(revision), "--namespace", NAMESPACE, "--wait")

    def uninstall(self, *flags: str) -> Ran:
        """`helm uninstall`; with its hook unless the flags say otherwise. It may be refused."""
        return self.node.helm("uninstall", "coreslice", "--namespace", NAMESPACE, "--wait", *flags, check=False)

    def left(self) -> str:
        """Names of what the chart has in the cluster, a line each."""
        cluster = "deviceclasses,validatingadmissionpolicies,validatingadmissionpolicybindings"
        kinds = f"{cluster},clusterroles,clusterrolebindings,daemonsets,serviceaccounts,jobs,pods"
        command = ("get", kinds, "--all-namespaces", "-l", "app.kubernetes.io/name=coreslice", "-o", "name")
        return self.node.kubectl(*command, "--ignore-not-found").text

    # The driver ----------------------------------------------------------------------------

    def daemon_set(self) -> Object:
        """The DaemonSet."""
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/coreslice"
        return self.node.api.request("GET", path)

    def pods(self) -> list[Object]:
        """Pods of the driver, those that are about to go included."""
        return self.node.api.list("pods", NAMESPACE, labelSelector="app.kubernetes.io/component=driver")

    def wait_alone(self, image: str) -> Object:
        """Wait until one pod of the driver is there, of that image and ready; the pod."""

        def one() -> Object | None:
            pods = self.pods()
            ready = [
                pod for pod in pods if all(s["ready"] for s in pod["status"].get("containerStatuses") or [{"ready": 0}])
            ]
            return ready[0] if len(pods) == 1 and ready and image_of(ready[0]) == image else None

        return until(one, what=f"one driver pod of {image}", timeout=SECONDS, seen=self.pods)

    def log(self, *flags: str) -> str:
        """What the driver's pod has said."""
        return self.node.kubectl("logs", "-n", NAMESPACE, "daemonset/coreslice", *flags).text

    def slices(self) -> list[Object]:
        """Its slices in the API."""
        return self.node.slices(self.name)

    def identities(self) -> dict[str, str]:
        """UIDs of its slices, by name."""
        return {item["metadata"]["name"]: item["metadata"]["uid"] for item in self.slices()}

    def cores(self) -> int:
        """How many single cores its slices list."""
        devices = [device["name"] for item in self.slices() for device in item["spec"].get("devices") or []]
        return len([name for name in devices if re.fullmatch(r"core-\d+-\d+", name)])

    def wait_cores(self, number: int) -> None:
        """Wait until the slices list that many cores."""
        until(lambda: self.cores() == number, what=f"{number} cores listed", timeout=SECONDS, seen=self.slices)

    def cdi_files(self) -> list[Path]:
        """Its CDI files."""
        return sorted(self.node.paths.cdi.glob(f"{self.name}-*"))

    def records(self) -> list[Path]:
        """Its claim records."""
        return sorted((self.node.paths.plugins / self.name / "claims").glob("*.record"))

    def found(self) -> list[str]:
        """``find`` over the folders that it writes to, paths below the kubelet's root, kinds of others left out."""
        paths = self.node.paths
        own = [path for folder in (paths.plugins, paths.registry, paths.cdi) for path in folder.rglob("*")]
        return sorted(str(path.relative_to(paths.scratch)) for path in own)


def image_of(pod: Object) -> str:
    """The image of a pod's only container."""
    (container,) = pod["spec"]["containers"]
    return str(container["image"])
