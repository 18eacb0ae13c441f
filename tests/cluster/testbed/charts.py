"""The chart by the real helm, and API servers that its policies are tried on.

A server is the node's own, or one of the same program that emulates 1.34 (``--emulated-version``): its CEL
environment is the one a server of that version compiles policies with.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from testbed import settings, stack
from testbed.api import Api, ApiStatusError, Object
from testbed.node import Node
from testbed.program import Program
from testbed.waiting import until

CHART = Path(__file__).parents[3] / "deploy" / "helm" / "coreslice"
NAMESPACE = "coreslice"
OLD_PORT = 1634
KUBE_VERSION = "1.37.0"


@dataclass(frozen=True)
class Chart:
    """What helm makes of the chart."""

    helm: Path

    def run(
        self, *arguments: str, values: Mapping[str, Any] | None = None, flags: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        """helm with values from stdin; the chart comes after the arguments.

        A helm that was built by `go build` takes the cluster for 1.20 unless told.
        """
        command = [str(self.helm), *arguments, str(CHART), "--namespace", NAMESPACE, "--values", "-", *flags]
        if arguments[0] in {"template", "lint"} and "--kube-version" not in flags:
            command += ["--kube-version", KUBE_VERSION]
        text = yaml.safe_dump(dict(values or {}))
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    def text(self, *flags: str, **values: Any) -> str:
        """`helm template`, as text."""
        done = self.run("template", "coreslice", values=values, flags=flags)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def objects(self, *flags: str, **values: Any) -> list[Object]:
        """`helm template`, as objects."""
        return [item for item in yaml.safe_load_all(self.text(*flags, **values)) if item]

    def one(self, kind: str, *flags: str, **values: Any) -> Object:
        """The one object of a kind."""
        (found,) = [item for item in self.objects(*flags, **values) if item["kind"] == kind]
        return found

    def refusal(self, *flags: str, **values: Any) -> str:
        """What helm says to values that it refuses."""
        done = self.run("template", "coreslice", values=values, flags=flags)
        assert done.returncode != 0, done.stdout
        return done.stderr


@dataclass(frozen=True)
class Server:
    """An API server: requests as its administrator or as somebody with little rights."""

    version: str
    kubectl: Path
    kubeconfig: Path
    address: tuple[str, int]
    ca: str

    def api(self, token: str) -> Api:
        """A client with that token."""
        return Api(host=self.address[0], port=self.address[1], token=token, ca=self.ca)

    @property
    def admin(self) -> Api:
        """The administrator."""
        return self.api(settings.token("admin"))

    def apply(self, *objects: Object) -> None:
        """`kubectl apply`; they stay."""
        self._kubectl("apply", objects)

    def delete(self, *objects: Object) -> None:
        """`kubectl delete`; what is gone already is fine."""
        self._kubectl("delete", objects, "--ignore-not-found")

    def _kubectl(self, verb: str, objects: tuple[Object, ...], *flags: str) -> None:
        command = [str(self.kubectl), "--kubeconfig", str(self.kubeconfig), verb, "-f", "-", *flags]
        text = yaml.safe_dump_all(objects)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def token(self, account: str, namespace: str = "default", bound: Object | None = None) -> str:
        """A token of a ServiceAccount, bound to an object if one is given."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        spec: Object = {"expirationSeconds": 3600}
        if bound:
            reference = {"apiVersion": "v1", "kind": bound["kind"], "name": bound["metadata"]["name"]}
            spec["boundObjectRef"] = {**reference, "uid": bound["metadata"]["uid"]}
        answer = self.admin.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "spec": spec})
        return str(answer["status"]["token"])


def refused(api: Api, method: str, path: str, body: Object | None = None) -> tuple[int, str]:
    """Status and text of a refusal; (0, "") where the request would do. A dry run: nothing changes."""
    try:
        api.request(method, f"{path}?dryRun=All", body)
    except ApiStatusError as error:
        return error.code, error.message
    return 0, ""


def old_server(node: Node) -> Program:
    """Another API server over the node's etcd, with a store of its own, that is as one of 1.34."""
    other = {
        "--secure-port": str(OLD_PORT),
        "--etcd-prefix": "/old",
        "--emulated-version": "1.34",
        "--runtime-config": "resource.k8s.io/v1beta1=true",
    }
    flags = [flag for flag in stack.apiserver_flags(node.stack) if flag.partition("=")[0] not in other]
    command = [
        str(node.stack.binaries["kube-apiserver"]),
        *flags,
        *(f"{name}={value}" for name, value in other.items()),
    ]
    log = node.paths.logs / "apiserver-1.34.log"
    program = Program("apiserver-1.34", command, log, env={"PATH": "/usr/bin:/bin"}, sandbox=node.stack.sandbox)
    node.stack.guests.append(program)
    return program


def wait_for_it(server: Server, program: Program) -> None:
    until(
        lambda: server.admin.request("GET", "/readyz?verbose=false") is not None,
        what="the server of 1.34 to answer",
        timeout=60,
        seen=lambda: program.log_text(last=15),
        ignore=(OSError, ApiStatusError),
    )


def people(server: Server) -> list[Object]:
    """A namespace for the driver, a user who makes claims and pods, and the driver's account with its rights."""
    meta = {"namespace": NAMESPACE}
    claims = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims", "resourceclaimtemplates"], "verbs": ["*"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]},
    ]
    rbac, group = "rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io"
    subjects = [
        {"kind": "ServiceAccount", "name": "alice", "namespace": "default"},
        {"kind": "ServiceAccount", "name": "coreslice", "namespace": NAMESPACE},
        {"kind": "User", "name": "system:kube-scheduler", "apiGroup": group},
    ]
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "coreslice", **meta}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "alice", "namespace": "default"}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": {"name": "people"}, "rules": claims},
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "people"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "people"},
            "subjects": subjects,
        },
    ]


def wait_in_force(server: Server) -> None:
    """A policy acts a moment after it is made: until each refuses what it is there for."""
    claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    request = {"name": "r", "exactly": {"deviceClassName": "neuron-core", "count": 2}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "in-force"},
        "spec": {"devices": {"requests": [request]}},
    }
    limits = {"deviceclass.resource.kubernetes.io/neuron-core": "2"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "in-force"},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": {"limits": limits}}]},
    }
    piece = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "in-force"},
        "spec": {
            "driver": "neuron.coreslice.dev",
            "nodeName": "nowhere",
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [],
        },
    }
    driver = server.api(server.token("coreslice", NAMESPACE))
    for api, path, body in (
        (server.admin, claims, claim),
        (server.admin, "/api/v1/namespaces/default/pods", pod),
        (driver, "/apis/resource.k8s.io/v1/resourceslices", piece),
    ):
        until(
            lambda api=api, path=path, body=body: "coreslice-" in refused(api, "POST", path, body)[1],  # type: ignore[misc]
            what=f"policy on {path} in force",
            timeout=30,
            seen=lambda api=api, path=path, body=body: refused(api, "POST", path, body),  # type: ignore[misc]
        )
