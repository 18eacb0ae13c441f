"""A running test node: what scenarios do with it and ask of it."""

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from testbed import binaries, leftovers
from testbed.api import KINDS, Api, Object
from testbed.program import Program
from testbed.stack import Options, Paths, Stack, bring_up, wait_ready
from testbed.waiting import until

POD_SECONDS = 30.0


@dataclass(frozen=True)
class Ran:
    """How a command in a container ended: exit status, both outputs together."""

    status: int
    text: str


@dataclass(frozen=True)
class View:
    """What a container saw at its start: environment, and Neuron nodes as ``major:minor`` by path."""

    env: Mapping[str, str]
    nodes: Mapping[str, str]

    @property
    def cores(self) -> str | None:
        """``NEURON_RT_VISIBLE_CORES``, if set."""
        return self.env.get("NEURON_RT_VISIBLE_CORES")


class Node:
    """One Kubernetes node with its control plane. ``close`` ends and removes everything."""

    def __init__(self, options: Options | None = None) -> None:
        self.stack: Stack = bring_up(options or Options())
        self.api: Api = self.stack.api()

    @property
    def name(self) -> str:
        """Name of the Node object."""
        return self.stack.node_name

    @property
    def paths(self) -> Paths:
        """Folders: plugins, registry, cdi, logs, kubeconfig(user)."""
        return self.stack.paths

    def close(self) -> None:
        """End every program and remove what they left."""
        self.stack.close()

    # Objects -------------------------------------------------------------------------------

    def apply(self, *objects: Object) -> list[Object]:
        """Create objects; what the server made of them."""
        return [self.api.create(item) for item in objects]

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> Ran:
        """kubectl of the node's own version, as administrator. AssertionError with its text on a failure."""
        return self._client(self.stack.binaries["kubectl"], arguments, stdin=stdin, check=check)

    def helm(self, *arguments: str, stdin: str | None = None, check: bool = True) -> Ran:
        """helm, as administrator. AssertionError with its text on a failure."""
        return self._client(binaries.build(binaries.helm())["helm"], arguments, stdin=stdin, check=check)

    def _client(self, program: Path, arguments: Sequence[str], *, stdin: str | None, check: bool) -> Ran:
        env = {"KUBECONFIG": str(self.paths.kubeconfig("admin")), "HOME": str(self.paths.scratch)}
        done = subprocess.run(
            [str(program), *arguments],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env=env | {"PATH": os.environ["PATH"]},
        )
        if check and done.returncode:
            raise AssertionError(f"{program.name} {' '.join(arguments)}: {done.returncode}: {done.stdout}")
        return Ran(done.returncode, done.stdout)

    def slices(self, driver: str | None = None) -> list[Object]:
        """ResourceSlices, of one driver if named, by name."""
        selectors = {"fieldSelector": f"spec.driver={driver}"} if driver else {}
        return sorted(self.api.list("resourceslices", **selectors), key=lambda item: item["metadata"]["name"])

    def events(self, about: str) -> list[Object]:
        """Events about the object of that name."""
        return self.api.list("events", fieldSelector=f"involvedObject.name={about}")

    def wait_event(self, about: str, pattern: str, *, timeout: float = POD_SECONDS) -> Object:
        """The first event about an object whose ``reason: message`` matches the pattern."""

        def found() -> Object | None:
            texts = ((event, f"{event['reason']}: {event.get('message', '')}") for event in self.events(about))
            return next((event for event, text in texts if re.search(pattern, text)), None)

        what = f"event {pattern!r} about {about}"
        return until(found, what=what, timeout=timeout, seen=lambda: self.describe(about))

    def describe(self, pod: str) -> str:
        """Status and events of a pod, for error texts."""
        status = (self.api.find("pods", pod) or {}).get("status", "no such pod")
        told = [f"{event['reason']}: {event.get('message', '')}" for event in self.events(pod)]
        return f"{status}\nevents: {told}"

    # Pods ----------------------------------------------------------------------------------

    def wait_pod(self, name: str, phase: str = "Running", *, timeout: float = POD_SECONDS) -> Object:
        """Wait until the pod has the phase (Running: every container ready too)."""

        def reached() -> Object | None:
            pod = self.api.find("pods", name)
            if pod is None or pod["status"].get("phase") != phase:
                return None
            ready = all(item["ready"] for item in pod["status"].get("containerStatuses", []))
            return pod if phase != "Running" or ready else None

        what = f"pod {name} {phase}"
        return until(reached, what=what, timeout=timeout, seen=lambda: self.describe(name))

    def run_pod(self, pod: Object, *, timeout: float = POD_SECONDS) -> Object:
        """Create a pod and wait until it runs."""
        self.apply(pod)
        return self.wait_pod(pod["metadata"]["name"], timeout=timeout)

    def wait_unschedulable(self, name: str, *, timeout: float = POD_SECONDS) -> str:
        """Wait until the scheduler has said no; its message."""

        def said() -> str | None:
            conditions = self.api.get("pods", name)["status"].get("conditions", [])
            found = [item for item in conditions if item.get("reason") == "Unschedulable"]
            return found[0]["message"] if found else None

        what = f"pod {name} unschedulable"
        return until(said, what=what, timeout=timeout, seen=lambda: self.describe(name))

    def delete_pods(self, *names: str, timeout: float = POD_SECONDS) -> None:
        """Delete pods and wait until they are gone from the API."""
        for name in names:
            self.api.delete("pods", name)
        for name in names:
            self.wait_gone("pods", name, timeout=timeout)

    def wait_gone(self, resource: str, name: str, *, timeout: float = POD_SECONDS) -> None:
        """Wait until an object is gone."""
        until(
            lambda: self.api.find(resource, name) is None,
            what=f"{resource} {name} gone",
            timeout=timeout,
            seen=lambda: self.api.find(resource, name),
        )

    def exec(self, pod: str, *command: str, container: str = "main") -> Ran:
        """Run a command in a container."""
        return self.kubectl("exec", pod, "-c", container, "--", *command, check=False)

    def logs(self, pod: str, container: str = "main") -> str:
        """A container's log so far."""
        return self.kubectl("logs", pod, "-c", container).text

    def view(self, pod: str, container: str = "main") -> View:
        """What a container of ``objects.container`` saw (it prints that at its start)."""
        text = until(
            lambda: shown(self.kubectl("logs", pod, "-c", container, check=False).text),
            what=f"output of {pod}/{container}",
            timeout=POD_SECONDS,
            seen=lambda: self.describe(pod),
        )
        return parse_view(text)

    def clean(self, *, but: Sequence[str] = ()) -> None:
        """Remove every pod (``but`` those named), claim, template and device class; wait until they are gone."""
        resources = ("pods", "resourceclaimtemplates", "resourceclaims", "deviceclasses")

        def left(resource: str) -> list[str]:
            return [name for item in self.api.list(resource) if (name := item["metadata"]["name"]) not in but]

        for resource in resources:
            for name in left(resource):
                self.api.delete(resource, name)
        for resource in resources:
            until(lambda r=resource: not left(r), what=f"no {resource}", timeout=60)  # type: ignore[misc]

    def delete_all_of(self, objects: Iterable[Object]) -> None:
        """Delete these objects."""
        for item in objects:
            self.api.delete(KINDS[item["kind"]], item["metadata"]["name"])

    # Images --------------------------------------------------------------------------------

    def load_image(self, archive: Path, *, also: Sequence[str] = ()) -> None:
        """Give the node the image of an OCI archive, under further references too (no copy is made)."""
        name = self.stack.ctr("image", "import", str(archive)).split()[0]
        for reference in also:
            self.stack.ctr("image", "tag", "--force", name, reference)

    # The API server's audit log ------------------------------------------------------------

    def audit(self, user: str) -> list[Object]:
        """Every answered request of a user so far, in order; the node must have ``Options(audit=…)``."""
        lines = self.paths.audit.read_text().split("\n")[:-1]
        events = (json.loads(line) for line in lines)
        return [event for event in events if event["user"]["username"] == user and event["stage"] != "RequestReceived"]

    # The machine ---------------------------------------------------------------------------

    def make_device(self, name: str, major: int, minor: int) -> Path:
        """A character device ``/dev/<name>`` on the node; its path as this process can reach it.

        The path ends with the node's namespaces. A number that a driver of this machine
        owns is refused: opening it would reach that driver.
        """
        if str(major) in character_majors():
            raise ValueError(f"character major {major} belongs to a driver of this machine")
        path = self.stack.sandbox.root / "dev" / name
        os.mknod(path, 0o020666, os.makedev(major, minor))
        path.chmod(0o666)
        return path

    def remove_device(self, name: str) -> None:
        """Remove ``/dev/<name>`` of the node."""
        with suppress(FileNotFoundError):
            (self.stack.sandbox.root / "dev" / name).unlink()

    # Programs ------------------------------------------------------------------------------

    def program(self, name: str) -> Program:
        """etcd, apiserver, scheduler, controller-manager, containerd or kubelet."""
        return self.stack.programs[name]

    def stop(self, name: str) -> None:
        """``kill -9`` a program."""
        self.program(name).kill()

    def start(self, name: str) -> None:
        """Start a program that was stopped and wait until it answers."""
        self.stack.start(name)

    def restart_kubelet(self) -> None:
        """``kill -9`` and start the kubelet; until the node is Ready."""
        self.stop("kubelet")
        self.start("kubelet")
        wait_ready(self.stack)


