"""The programs of one node and the order they start in.

etcd and containerd, API server and images, then scheduler, controller manager and
kubelet: each is started when what it needs answers. The kubelet exits at once when
the runtime's socket is not there, so order is this module's business. Everything
listens on the node's own address in its own network namespace, so ports are fixed.

A pod reaches the API as on any cluster, by service address, token and CA: the server
itself listens on the first address of the service range, which the node has on its
loopback device. There is no kube-proxy, hence no other Service, and no DNS.
"""

import http.client
import ssl
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from testbed import binaries, images, settings
from testbed.api import Api, Object
from testbed.program import Program
from testbed.sandbox import Sandbox, environment, open_sandbox
from testbed.waiting import until

NODE_NAME = "node-1"
PORTS = {"etcd": 2379, "apiserver": 443, "scheduler": 10259, "controller-manager": 10257, "kubelet": 10248}
START_SECONDS = 60.0
# Who asked for what, without bodies: 0.1 MB a minute idle, 2 MB under a churn of pods.
AUDIT_METADATA: Sequence[Object] = ({"level": "Metadata", "omitStages": ["RequestReceived"]},)


@dataclass(frozen=True)
class Options:
    """How a node is to be. ``feature_gates`` go to every Kubernetes program.

    ``audit``: rules of an audit policy, first match counts, e.g. ``AUDIT_METADATA``; without rules no log.
    """

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    node_role: bool = True
    kubernetes: Path | None = None  # folder of another Kubernetes version's Go module
    detached: bool = False
    audit: Sequence[Object] = ()


@dataclass(frozen=True)
class Paths:
    """Folders of a node below its scratch folder. Short names: sockets end at 107 bytes."""

    scratch: Path

    @property
    def kubelet(self) -> Path:
        """The kubelet's root: ``plugins`` and ``plugins_registry`` are in it."""
        return self.scratch / "k"

    @property
    def plugins(self) -> Path:
        """Where drivers have their sockets."""
        return self.kubelet / "plugins"

    @property
    def registry(self) -> Path:
        """Where drivers announce themselves."""
        return self.kubelet / "plugins_registry"

    @property
    def device_plugins(self) -> Path:
        """The kubelet's device plugin folder, as the machine can reach it."""
        return self.scratch / "varlib" / "kubelet" / "device-plugins"

    @property
    def containerd(self) -> Path:
        """containerd's home."""
        return self.scratch / "c"

    @property
    def cdi(self) -> Path:
        """The only folder where the node's containerd looks for CDI specs."""
        return self.scratch / "cdi"

    @property
    def pki(self) -> Path:
        """Keys and the API server's certificate."""
        return self.scratch / "pki"

    @property
    def logs(self) -> Path:
        """One log for each program."""
        return self.scratch / "logs"

    @property
    def audit(self) -> Path:
        """The API server's audit log, where there is one."""
        return self.logs / "audit.log"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of ``settings.users``."""
        return self.scratch / f"{user}.kubeconfig"


@dataclass(frozen=True)
class Stack:
    """A running node's programs."""

    sandbox: Sandbox
    paths: Paths
    binaries: Mapping[str, Path]
    options: Options
    programs: dict[str, Program]
    guests: list[Program] = field(default_factory=list)  # what tests run inside beside them
    node_name: str = NODE_NAME

    @property
    def server(self) -> str:
        """URL of the API server, from inside and outside alike."""
        return f"https://{self.sandbox.address}:{PORTS['apiserver']}"

    def api(self, user: str = "admin") -> Api:
        """A client of the API server."""
        ca = (self.paths.pki / "apiserver.crt").read_text()
        return Api(host=self.sandbox.address, port=PORTS["apiserver"], token=settings.token(user), ca=ca)

    def start(self, *names: str) -> None:
        """Start programs side by side and wait until each answers."""
        for name in names:
            self.programs[name].start()
        for name in names:
            self.wait(name)

    def wait(self, name: str) -> None:
        """Wait until a program that was started answers."""
        until(
            lambda: self._answers(name),
            what=f"{name} to answer",
            timeout=START_SECONDS,
            seen=lambda: self.programs[name].log_text(last=15),
            ignore=(OSError, subprocess.CalledProcessError),
        )

    def ctr(self, *arguments: str) -> str:
        """Ask containerd, in the namespace of the kubelet's containers; CalledProcessError if it refuses."""
        socket = str(self.paths.containerd / "containerd.sock")
        return self.sandbox.run(str(self.binaries["ctr"]), "-a", socket, "-n", "k8s.io", *arguments)

    def close(self) -> None:
        """End every program and remove what they left."""
        self.sandbox.close()
        for program in (*self.programs.values(), *self.guests):
            program.reap()

    def _answers(self, name: str) -> bool:
        if not self.programs[name].alive():
            raise RuntimeError(f"{name} has ended: {self.programs[name].log_text(last=15)}")
        address = self.sandbox.address
        match name:
            case "containerd":
                return bool(self.ctr("version"))
            case "etcd" | "kubelet":
                path = "/health" if name == "etcd" else "/healthz"
                return status(f"http://{address}:{PORTS[name]}{path}") == 200
            case _:
                path = "/readyz" if name == "apiserver" else "/healthz"
                token = settings.token("admin") if name == "apiserver" else ""
                return status(f"https://{address}:{PORTS[name]}{path}", token=token) == 200


