"""Texts of the configuration files of a test node's programs.

Pure functions from paths and addresses to texts. What each setting is for stands
beside it where it is not the obvious one.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dra_driver.cluster.rights import RIGHTS

POD_NETWORK = "10.244.77.0/24"
SERVICE_NETWORK = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"  # the service `kubernetes`: always the first address of the range

# Static tokens of a test cluster: user name, groups. The token of a user is "<key>-token".
USERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("admin", ("system:masters",)),
    "scheduler": ("system:kube-scheduler", ()),
    "controller-manager": ("system:kube-controller-manager", ()),
    "driver": ("coreslice-driver", ()),
}


def users(node: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Every user of the cluster; the kubelet is the node's own identity."""
    return {**USERS, "kubelet": (f"system:node:{node}", ("system:nodes",))}


def token(user: str) -> str:
    """The static token of a user."""
    return f"{user}-token"


def token_file(node: str) -> str:
    """``--token-auth-file``: token, user name, uid, groups."""
    lines = (f'{token(key)},{name},{key},"{",".join(groups)}"' for key, (name, groups) in users(node).items())
    return "\n".join(lines) + "\n"


def kubeconfig(*, server: str, ca: str, user: str) -> str:
    """A kubeconfig (JSON is YAML) that trusts the server's own CA."""
    authority = base64.b64encode(ca.encode()).decode()
    cluster = {"server": server, "certificate-authority-data": authority}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token(user)}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
            "current-context": "testbed",
        },
        indent=1,
    )


def containerd(home: Path, *, cdi: Path, runc: Path, sandbox_image: str, cni_bin: Path) -> str:
    """containerd's configuration (version 3)."""
    return f"""
version = 3
root = '{home}/data'
state = '{home}/state'
[grpc]
  address = '{home}/containerd.sock'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = '{sandbox_image}'
[plugins.'io.containerd.cri.v1.runtime']
  cdi_spec_dirs = ['{cdi}']
  # Without CAP_SYS_RESOURCE nobody may lower an OOM score, and every pod would fail.
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      BinaryName = '{runc}'
      SystemdCgroup = false
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ['{cni_bin}']
    conf_dir = '{home}/cni.d'
[plugins.'io.containerd.nri.v1.nri']
  socket_path = '{home}/nri.sock'
  plugin_path = '{home}/nri'
  plugin_config_path = '{home}/nri.d'
"""


def audit_policy(rules: Sequence[Mapping[str, Any]]) -> str:
    """``--audit-policy-file`` (JSON is YAML)."""
    return json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules)}, indent=1)


def network(home: Path) -> str:
    """The CNI network: a bridge in the node's own network namespace."""
    bridge = {
        "type": "bridge",
        "bridge": "pods0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(home / "ipam"),
            "ranges": [[{"subnet": POD_NETWORK}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, portmap]}, indent=1)


def kubelet(home: Path, *, address: str, runtime: Path, cgroup: str, feature_gates: Mapping[str, bool]) -> str:
    """The kubelet's configuration (JSON is YAML)."""
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "healthzBindAddress": address,
        "port": 10250,
        "containerRuntimeEndpoint": f"unix://{runtime}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}",
        "failCgroupV1": False,  # since 1.35 the default is to exit on a v1 host
        "podLogsDir": str(home / "podlogs"),
        "volumePluginDir": str(home / "volumeplugins"),
        # logs and exec for tests; the API server has no client certificate to show
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # a full disk or little memory on the developer's machine is no subject here
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
        "imageGCHighThresholdPercent": 99,
        "imageGCLowThresholdPercent": 98,
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": str(home / "resolv.conf"),
        "nodeStatusReportFrequency": "10s",
        "featureGates": dict(feature_gates),
    }
    return json.dumps(config, indent=1)


def gate_flag(feature_gates: Mapping[str, bool]) -> list[str]:
    """``--feature-gates`` of the control plane's programs; nothing where there are none."""
    pairs = ",".join(f"{name}={str(on).lower()}" for name, on in feature_gates.items())
    return [f"--feature-gates={pairs}"] if pairs else []


# What the driver's account may do: its own table, which the chart's ClusterRole equals (a test of the chart).
DRIVER_RULES = tuple((right.group, [right.resource], [right.verb]) for right in RIGHTS)
# The Node authorizer learns of a pod's claims a little later than the kubelet does (1 in
# 50 to 100 pods on a busy machine): it then answers 403, and the kubelet asks again after
# 60 to 90 s. A role closes that gap; off where the gap itself is the subject.
NODE_RULES = (
    ("resource.k8s.io", ["resourceclaims"], ["get"]),
    ("", ["pods", "configmaps", "secrets"], ["get"]),
)


def role(name: str, rules: tuple[tuple[str, list[str], list[str]], ...], *, to: str) -> list[dict[str, Any]]:
    """A ClusterRole and its binding; ``to`` is ``User/<name>`` or ``Group/<name>``."""
    kind, _, subject = to.partition("/")
    api = "rbac.authorization.k8s.io"
    rule_objects = [{"apiGroups": [group], "resources": what, "verbs": verbs} for group, what, verbs in rules]
    return [
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name},
            "rules": rule_objects,
        },
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": api, "kind": kind, "name": subject}],
        },
    ]
