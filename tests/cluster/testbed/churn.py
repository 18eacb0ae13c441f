"""Pods with claims that come and go in loops, as a background to something else."""

import threading
import time
from dataclasses import dataclass, field
from typing import Self

from testbed import objects
from testbed.node import Node
from testbed.waiting import until

RUN_SECONDS = 100.0  # longer than the kubelet takes to try again: a late pod is told from one that never comes


@dataclass
class Churn:
    """Within ``with``: each loop creates a pod with a core of its own, waits until it runs, deletes it, begins anew."""

    node: Node
    loops: int = 3
    label: str = "churn"
    ran: list[float] = field(default_factory=list)  # seconds from creation to Running, a pod each
    failed: list[str] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.node.apply(objects.template(self.label, r="neuron-core"))
        self._threads = [threading.Thread(target=self._loop, args=(at,), daemon=True) for at in range(self.loops)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Each loop ends when its pod is gone."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self.node.api.delete("resourceclaimtemplates", self.label)

    def wait_more(self, number: int) -> None:
        """Wait until that many more pods have run, counted from now."""
        wanted = len(self.ran) + number
        until(
            lambda: self.failed or len(self.ran) >= wanted,
            what=f"{number} more pods",
            timeout=RUN_SECONDS * 2,
            seen=lambda: self.ran,
        )

    def troubles(self) -> list[str]:
        """Pods that didn't run or go, and what the kubelet said of pods whose claims it couldn't prepare."""
        told = [
            f"{event['involvedObject']['name']}: {event['message']}"
            for event in self.node.api.list("events", fieldSelector="reason=FailedPrepareDynamicResources")
            if event["involvedObject"]["name"].startswith(f"{self.label}-")
        ]
        return [*self.failed, *told]

    def _loop(self, at: int) -> None:
        number = 0
        while not self._ending.is_set():
            name = f"{self.label}-{at}-{number}"
            try:
                self._once(name)
            except Exception as error:  # noqa: BLE001 -- the test tells it; a thread's error would be lost
                self.failed.append(f"{name}: {error}")
                return
            number += 1

    def _once(self, name: str) -> None:
        started = time.monotonic()
        pod = objects.pod(name, objects.container(claims=["c"]), claims={"c": f"template/{self.label}"})
        self.node.run_pod(pod, timeout=RUN_SECONDS)
        self.ran.append(time.monotonic() - started)
        self.node.delete_pods(name, timeout=RUN_SECONDS)
