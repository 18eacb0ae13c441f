"""The files of deploy/examples: applied to a node, brought to the outcomes that they state, and taken away.

Only images are changed: the node has no registry.
"""

import re
from dataclasses import dataclass
from typing import Any

import yaml

from testbed import images
from testbed.api import Object
from testbed.charts import CHART
from testbed.grants import Serves, wait_nothing_held
from testbed.waiting import until

EXAMPLES = CHART.parents[1] / "examples"
SECONDS = 60.0


@dataclass(frozen=True)
class Seen:
    """What a container printed of its grant."""

    cores: str | None
    chips: tuple[str, ...]


class Examples:
    """Applies files, looks at their pods, and takes all of it away again."""

    def __init__(self, driver: Serves) -> None:
        self.driver, self.node = driver, driver.node
        self._applied: list[Object] = []

    def apply(self, name: str, *flags: str) -> str:
        """`kubectl apply -f`; what kubectl said."""
        objects = [local(item) for item in read(name)]
        self._applied += objects
        return self.node.kubectl("apply", "-f", "-", *flags, stdin=yaml.safe_dump_all(objects)).text

    def seen(self, pod: str, container: str = "main") -> Seen:
        """What a container of a pod saw, once it has printed it."""
        text = until(
            lambda: self._printed(pod, container),
            what=f"output of {pod}/{container}",
            timeout=SECONDS,
            seen=lambda: self.node.describe(pod),
        )
        cores = re.search(r"^NEURON_RT_VISIBLE_CORES=(.*)$", text, re.MULTILINE)
        return Seen(cores[1] if cores else None, tuple(re.findall(r"^/dev/(neuron\d+)$", text, re.MULTILINE)))

    def _printed(self, pod: str, container: str) -> str | None:
        ran = self.node.kubectl("logs", pod, "-c", container, check=False)
        return ran.text if ran.status == 0 and "/dev/neuron" in ran.text else None

    def pods(self, selector: str) -> list[Object]:
        """Pods by label, by name."""
        found = self.node.api.list("pods", labelSelector=selector)
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def wait_pods(self, selector: str, running: int) -> list[str]:
        """Wait until that many pods run; their names."""

        def enough() -> list[str] | None:
            names = [pod["metadata"]["name"] for pod in self.pods(selector) if is_ready(pod)]
            return names if len(names) == running else None

        return until(enough, what=f"{running} pods {selector}", timeout=SECONDS, seen=lambda: self.pods(selector))

    def delete(self) -> None:
        """Everything that was applied, and until its devices are free."""
        text = yaml.safe_dump_all(self._applied)
        self.node.kubectl("delete", "--ignore-not-found", "--wait", "--timeout=60s", "-f", "-", stdin=text)
        until(lambda: not self.node.api.list("pods"), what="pods gone", timeout=SECONDS)
        wait_nothing_held(self.driver)


def read(name: str) -> list[Object]:
    """The objects of a file."""
    return list(yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()))


def local(item: Any) -> Any:
    """An object with the node's image in place of the one from a registry."""
    if isinstance(item, list):
        return [local(one) for one in item]
    if not isinstance(item, dict):
        return item
    changed = {key: local(value) for key, value in item.items()}
    if "image" in changed:
        assert changed["image"] == "busybox:1.37"
        changed |= {"image": images.BUSYBOX, "imagePullPolicy": "Never"}
    return changed


def is_ready(pod: Object) -> bool:
    """Running, with every container ready, and not on its way out."""
    states = pod["status"].get("containerStatuses", [])
    going = "deletionTimestamp" in pod["metadata"]
    return pod["status"]["phase"] == "Running" and all(state["ready"] for state in states) and not going
