"""What the chart renders: pure, by the real `helm template`.

Long, since each value of the chart has its render here.
"""

import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from testbed.api import Object
from testbed.charts import CHART, Chart

import dra_driver
from dra_driver.inventory.classes import CHIP_COUNTS, CORE_COUNTS, device_classes
from dra_driver.kubelet.plugin import STOP_GRACE
from dra_driver.neuron.catalogue import SIZES
from dra_driver.settings import DRIVER_NAME, Settings

ROOT = CHART.parents[2]
HERE = Path(__file__).parent
NOT_FROM_THE_CHART = {
    "STATE_DIR",  # beside the sockets, in a folder that is mounted anyway
    "KUBECONFIG",  # the pod has an account
}


def driver_pod(chart: Chart, **values: Any) -> Object:
    """The spec of the driver's pods."""
    return dict(chart.one("DaemonSet", **values)["spec"]["template"]["spec"])


def environment(pod: Object) -> dict[str, Any]:
    """Environment of the driver: value, or the field it comes from."""
    listed = pod["containers"][0]["env"]
    return {
        one["name"]: one.get("value", one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")) for one in listed
    }


def test_helm_finds_no_fault(chart: Chart) -> None:
    done = chart.run("lint", flags=("--strict",))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_bc124_rendered_twice_is_the_same(chart: Chart) -> None:
    """Anything that differs would be a rollout at each upgrade."""
    assert chart.text() == chart.text()


def test_version_is_the_drivers(chart: Chart) -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == dra_driver.__version__
    assert driver_pod(chart)["containers"][0]["image"] == f"localhost/coreslice:{dra_driver.__version__}"


# Settings --------------------------------------------------------------------------------------


def test_every_setting_is_given_and_has_the_drivers_default(chart: Chart) -> None:
    """A setting that the chart forgets, or whose default it changes in passing, shows here."""
    given = environment(driver_pod(chart))
    known = {str(dict(field.json_schema_extra)["env"]): (name, field) for name, field in Settings.model_fields.items()}  # type: ignore[arg-type]
    assert set(given) == set(known) - NOT_FROM_THE_CHART
    assert given.pop("NODE_NAME") == "spec.nodeName"
    assert given.pop("POD_UID") == "metadata.uid"
    effective = Settings.model_validate({"node_name": "n"} | {known[env][0]: value for env, value in given.items()})
    assert effective == Settings.model_validate({"node_name": "n"})


@pytest.mark.parametrize(
    ("values", "env", "value"),
    [
        ({"driverName": "neuron.example.com"}, "DRIVER_NAME", "neuron.example.com"),
        ({"kubelet": {"root": "/data/kubelet"}}, "KUBELET_PLUGINS_DIRECTORY_PATH", "/data/kubelet/plugins"),
        ({"kubelet": {"root": "/data/kubelet"}}, "KUBELET_REGISTRAR_DIRECTORY_PATH", "/data/kubelet/plugins_registry"),
        ({"kubelet": {"root": "/data/kubelet"}}, "POD_RESOURCES_SOCKET", "/data/kubelet/pod-resources/kubelet.sock"),
        ({"kubelet": {"devicePlugins": "/data/dp"}}, "KUBELET_DEVICE_PLUGINS_DIRECTORY_PATH", "/data/dp"),
        ({"cdi": {"root": "/etc/cdi"}}, "CDI_ROOT", "/etc/cdi"),
        ({"cdi": {"assumeEnabled": True}}, "ASSUME_CDI", "true"),
        ({"hardware": {"hostPath": "/m", "sysfsRoot": "/m/sys"}}, "SYSFS_ROOT", "/m/sys"),
        ({"hardware": {"hostPath": "/m", "procRoot": "/m/proc"}}, "PROC_ROOT", "/m/proc"),
        ({"hardware": {"lnc": 1}}, "NEURON_LOGICAL_NC_CONFIG", "1"),
        ({"hardware": {"lnc": "2"}}, "NEURON_LOGICAL_NC_CONFIG", "2"),
        ({"hardware": {"lncFolder": "/etc/neuron"}}, "LNC_FILE", "/etc/neuron/logical_nc_config"),
        ({"offer": {"types": ["core", "chip"]}}, "OFFER_TYPES", "core,chip"),
        ({"offer": {"types": []}}, "OFFER_TYPES", "none"),
        ({"offer": {"coreCounts": [1]}}, "OFFER_CORE_COUNTS", "1"),
        ({"offer": {"chipCounts": [4, 16]}}, "OFFER_CHIP_COUNTS", "4,16"),
        ({"offer": {"chipsWithCores": 0}}, "OFFER_CHIPS_WITH_CORES", "0"),
        ({"offer": {"runs": "off"}}, "OFFER_RUNS", "off"),
        ({"offer": {"runs": True}}, "OFFER_RUNS", "on"),  # what YAML makes of a bare `on`
        ({"health": {"port": 1234}}, "HEALTHCHECK_PORT", "1234"),
        ({"listenAddress": "[::]"}, "HEALTHCHECK_ADDRESS", "[::]"),
        ({"listenAddress": "[::]"}, "METRICS_ADDRESS", "[::]"),
        ({"metrics": {"port": 1234}}, "METRICS_PORT", "1234"),
        ({"metrics": {"enabled": False}}, "METRICS_PORT", "-1"),
        ({"coexistence": {"policy": "warn"}}, "COEXISTENCE", "warn"),
        ({"coexistence": {"legacyResourceNames": []}}, "LEGACY_RESOURCE_NAMES", "none"),
        ({"coexistence": {"otherDrivers": ["a.example", "b.example"]}}, "OTHER_DRIVERS", "a.example,b.example"),
        ({"settings": {"granularityWithoutCounters": "core"}}, "GRANULARITY_WITHOUT_COUNTERS", "core"),
        ({"settings": {"visibleCoresOnChips": True}}, "VISIBLE_CORES_ON_CHIPS", "true"),
        ({"settings": {"prepareWait": 0.5}}, "PREPARE_WAIT", "0.5"),
        ({"settings": {"rescanInterval": 3600}}, "RESCAN_INTERVAL", "3600"),
        ({"settings": {"drainWait": 0}}, "DRAIN_WAIT", "0"),
        ({"rbac": {"readPods": False}}, "READ_PODS", "false"),
        ({"log": {"level": "DEBUG"}}, "LOG_LEVEL", "DEBUG"),
        ({"log": {"format": "text"}}, "LOG_FORMAT", "text"),
    ],
)
def test_value_becomes_a_setting(chart: Chart, values: Object, env: str, value: str) -> None:
    given = environment(driver_pod(chart, **values))
    assert given[env] == value
    names = {str(dict(field.json_schema_extra)["env"]): name for name, field in Settings.model_fields.items()}  # type: ignore[arg-type]
    pairs = {names[key]: item for key, item in given.items() if key not in {"NODE_NAME", "POD_UID"}}
    Settings.model_validate({"node_name": "n"} | pairs)  # the driver takes it


# The pod ---------------------------------------------------------------------------------------


def test_pod_has_the_least_it_needs(chart: Chart) -> None:
    pod = driver_pod(chart)
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert pod["securityContext"] == {"runAsUser": 0, "runAsGroup": 0}
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & set(pod)
    assert container["args"] == ["driver"]
    assert "command" not in container
    assert container["resources"] == {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}


def test_every_folder_is_mounted_where_the_host_has_it(chart: Chart) -> None:
    """The kubelet and the runtime are told paths, so a path means the same inside and outside."""
    pod = driver_pod(chart, hardware={"hostPath": "/m", "sysfsRoot": "/m/sys", "lncFolder": "/opt/aws/neuron"})
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert {name: mount["mountPath"] for name, mount in mounts.items()} == paths
    assert sorted(name for name, mount in mounts.items() if not mount.get("readOnly")) == ["cdi", "plugin", "registry"]
    assert paths["plugin"] == f"/var/lib/kubelet/plugins/{DRIVER_NAME}"
    assert not [path for path in paths.values() if path == "/dev" or path.startswith("/dev/")]


def test_bc004_wrong_kubelet_root_is_told_by_the_kubelet(chart: Chart) -> None:
    """A folder that is made where it is missing would hide a wrong root; the kubelet makes this one."""
    types = {volume["name"]: volume["hostPath"]["type"] for volume in driver_pod(chart)["volumes"]}
    assert types["registry"] == "Directory"


def test_bc123_no_folder_of_the_host_is_assumed(chart: Chart) -> None:
    """Not every image has /opt/aws: a pod that mounts it wouldn't start there."""
    assert not [volume for volume in driver_pod(chart)["volumes"] if volume["hostPath"]["path"].startswith("/opt")]
    named = driver_pod(chart, hardware={"lncFolder": "/opt/aws/neuron"})
    (volume,) = [volume for volume in named["volumes"] if volume["name"] == "lnc"]
    assert volume["hostPath"] == {"path": "/opt/aws/neuron", "type": "Directory"}


def test_probes_ask_the_health_service(chart: Chart) -> None:
    container = driver_pod(chart, health={"port": 1234})["containers"][0]
    asked = {name: container[name]["grpc"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert asked == {
        "startupProbe": {"port": 1234, "service": "liveness"},
        "livenessProbe": {"port": 1234, "service": "liveness"},
        "readinessProbe": {"port": 1234, "service": "readiness"},
    }
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 60  # a slow disk or a slow node


def test_old_and_new_pod_overlap(chart: Chart) -> None:
    daemon_set = chart.one("DaemonSet")
    assert daemon_set["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    surge = chart.one("DaemonSet", rollout={"maxSurge": "25%"})["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"]
    assert surge == "25%"


@pytest.mark.parametrize("wait", [0, 0.5, 25, 300])
def test_bc095_grace_period_is_longer_than_the_driver_takes_to_stop(chart: Chart, wait: float) -> None:
    """It serves on in a drain, and then waits for calls in flight."""
    grace = driver_pod(chart, settings={"drainWait": wait})["terminationGracePeriodSeconds"]
    assert isinstance(grace, int)
    assert grace > wait + STOP_GRACE + 5


def test_bc095_bc119_driver_stays_wherever_it_is_put(chart: Chart) -> None:
    pod = driver_pod(chart)
    assert pod["priorityClassName"] == "system-node-critical"
    assert pod["tolerations"] == [{"operator": "Exists"}]  # every key, every effect


def test_bc118_terms_of_the_node_affinity_are_alternatives(chart: Chart) -> None:
    extra = {"matchExpressions": [{"key": "feature.node.kubernetes.io/neuron", "operator": "Exists"}]}
    found = terms(driver_pod(chart, nodes={"extraTerms": [extra]}))
    label, types, own = found
    assert label == {"matchExpressions": [{"key": "coreslice.dev/neuron", "operator": "In", "values": ["true"]}]}
    assert types["matchExpressions"][0]["key"] == "node.kubernetes.io/instance-type"
    assert own == extra
    assert terms(driver_pod(chart, nodes={"instanceTypes": []})) == [label]


def test_every_known_size_gets_the_driver(chart: Chart) -> None:
    listed = set(terms(driver_pod(chart))[1]["matchExpressions"][0]["values"])
    assert set(SIZES) <= listed
    assert {name.removeprefix("ml.") for name in listed} <= listed


def terms(pod: Object) -> list[Object]:
    """Node selector terms; a node needs to match one."""
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return list(required["nodeSelectorTerms"])


def test_other_values_of_the_pod(chart: Chart) -> None:
    digest = "sha256:" + "0" * 64
    daemon_set = chart.one(
        "DaemonSet",
        image={
            "repository": "r.example:5000/a/b",
            "tag": "t",
            "digest": digest,
            "pullPolicy": "Always",
            "pullSecrets": [{"name": "s"}],
        },
        podAnnotations={"a.example/b": "c"},
        podLabels={"team": "x"},
        nodes={"selector": {"pool": "neuron"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
        priorityClassName="mine",
        resources={"limits": {"memory": "256Mi"}},
        serviceAccount={"name": "other"},
    )
    template = daemon_set["spec"]["template"]
    pod = template["spec"]
    assert pod["containers"][0]["image"] == f"r.example:5000/a/b@{digest}"
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    assert pod["imagePullSecrets"] == [{"name": "s"}]
    assert template["metadata"]["annotations"]["a.example/b"] == "c"
    assert template["metadata"]["labels"]["team"] == "x"
    assert daemon_set["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert pod["nodeSelector"] == {"pool": "neuron"}
    assert pod["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert pod["priorityClassName"] == "mine"
    assert pod["containers"][0]["resources"]["limits"] == {"memory": "256Mi"}
    assert pod["serviceAccountName"] == "other"


# Rights, classes, policies ---------------------------------------------------------------------


@pytest.mark.parametrize("read_pods", [True, False])
def test_rights(chart: Chart, *, read_pods: bool) -> None:
    rules = chart.one("ClusterRole", "--no-hooks", rbac={"readPods": read_pods})["rules"]
    found = {
        (group, resource): set(rule["verbs"])
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    wanted = {
        ("resource.k8s.io", "resourceclaims"): {"get"},
        ("resource.k8s.io", "resourceslices"): {"list", "watch", "create", "update", "delete"},
        ("", "nodes"): {"get"},
        ("", "pods"): {"get"},
        ("", "events"): {"create", "patch"},
    }
    if not read_pods:
        del wanted["", "pods"]
    assert found == wanted


def test_account_is_the_one_that_has_the_rights_and_that_the_policy_means(chart: Chart) -> None:
    made = chart.objects("--no-hooks", serviceAccount={"name": "other", "annotations": {"a": "b"}})
    account = next(item for item in made if item["kind"] == "ServiceAccount")
    assert account["metadata"]["annotations"] == {"a": "b"}
    binding = next(item for item in made if item["kind"] == "ClusterRoleBinding")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "other", "namespace": "coreslice"}]
    policy = next(item for item in made if item["metadata"]["name"] == "coreslice-slices")
    assert "'system:serviceaccount:coreslice:other'" in policy["spec"]["matchConditions"][0]["expression"]


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ({}, {}),
        ({"classes": {"cores": [1, 3], "chips": []}}, {"cores": [1, 3], "chips": []}),
        (
            {"classes": {"extendedResourceNames": {"neuron-chip": "aws.amazon.com/neuron"}}},
            {"extended_names": {"neuron-chip": "aws.amazon.com/neuron"}},
        ),
    ],
    ids=["default", "other-sizes", "extended-name"],
)
def test_classes_are_those_of_the_driver(chart: Chart, values: Object, options: Object) -> None:
    wanted = {item["metadata"]["name"]: item for item in device_classes(DRIVER_NAME, **options)}
    found = {item["metadata"]["name"]: item for item in chart.objects(**values) if item["kind"] == "DeviceClass"}
    assert {name: item["spec"] for name, item in found.items()} == {name: item["spec"] for name, item in wanted.items()}


def test_no_class_has_a_legacy_name_by_default(chart: Chart) -> None:
    classes = [item for item in chart.objects() if item["kind"] == "DeviceClass"]
    assert len(classes) == len(CORE_COUNTS) + len(CHIP_COUNTS)
    assert not [item for item in classes if "extendedResourceName" in item["spec"]]


@pytest.mark.parametrize("policy", ["slices", "claims", "pods"])
def test_each_policy_has_a_value(chart: Chart, policy: str) -> None:
    def policies(**values: Any) -> set[tuple[str, str]]:
        made = chart.objects(**values)
        return {
            (item["kind"], item["metadata"]["name"])
            for item in made
            if item["kind"].startswith("ValidatingAdmissionPolicy")
        }

    gone = policies() - policies(policies={policy: False})
    assert gone == {
        ("ValidatingAdmissionPolicy", f"coreslice-{policy}"),
        ("ValidatingAdmissionPolicyBinding", f"coreslice-{policy}"),
    }


def test_policies_refuse_rather_than_look_away(chart: Chart) -> None:
    for item in chart.objects():
        if item["kind"] == "ValidatingAdmissionPolicy":
            assert item["spec"]["failurePolicy"] == "Fail"
        if item["kind"] == "ValidatingAdmissionPolicyBinding":
            assert item["spec"]["validationActions"] == ["Deny"]


# Optional objects ------------------------------------------------------------------------------


def test_nothing_needs_the_prometheus_operator_or_network_policies_by_default(chart: Chart) -> None:
    kinds = {item["kind"] for item in chart.objects()}
    assert not kinds & {"PodMonitor", "NetworkPolicy"}


def test_pod_monitor(chart: Chart) -> None:
    values = {"metrics": {"podMonitor": {"enabled": True, "labels": {"release": "p"}, "interval": "10s"}}}
    monitor = chart.one("PodMonitor", **values)
    assert monitor["metadata"]["labels"]["release"] == "p"
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert (endpoint["port"], endpoint["interval"]) == ("metrics", "10s")
    assert monitor["spec"]["selector"] == chart.one("DaemonSet")["spec"]["selector"]
    assert {"name": "metrics", "containerPort": 8080} in driver_pod(chart)["containers"][0]["ports"]


def test_network_policy(chart: Chart) -> None:
    peers = [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]
    policy = chart.one("NetworkPolicy", networkPolicy={"enabled": True, "metricsFrom": peers})
    assert policy["spec"]["ingress"] == [{"from": peers, "ports": [{"port": "metrics", "protocol": "TCP"}]}]
    assert policy["spec"]["podSelector"] == chart.one("DaemonSet")["spec"]["selector"]
    closed = chart.one("NetworkPolicy", networkPolicy={"enabled": True})
    assert closed["spec"]["policyTypes"] == ["Ingress"]
    assert "ingress" not in closed["spec"]  # nobody


def test_uninstall_check_has_an_account_of_its_own(chart: Chart) -> None:
    hooks = [item for item in chart.objects() if "helm.sh/hook" in item["metadata"].get("annotations", {})]
    assert {item["metadata"]["annotations"]["helm.sh/hook"] for item in hooks} == {"pre-delete"}
    by_kind = {item["kind"]: item for item in hooks}
    assert set(by_kind) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job"}
    assert by_kind["ClusterRole"]["rules"] == [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["list"]}
    ]
    for kind in set(by_kind) - {"Job"}:
        notes = by_kind[kind]["metadata"]["annotations"]
        assert {"hook-succeeded", "hook-failed"} <= set(notes["helm.sh/hook-delete-policy"].split(","))
        assert int(notes["helm.sh/hook-weight"]) < int(by_kind["Job"]["metadata"]["annotations"]["helm.sh/hook-weight"])
    job = by_kind["Job"]["spec"]
    pod = job["template"]["spec"]
    assert job["backoffLimit"] == 0
    assert pod["serviceAccountName"] == by_kind["ServiceAccount"]["metadata"]["name"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["args"] == ["uninstall-check"]
    assert not [item for item in chart.objects(uninstall={"check": False}) if item in hooks]
    longer = [item for item in chart.objects(uninstall={"timeoutSeconds": 600}) if item["kind"] == "Job"]
    assert longer[0]["spec"]["activeDeadlineSeconds"] == 600


# Refusals --------------------------------------------------------------------------------------


def keys(value: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths of all values; maps that are empty by default are free."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += keys(item, (*path, key))
    return found


QUANTITIES = {("resources", *rest) for rest in (("requests", "cpu"), ("requests", "memory"), ("limits", "memory"))}
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


@pytest.mark.parametrize("path", keys(DEFAULTS), ids=".".join)
def test_bc121_misspelt_value_is_refused(chart: Chart, path: tuple[str, ...]) -> None:
    *outer, last = path
    values: Any = DEFAULTS
    for step in path:
        values = values[step]
    for step in reversed((*outer, last + "z")):
        values = {step: values}
    assert f"'{last}z' not allowed" in chart.refusal(**values)


@pytest.mark.parametrize("path", keys(DEFAULTS), ids=".".join)
def test_value_of_a_wrong_type_is_refused(chart: Chart, path: tuple[str, ...]) -> None:
    default: Any = DEFAULTS
    for step in path:
        default = default[step]
    values: Any = 7 if isinstance(default, str | dict | list | bool) else "seven"
    if path in QUANTITIES | {("offer", "chipsWithCores")}:
        values = ["these may be a number"]
    for step in reversed(path):
        values = {step: values}
    assert f"at '/{'/'.join(path)}'" in chart.refusal(**values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"driverName": "Neuron"}, "at '/driverName'"),
        ({"driverName": "n" * 64}, "at '/driverName'"),
        ({"kubelet": {"root": "var/lib/kubelet"}}, "at '/kubelet/root'"),
        ({"kubelet": {"root": "/var/lib/kubelet/"}}, "at '/kubelet/root'"),
        ({"image": {"repository": "a:b"}}, "at '/image/repository'"),
        ({"image": {"digest": "sha256:12"}}, "at '/image/digest'"),
        ({"image": {"pullPolicy": "Sometimes"}}, "'Always', 'IfNotPresent', 'Never'"),
        ({"resources": {"limits": {"cpu": "1"}}}, "'cpu' not allowed"),
        ({"rollout": {"maxSurge": 0}}, "at '/rollout/maxSurge'"),
        ({"rollout": {"maxSurge": "0%"}}, "at '/rollout/maxSurge'"),
        ({"health": {"port": 70000}}, "at '/health/port'"),
        ({"settings": {"prepareWait": 36}}, "at '/settings/prepareWait'"),
        ({"hardware": {"lnc": 3}}, "at '/hardware/lnc'"),
        ({"settings": {"granularityWithoutCounters": "both"}}, "'chip', 'core'"),
        ({"coexistence": {"policy": "off"}}, "'refuse', 'warn', 'ignore'"),
        ({"classes": {"cores": [1, 1]}}, "at '/classes/cores'"),
        ({"classes": {"cores": [0]}}, "at '/classes/cores/0'"),
        ({"podLabels": {"app.kubernetes.io/name": "x"}}, "finds its pods by the label app.kubernetes.io/name"),
        ({"nodes": {"tolerations": [{"keys": "x"}]}}, "'keys' not allowed"),
        ({"hardware": {"sysfsRoot": "/m/sys"}}, "name the folder that has both in hardware.hostPath"),
        ({"hardware": {"hostPath": "/other", "sysfsRoot": "/m/sys"}}, "/m/sys is not below hardware.hostPath /other"),
        ({"metrics": {"enabled": False, "podMonitor": {"enabled": True}}}, "there is nothing to scrape"),
        ({"metrics": {"port": 51515}}, "metrics.port and health.port are both 51515"),
        ({"classes": {"extendedResourceNames": {"neuron-gpu": "a.example/b"}}}, "is no class of classes.cores"),
        (
            {"classes": {"extendedResourceNames": {"neuron-chip": "a.example/b", "neuron-core": "a.example/b"}}},
            "a name means one class",
        ),
    ],
)
def test_bad_value_is_refused_with_its_place(chart: Chart, values: Object, text: str) -> None:
    assert text in chart.refusal(**values)


def test_old_cluster_is_refused(chart: Chart) -> None:
    assert "1.34.0" in chart.refusal("--kube-version", "1.33.9")


def test_extended_names_need_a_server_that_keeps_them(chart: Chart) -> None:
    values = {"classes": {"extendedResourceNames": {"neuron-chip": "aws.amazon.com/neuron"}}}
    assert "need Kubernetes 1.36 or later" in chart.refusal("--kube-version", "1.35.4", **values)


def test_distributions_versions_are_taken(chart: Chart) -> None:
    assert chart.text("--kube-version", "v1.34.2-eks-abcdef")


def test_chart_as_a_part_of_another(chart: Chart) -> None:
    """helm puts `global` into the values of a subchart."""
    assert chart.text(**{"global": {"region": "x"}})


# What is made from the chart -------------------------------------------------------------------


def test_readme_and_manifests_are_up_to_date(helm: Path) -> None:
    command = [sys.executable, str(ROOT / "deploy" / "generate.py"), "--check", "--helm", str(helm)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_manifests_are_the_charts_objects(chart: Chart) -> None:
    text = (ROOT / "deploy" / "manifests" / "coreslice.yaml").read_text()
    raw = [item for item in yaml.safe_load_all(text) if item]
    assert raw == chart.objects("--no-hooks")


def test_manifests_with_their_namespace(chart: Chart, kubectl: Path) -> None:
    """As users apply them."""
    done = subprocess.run(
        [str(kubectl), "kustomize", str(ROOT / "deploy" / "manifests")], capture_output=True, text=True, check=True
    )
    made = [item for item in yaml.safe_load_all(done.stdout) if item]
    namespaces = [item for item in made if item["kind"] == "Namespace"]
    assert [item["metadata"]["name"] for item in namespaces] == ["coreslice"]
    rest = [json.dumps(item, sort_keys=True) for item in made if item not in namespaces]
    assert sorted(rest) == sorted(json.dumps(item, sort_keys=True) for item in chart.objects("--no-hooks"))


def test_every_value_of_awss_chart_is_in_the_table() -> None:
    rows = [row.split("|")[1:3] for row in (CHART / "AWS-VALUES.md").read_text().splitlines() if row.startswith("| `")]
    patterns = [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]
    names = [name for name in (HERE / "aws_values.txt").read_text().splitlines() if not name.startswith("#")]
    assert len(names) > 150
    assert [name for name in names if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    own = {".".join(path) for path in keys(DEFAULTS)}
    given = {name for row in rows for name in re.findall(r"`([a-zA-Z]+(?:\.[a-zA-Z]+)*)`", row[1])}
    assert given - own == {"draDriver"}  # where a row points at another; else at a value of ours
