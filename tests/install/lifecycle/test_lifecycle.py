"""A driver's whole life on a real node, in order: installed, used, upgraded, taken away, with and without `pods: get`.

Each test goes on where the one before it ended; the last one reads the audit log of all of it.
"""

import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from testbed import audit, objects
from testbed.api import Object
from testbed.audit import Ask
from testbed.charts import CHART, NAMESPACE, Chart
from testbed.churn import Churn
from testbed.examples import Examples, read
from testbed.grants import wait_nothing_held
from testbed.observer import SliceObserver
from testbed.outcomes import OUTCOMES
from testbed.release import USER, Site
from testbed.waiting import until

from .conftest import A, B, Measured

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

IMPLICIT = "deviceclass.resource.kubernetes.io/"
EVERYBODY = {Ask("create", "authorization.k8s.io", "selfsubjectaccessreviews")}  # any account may ask what it may do
README = CHART / "README.md"
PODS = 12  # that run at least during each roll-out


def test_install(site: Site, measured: Measured) -> None:
    assert site.found() == []
    started = time.monotonic()
    site.install("--wait", "--timeout", "120s")
    measured("helm install --wait, s", took(started))
    status = site.daemon_set()["status"]
    assert (status["desiredNumberScheduled"], status["numberReady"]) == (1, 1)
    assert site.cores() == 2
    pod = site.wait_alone(A)
    assert restarts(pod) == 0


@pytest.mark.parametrize("name", OUTCOMES)
def test_example_in_the_installed_pod(site: Site, examples: Examples, name: str) -> None:
    """Without the right to read pods, a pod with more than one claim or request is refused, as the README says."""
    asking_more = [file for file in name.split("+") if not all(map(asks_once, pods_of(file)))]
    if site.reads_pods or not asking_more:
        OUTCOMES[name](examples)
        return
    assert asking_more == ["two-containers"]
    examples.apply(name)
    told = r"^PodNeeded: .*use one claim with one request, or allow it \(rbac.readPods\)"
    event = examples.node.wait_event(name, told)  # beside the kubelet's own
    assert event["reportingComponent"] == site.name
    assert examples.node.api.get("pods", name)["status"]["phase"] == "Pending"


def pods_of(file: str) -> Iterator[Object]:
    """Specs of the pods that a file leads to."""
    for item in read(file):
        if item["kind"] == "Pod":
            yield item["spec"]
        elif "template" in item["spec"]:
            yield item["spec"]["template"]["spec"]


def asks_once(spec: Object) -> bool:
    """Whether a pod has one claim of one request: the policies keep claims to one, extended names ask one each."""
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    limits = [name for one in containers for name in one.get("resources", {}).get("limits", {})]
    return len(spec.get("resourceClaims", [])) + len([name for name in limits if name.startswith(IMPLICIT)]) == 1


def test_refusal_is_an_event_on_the_pod(site: Site, measured: Measured) -> None:
    """A container that combines a claim of the pod's own with a user's. Told again, it is the same Event."""
    node = site.node
    node.apply(objects.claim("shared", r="neuron-core"), objects.template("own", r="neuron-core"))
    claims = {"own": "template/own", "shared": "claim/shared"}
    node.apply(objects.pod("mixed", objects.container(claims=list(claims)), claims=claims))
    reason = "CombinedWithSharedClaim" if site.reads_pods else "PodNeeded"
    first = node.wait_event("mixed", f"^{reason}: ")
    if site.reads_pods:  # the kubelet asks again after a minute or more
        started = time.monotonic()
        until(
            lambda: again(site, first)["count"] > 1, what="counted again", timeout=240, seen=lambda: again(site, first)
        )
        measured("until a refusal was counted again, s", took(started))
    node.clean(but=classes(site))
    wait_nothing_held(site)


def again(site: Site, event: Object) -> Object:
    """The Event as it is now."""
    return site.node.api.get("events", event["metadata"]["name"])


def classes(site: Site) -> list[str]:
    """Device classes of the chart, which stay."""
    return [item["metadata"]["name"] for item in site.node.api.list("deviceclasses")]


def test_slices_follow_the_machine(site: Site) -> None:
    """Chips that go, come back and become more: deleted, created, updated."""
    site.become(chips=0)
    until(lambda: not site.slices(), what="slices withdrawn", timeout=60, seen=site.slices)
    site.become(chips=1)
    site.wait_cores(2)
    created = site.identities()
    site.become(chips=4)
    site.wait_cores(8)
    assert created.items() <= site.identities().items()
    until(lambda: ready(site), what="driver ready again", timeout=60, seen=site.daemon_set)


def ready(site: Site) -> bool:
    return bool(site.daemon_set()["status"].get("numberReady") == 1)


def test_upgrade_under_churn(site: Site, measured: Measured) -> None:
    run_pod(site, "old")
    with rolled_out(site, measured, "helm upgrade"):
        site.upgrade(tag=B.rpartition(":")[2])
        site.wait_alone(B)
    undo(site, "old")


