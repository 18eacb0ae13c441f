"""Fixtures: the driver's pod on the real node, with rights that a test takes and gives."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from testbed import driver_image
from testbed.api import Object
from testbed.node import Node
from testbed.pod_driver import ACCOUNT, READY_SECONDS, PodDriver
from testbed.waiting import until

from dra_driver.cluster.rights import RIGHTS, Right
from dra_driver.inventory.classes import device_classes

METRICS = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8080/metrics').read().decode())"


class Trimmed(PodDriver):
    """The driver's pod with an account that lacks what a test says."""

    environment: Mapping[str, str] = {"PREPARE_WAIT": "0", "RESCAN_INTERVAL": "1"}

    def manifest(self) -> Object:
        """As usual, and it waits for nothing inside a call."""
        pod = super().manifest()
        pod["spec"]["containers"][0]["env"] += [{"name": key, "value": text} for key, text in self.environment.items()]
        return pod

    def launch(self, without: Right | None) -> None:
        """Until the container runs; it need not get ready."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": "default"}}
        self.node.apply(account, *self._rights)
        if without:
            self.take(without)
        self.node.apply(self.manifest())
        until(
            lambda: self.started,
            what="the driver's container running",
            timeout=READY_SECONDS,
            seen=lambda: self.node.describe(self.pod),
        )

    @property
    def started(self) -> bool:
        """Whether its container runs."""
        listed = self.node.api.get("pods", self.pod)["status"].get("containerStatuses", [])
        return any("running" in item["state"] for item in listed)

    def take(self, right: Right) -> None:
        """Take a right away, and wait until it is gone."""
        self._set([other for other in RIGHTS if other != right])
        until(lambda: not self.may(right), what=f"{right.verb} {right.resource} taken", timeout=READY_SECONDS)

    def give(self, right: Right) -> None:
        """All rights again."""
        self._set(RIGHTS)
        until(lambda: self.may(right), what=f"{right.verb} {right.resource} given", timeout=READY_SECONDS)

    def _set(self, rights: Any) -> None:
        rules = [{"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]} for one in rights]
        self.node.api.patch("clusterroles", ACCOUNT, {"rules": rules})

    def may(self, right: Right, subresource: str = "") -> bool:
        """What the API server says of the account."""
        return may(self.node, self.user, right.verb, right.group, right.resource, subresource)

    def said(self) -> list[Object]:
        """Its log."""
        return [json.loads(line) for line in self.node.logs(self.pod).splitlines() if line.startswith("{")]

    def wait_said(self, text: str) -> Object:
        """The first line of its log whose message has that text."""
        found = lambda: next((line for line in self.said() if text in line["message"]), None)  # noqa: E731
        return until(found, what=f"{text!r} in the log", timeout=READY_SECONDS, seen=self.said)

    def why(self) -> str:
        """Readiness as it was told last, with its text."""
        told = [line for line in self.said() if line["message"] in {"ready", "not ready"}]
        return f"{told[-1]['message']}: {told[-1]['why']}" if told else ""

    def wait_why(self, *texts: str) -> str:
        """Until readiness is told with all of these texts."""
        found = lambda: why if all(text in (why := self.why()) for text in texts) else ""  # noqa: E731
        return until(found, what=f"readiness with {texts}", timeout=READY_SECONDS, seen=self.why)

    def metric(self, name: str) -> float:
        """The value of a series without labels."""
        lines = self.python(METRICS).splitlines()
        return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])

    def wait_ready(self) -> None:
        """Until the kubelet says Ready."""
        self.node.wait_pod(self.pod, timeout=READY_SECONDS)


def may(node: Node, user: str, verb: str, group: str, resource: str, subresource: str = "") -> bool:
    """Whether the API server lets a user do that, in all namespaces."""
    asked = {"verb": verb, "group": group, "resource": resource, "subresource": subresource}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:authenticated"], "resourceAttributes": asked},
    }
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(node.api.request("POST", path, review)["status"]["allowed"])


@pytest.fixture
def launch(node: Node) -> Iterator[Callable[[Right | None], Trimmed]]:
    """Start the driver without a right, on a trn1.2xlarge, with the device classes in the API."""
    driver = Trimmed(node, image=driver_image.REFERENCE)
    node.make_device("neuron0", driver.major, 0)

    def launched(without: Right | None) -> Trimmed:
        node.apply(*device_classes(driver.name))
        driver.launch(without)
        return driver

    try:
        yield launched
        node.clean(but=[driver.pod])
    finally:
        driver.close()
        node.remove_device("neuron0")
        shutil.rmtree(driver.machine.sysfs.parent)