def shown(text: str) -> str | None:
    """The text if it has the mark that the container has printed all of it."""
    return text if re.search(r"^SHOWN$", text, flags=re.MULTILINE) else None


def parse_view(text: str) -> View:
    """A ``View`` from what ``objects.SHOW`` prints."""
    env: dict[str, str] = {}
    nodes: dict[str, str] = {}
    for line in text.partition("\nSHOWN")[0].splitlines():
        if node := re.match(r"NODE (\S+) ([0-9a-f]+):([0-9a-f]+) ", line):
            nodes[node[1]] = f"{int(node[2], 16)}:{int(node[3], 16)}"
        elif "=" in line:
            key, _, value = line.partition("=")
            env[key] = value
    return View(env, nodes)


def character_majors() -> set[str]:
    """Majors of character devices that this machine's kernel has drivers for."""
    text = Path("/proc/devices").read_text().partition("Block devices:")[0]
    return set(re.findall(r"^\s*(\d+) ", text, flags=re.MULTILINE))


@contextmanager
def lone_node(options: Options | None = None) -> Iterator[Node]:
    """A node that is closed at the end; AssertionError if it has left anything on the machine."""
    before = leftovers.snapshot()
    node = Node(options)
    try:
        yield node
    finally:
        node.close()
    leftovers.assert_nothing_left(before, node.stack.sandbox.name)
