"""Group L: which nodes get the driver, and what it needs of them."""

import json

import pytest
from testbed.charts import NAMESPACE

from dra_driver.settings import DRIVER_NAME
from tests.install.cases.conftest import LABEL, Installed, cordoned

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    "taint",
    [
        "aws.amazon.com/neuron=true:NoSchedule",
        "team.example.com/reserved=a:NoSchedule",
        "aws.amazon.com/neuron=true:NoExecute",
    ],
)
def test_bc119_tainted_node_gets_the_driver(installed: Installed, taint: str) -> None:
    node, site = installed.node, installed.site
    node.kubectl("taint", "node", node.name, taint)
    try:
        with cordoned(node):
            installed.restart()  # a pod that was there before would stay under NoSchedule anyway
            installed.wait_ready()
        status = site.daemon_set()["status"]
        assert (status["desiredNumberScheduled"], status["numberReady"]) == (1, 1)
    finally:
        node.kubectl("taint", "node", node.name, f"{taint.partition('=')[0]}-")


def test_bc118_node_without_label_or_known_type_has_no_pod(installed: Installed) -> None:
    node, site = installed.node, installed.site
    site.label(f"{LABEL}-")
    try:
        node.kubectl("wait", "pod", "-n", NAMESPACE, "--all", "--for=delete", "--timeout=90s")
        assert site.daemon_set()["status"]["desiredNumberScheduled"] == 0
        site.label("node.kubernetes.io/instance-type=m5.large")
        assert site.daemon_set()["status"]["desiredNumberScheduled"] == 0
        site.label("node.kubernetes.io/instance-type=trn1.2xlarge")
        installed.wait_ready()
        assert site.daemon_set()["status"]["desiredNumberScheduled"] == 1
    finally:
        site.label("node.kubernetes.io/instance-type-")
        site.label(f"{LABEL}=true")
    installed.wait_ready()


def test_bc123_nothing_of_the_host_is_assumed(installed: Installed) -> None:
    """No kubeconfig of the kubelet, no root that can be written, no process of the host."""
    node = installed.node
    assert not (node.stack.sandbox.root / "etc/kubernetes/kubelet.conf").exists()
    assert "hostPID" not in installed.pod()["spec"]
    program = """
import json, os, pathlib
def refused(path):
    try:
        pathlib.Path(path).write_text("x")
    except OSError as error:
        return error.errno
writable = [line.split()[1] for line in open("/proc/mounts") if "rw" in line.split()[3].split(",")]
print(json.dumps({
    "kubeconfig": os.path.exists("/etc/kubernetes"),
    "first": open("/proc/1/cmdline").read().split("\\0"),
    "root": [refused(path) for path in ("/x", "/etc/x", "/tmp/x", "/opt/coreslice/x")],
    "folders": writable,
}))
"""
    told = json.loads(installed.python(program))
    assert told["kubeconfig"] is False
    assert "driver" in told["first"]
    assert set(told["root"]) <= {30, 2}, "EROFS, or no such folder"
    own = {str(node.paths.plugins / DRIVER_NAME), str(node.paths.registry), str(node.paths.cdi)}
    scratch = str(node.paths.scratch)
    assert {path for path in told["folders"] if path.startswith(scratch)} == own
    installed.run_claim_pods("user")