def status(url: str, *, token: str = "") -> int:
    """HTTP status of a GET. The certificate is not looked at: health pages of our own programs."""
    parts = urlsplit(url)
    address = parts.hostname or ""
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(address, parts.port, timeout=5, context=context)
    else:
        connection = http.client.HTTPConnection(address, parts.port, timeout=5)
    try:
        connection.request("GET", parts.path, headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status
    finally:
        connection.close()


def bring_up(options: Options) -> Stack:
    """A node that is Ready. Takes everything away again if it does not come so far."""
    programs = binaries.build_all(options.kubernetes)
    archives = images.build_images()
    sandbox = open_sandbox(detached=options.detached)
    stack = Stack(sandbox, Paths(sandbox.scratch), programs, options, {})
    try:
        prepare_files(stack)
        stack.programs.update(make_programs(stack))
        start_all(stack, archives)
    except BaseException as error:
        for program in stack.programs.values():
            error.add_note(f"--- {program.name}\n{program.log_text(last=5)}")
        stack.close()
        raise
    return stack


def prepare_files(stack: Stack) -> None:
    """Every folder, key, address and configuration file that can be made before anything runs."""
    paths, address = stack.paths, stack.sandbox.address
    for folder in (paths.kubelet, paths.containerd / "cni.d", paths.cdi, paths.pki, paths.scratch / "etcd"):
        folder.mkdir(parents=True)
    stack.sandbox.run("ip", "addr", "add", f"{settings.API_SERVICE}/32", "dev", "lo")
    key = str(paths.pki / "sa.key")
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    texts = {
        paths.scratch / "tokens.csv": settings.token_file(stack.node_name),
        paths.containerd / "config.toml": settings.containerd(
            paths.containerd,
            cdi=paths.cdi,
            runc=stack.binaries["runc"],
            sandbox_image=images.PAUSE,
            cni_bin=cni_folder(),
        ),
        paths.containerd / "cni.d" / "10-pods.conflist": settings.network(paths.containerd),
        paths.scratch / "audit.json": settings.audit_policy(stack.options.audit),
        paths.kubelet / "resolv.conf": "nameserver 127.0.0.1\n",
        paths.kubelet / "config.yaml": settings.kubelet(
            paths.kubelet,
            address=address,
            runtime=paths.containerd / "containerd.sock",
            cgroup=stack.sandbox.name,
            feature_gates=stack.options.feature_gates,
        ),
    }
    for path, text in texts.items():
        path.write_text(text)


def cni_folder() -> Path:
    """Where the CNI plugins are: Debian's folder or the one that upstream uses."""
    for folder in (Path("/usr/lib/cni"), Path("/opt/cni/bin")):
        if (folder / "bridge").exists():
            return folder
    raise FileNotFoundError("no CNI plugins: install the package containernetworking-plugins")


def make_programs(stack: Stack) -> dict[str, Program]:
    """The programs, none started."""
    env = environment(*{path.parent for path in stack.binaries.values()})

    def program(name: str, binary: str, *arguments: str) -> Program:
        command = [str(stack.binaries[binary]), *arguments]
        return Program(name, command, stack.paths.logs / f"{name}.log", env=env, sandbox=stack.sandbox)

    gates = settings.gate_flag(stack.options.feature_gates)
    return {
        "etcd": program("etcd", "etcd", *etcd_flags(stack)),
        "apiserver": program("apiserver", "kube-apiserver", *apiserver_flags(stack), *gates),
        "scheduler": program("scheduler", "kube-scheduler", *controller_flags(stack, "scheduler"), *gates),
        "controller-manager": program(
            "controller-manager",
            "kube-controller-manager",
            *controller_flags(stack, "controller-manager"),
            f"--service-account-private-key-file={stack.paths.pki}/sa.key",
            f"--root-ca-file={stack.paths.pki}/apiserver.crt",
            "--use-service-account-credentials",
            *gates,
        ),
        "containerd": program("containerd", "containerd", f"--config={stack.paths.containerd}/config.toml"),
        "kubelet": program("kubelet", "kubelet", *kubelet_flags(stack)),
    }


def etcd_flags(stack: Stack) -> list[str]:
    """One member, no fsync: nothing here outlives the run."""
    url = f"http://{stack.sandbox.address}:{PORTS['etcd']}"
    peer = f"http://{stack.sandbox.address}:2380"
    return [
        f"--data-dir={stack.paths.scratch}/etcd",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
    ]


def apiserver_flags(stack: Stack) -> list[str]:
    """The server makes its own CA and certificate in ``--cert-dir``; both are in one file."""
    address, pki = stack.sandbox.address, stack.paths.pki
    log = [f"--audit-policy-file={stack.paths.scratch}/audit.json", f"--audit-log-path={stack.paths.audit}"]
    return [
        *(log if stack.options.audit else []),
        f"--etcd-servers=http://{address}:{PORTS['etcd']}",
        "--bind-address=0.0.0.0",  # the node's address and that of the service
        f"--advertise-address={address}",
        f"--secure-port={PORTS['apiserver']}",
        f"--cert-dir={pki}",
        f"--service-cluster-ip-range={settings.SERVICE_NETWORK}",
        f"--service-account-key-file={pki}/sa.key",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={stack.paths.scratch}/tokens.csv",
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--endpoint-reconciler-type=none",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_flags(stack: Stack, user: str) -> list[str]:
    """What scheduler and controller manager have in common."""
    return [
        f"--kubeconfig={stack.paths.kubeconfig(user)}",
        f"--bind-address={stack.sandbox.address}",
        f"--secure-port={PORTS[user]}",
        f"--cert-dir={stack.paths.scratch}/{user}",
        "--leader-elect=false",
    ]


def kubelet_flags(stack: Stack) -> list[str]:
    """The kubelet's few flags; the rest is in its file."""
    return [
        f"--config={stack.paths.kubelet}/config.yaml",
        f"--kubeconfig={stack.paths.kubeconfig('kubelet')}",
        f"--root-dir={stack.paths.kubelet}",
        f"--cert-dir={stack.paths.kubelet}/pki",
        f"--hostname-override={stack.node_name}",
        f"--node-ip={stack.sandbox.address}",
    ]


def start_all(stack: Stack, archives: list[Path]) -> None:
    """Start the programs in order and wait until the node is Ready and takes pods."""
    stack.start("etcd", "containerd")
    stack.programs["apiserver"].start()
    for archive in archives:
        stack.ctr("image", "import", str(archive))
    stack.wait("apiserver")
    ca = (stack.paths.pki / "apiserver.crt").read_text()
    for user in settings.users(stack.node_name):
        path = stack.paths.kubeconfig(user)
        path.write_text(settings.kubeconfig(server=stack.server, ca=ca, user=user))
    make_roles(stack)
    stack.start("controller-manager", "scheduler", "kubelet")
    wait_ready(stack)


def make_roles(stack: Stack) -> None:
    """What the driver may do, and the role that closes the Node authorizer's gap."""
    api = stack.api()
    objects = settings.role("coreslice-driver", settings.DRIVER_RULES, to="User/coreslice-driver")
    if stack.options.node_role:
        objects += settings.role("testbed-nodes", settings.NODE_RULES, to="Group/system:nodes")
    for item in objects:
        api.create(item)


def wait_ready(stack: Stack) -> None:
    """Node Ready, without taints, and the default service account there."""
    api = stack.api()

    def ready() -> bool:
        node = api.find("nodes", stack.node_name) or {}
        conditions = node.get("status", {}).get("conditions", [])
        is_ready = any(item["type"] == "Ready" and item["status"] == "True" for item in conditions)
        free = is_ready and not node["spec"].get("taints")
        return free and api.find("serviceaccounts", "default") is not None

    kubelet = stack.programs["kubelet"]
    until(ready, what="node Ready", timeout=START_SECONDS, seen=lambda: kubelet.log_text(last=15))