def test_rollback_under_churn(site: Site, measured: Measured) -> None:
    run_pod(site, "new")
    with rolled_out(site, measured, "helm rollback"):
        site.rollback(1)
        site.wait_alone(A)
    undo(site, "new")


@contextmanager
def rolled_out(site: Site, measured: Measured, what: str) -> Iterator[None]:
    """Within it the driver's pods change while others come and go: nobody notices."""
    slices, failed = site.identities(), kubelet_errors(site)
    observer = SliceObserver(site.node.api, site.name)
    with Churn(site.node) as churn:
        churn.wait_more(2)
        started, before = time.monotonic(), len(churn.ran)
        yield
        measured(f"{what} until one pod is left, s", took(started))
        measured("pods that began to run meanwhile", len(churn.ran) - before)
        churn.wait_more(max(2, PODS - len(churn.ran)))
    observer.stop()
    measured("pods that ran in all, and the slowest, s", (len(churn.ran), round(max(churn.ran), 1)))
    assert churn.troubles() == []
    assert kubelet_errors(site) == failed
    assert site.identities() == slices
    assert {seen.change for seen in observer.history()} == {"ADDED"}  # what was there at the start, and no change
    assert [restarts(pod) for pod in site.pods()] == [0]


def kubelet_errors(site: Site) -> dict[str, str]:
    """What the kubelet counted of claims that it couldn't prepare or unprepare, and of calls that failed."""
    text = site.node.api.request("GET", f"/api/v1/nodes/{site.node.name}/proxy/metrics")["message"]
    whole = re.findall(r"^(dra_operations_duration_seconds_count{[^}]*}) (\S+)$", text, re.MULTILINE)
    calls = re.findall(r"^(dra_grpc_operations_duration_seconds_count{[^}]*}) (\S+)$", text, re.MULTILINE)
    assert whole, text[:2000]
    assert calls, text[:2000]
    bad = [row for row in whole if 'is_error="true"' in row[0]]
    return dict(bad + [row for row in calls if 'grpc_status_code="OK"' not in row[0] and "NodePrepare" in row[0]])


def run_pod(site: Site, name: str) -> Object:
    """A pod with a core of its own; its claim."""
    site.node.apply(objects.template(name, r="neuron-core"))
    pod = objects.pod(name, objects.container(claims=["c"]), claims={"c": f"template/{name}"})
    status = site.node.run_pod(pod)["status"]["resourceClaimStatuses"][0]
    assert len(site.records()) == len(site.cdi_files()) == 1
    return site.node.api.get("resourceclaims", status["resourceClaimName"])


def undo(site: Site, name: str) -> None:
    """Delete such a pod: its record and CDI file go, by the driver that is there now."""
    assert len(site.records()) == len(site.cdi_files()) == 1
    site.node.delete_pods(name)
    site.node.api.delete("resourceclaimtemplates", name)
    wait_nothing_held(site)


def test_uninstall_with_a_claim_is_refused(site: Site) -> None:
    claim = run_pod(site, "user")["metadata"]["name"]
    slices = site.identities()
    refused = site.uninstall()
    assert refused.status != 0
    assert f"default/{claim}" in refused.text
    site.wait_alone(A)
    assert site.identities() == slices
    site.node.apply(objects.template("more", r="neuron-core"))
    site.node.run_pod(objects.pod("more", objects.container(claims=["c"]), claims={"c": "template/more"}))
    site.node.delete_pods("more")
    site.node.api.delete("resourceclaimtemplates", "more")


def test_clean_is_refused_while_a_driver_serves(site: Site) -> None:
    kept = [*site.records(), *site.cdi_files()]
    phase, log = cleaned(site)
    assert (phase, "serves this node" in log) == ("Failed", True), log
    assert [*site.records(), *site.cdi_files()] == kept
    site.wait_alone(A)


def test_forced_uninstall_leaves_what_is_prepared_and_a_reinstall_adopts_it(site: Site, measured: Measured) -> None:
    kept = [*site.records(), *site.cdi_files()]
    assert len(kept) == 2
    force(site, measured)
    assert [*site.records(), *site.cdi_files()] == kept
    assert site.node.exec("user", "ls", "/dev").status == 0
    site.node.api.delete("pods", "user")
    until(lambda: ended(site, "user"), what="its container ended", timeout=60)
    site.install("--wait", "--timeout", "120s")
    site.node.wait_gone("pods", "user", timeout=60)
    wait_nothing_held(site)
    site.node.api.delete("resourceclaimtemplates", "user")


def ended(site: Site, name: str) -> bool:
    """Whether nothing of a pod runs any more; the pod itself is still there, or this raises."""
    pod = site.node.api.get("pods", name)
    return all("terminated" in status["state"] for status in pod["status"]["containerStatuses"])


def force(site: Site, measured: Measured) -> None:
    """Uninstall without the check, until sockets and slices are gone."""
    started = time.monotonic()
    assert site.uninstall("--no-hooks").status == 0
    until(lambda: not site.pods(), what="no driver pod", timeout=60)
    assert sockets(site) == []
    measured("helm uninstall until pod and sockets are gone, s", took(started))
    until(lambda: not site.slices(), what="slices gone", timeout=60, seen=site.slices)
    measured("helm uninstall until the slices are gone, s", took(started))


def sockets(site: Site) -> list[str]:
    return [path for path in site.found() if path.endswith(".sock")]


def test_clean_from_the_image_as_the_readme_says(site: Site, measured: Measured) -> None:
    """The driver is gone for good, its pod is forced away: what stayed on the node is removed by the one command."""
    claim = run_pod(site, "user")["metadata"]["name"]
    force(site, measured)
    site.node.api.delete("pods", "user", gracePeriodSeconds=0)
    site.node.wait_gone("pods", "user")
    assert len(site.records()) == len(site.cdi_files()) == 1
    phase, log = cleaned(site)
    assert (phase, f"record and CDI file of claim default/{claim}" in log) == ("Succeeded", True), log
    assert site.found() == []
    site.node.api.delete("resourceclaimtemplates", "user")


def cleaned(site: Site) -> tuple[str, str]:
    """Run the command, and take its pod away as the README says: how that ended, and its log."""
    said = site.node.kubectl(*clean_command(site)).text
    (pod,) = re.findall(r"Creating debugging pod (\S+) with", said)
    ends = {"Succeeded", "Failed"}
    until(lambda: site.node.api.get("pods", pod)["status"]["phase"] in ends, what=f"{pod} ended", timeout=60)
    phase, log = site.node.api.get("pods", pod)["status"]["phase"], site.node.logs(pod, "debugger")
    (delete,) = re.findall(r"^`kubectl (delete pods -l \S+)`\.$", README.read_text(), re.MULTILINE)
    site.node.kubectl(*delete.split())
    assert site.node.api.find("pods", pod) is None
    return phase, log


def clean_command(site: Site) -> list[str]:
    """The README's, with this node's paths and image in place of the usual."""
    (line,) = re.findall(
        r"^kubectl debug node/NODE(?: .*\\\n)*.*coreslice state clean(?: .*\\\n)*.*$", README.read_text(), re.MULTILINE
    )
    paths = {
        "REGISTRY/coreslice:VERSION": A,
        "/var/lib/kubelet": str(site.node.paths.kubelet),
        "/run/cdi": str(site.node.paths.cdi),
        "node/NODE": f"node/{site.node.name}",
    }
    for usual, here in paths.items():
        assert usual in line
        line = line.replace(usual, here)
    return shlex.split(line.replace("\\\n", " "))[1:]


def test_uninstall_with_the_claims_gone_leaves_nothing(site: Site, chart: Chart, measured: Measured) -> None:
    site.install("--wait", "--timeout", "120s")
    run_pod(site, "last")
    undo(site, "last")
    there = chart.objects(**site.values)
    started = time.monotonic()
    done = site.uninstall()
    assert done.status == 0, done.text
    measured("helm uninstall --wait with its check, s", took(started))
    until(lambda: site.left() == "", what="nothing left", timeout=60, seen=site.left)
    assert sockets(site) == []
    gone = time.monotonic()
    until(lambda: not site.slices(), what="slices gone", timeout=60, seen=site.slices)
    measured("from the driver's end until the slices are gone, s", took(gone))
    for item in there:
        name = f"{item['kind']}/{item['metadata']['name']}"
        found = site.node.kubectl("get", name, "--namespace", NAMESPACE, "--ignore-not-found", "-o", "name")
        assert found.text == "", name
    assert site.node.kubectl("get", "secrets,configmaps", "-n", NAMESPACE, "-o", "name").text.split() == [
        "configmap/kube-root-ca.crt"
    ]
    own = f"k/plugins/{site.name}"
    assert site.found() == [own, f"{own}/claims", f"{own}/claims/lock"]
    assert "| the driver's own folder on the nodes, with `claims/lock` in it | stays" in README.read_text()


FORCED = 2  # uninstalls while a claim was prepared


def test_audit_log_has_no_forbidden_and_no_right_is_idle(site: Site, chart: Chart) -> None:
    """A forced uninstall takes the rights away while the driver, at its end, asks whether its node is being drained."""
    events = site.node.audit(USER)
    role = chart.one("ClusterRole", "--no-hooks", rbac={"readPods": site.reads_pods})
    used, may = audit.asked(events), audit.granted(role)
    at_the_end = [f"get /api/v1/nodes/{site.node.name}"] * FORCED
    forbidden = audit.refused(events)
    assert forbidden == at_the_end[: len(forbidden)]
    assert not [ask for ask in used if ask.resource.partition("/")[0] in {"nodes", "pods"} and ask.verb != "get"]
    assert set(used) - may <= EVERYBODY
    assert (Ask("get", "", "pods") in used) == site.reads_pods
    if site.reads_pods:
        assert may - set(used) == set()


def took(started: float) -> float:
    return round(time.monotonic() - started, 1)


def restarts(pod: Object) -> int:
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])
