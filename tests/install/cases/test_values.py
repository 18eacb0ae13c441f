"""BC-121: a value that helm accepts does something. Each is given another than its default, and the render differs."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from testbed import binaries
from testbed.charts import CHART, Chart

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
# Values that can't be guessed from the default's type.
OTHERS: dict[str, Any] = {
    "driverName": "neuron.example.com",
    "image.repository": "registry.example.com/coreslice",
    "image.digest": "sha256:" + "0" * 64,
    "image.pullPolicy": "Always",
    "image.pullSecrets": [{"name": "s"}],
    "kubelet.root": "/data/kubelet",
    "kubelet.devicePlugins": "/data/device-plugins",
    "cdi.root": "/etc/cdi",
    "hardware.sysfsRoot": "/m/sys",
    "hardware.procRoot": "/m/proc",
    "hardware.hostPath": "/m",
    "hardware.lnc": 1,
    "hardware.lncFolder": "/opt/aws/neuron",
    "nodes.instanceTypes": ["trn1.2xlarge"],
    "nodes.extraTerms": [{"matchExpressions": [{"key": "a.example/b", "operator": "Exists"}]}],
    "nodes.selector": {"a": "b"},
    "nodes.tolerations": [{"key": "a", "operator": "Exists"}],
    "coexistence.policy": "warn",
    "coexistence.legacyResourceNames": ["a.example/b"],
    "coexistence.otherDrivers": ["a.example"],
    "offer.types": ["chip"],
    "offer.coreCounts": [1],
    "offer.chipCounts": [4],
    "offer.chipsWithCores": 2,
    "offer.runs": "on",
    "settings.granularityWithoutCounters": "core",
    "log.level": "DEBUG",
    "log.format": "text",
    "metrics.podMonitor.labels": {"a": "b"},
    "metrics.podMonitor.interval": "10s",
    "listenAddress": "[::]",
    "networkPolicy.metricsFrom": [{"podSelector": {}}],
    "resources.requests.cpu": "30m",
    "resources.requests.memory": "65Mi",
    "resources.limits.memory": "129Mi",
    "podAnnotations": {"a": "b"},
    "podLabels": {"a": "b"},
    "serviceAccount.name": "other",
    "serviceAccount.annotations": {"a": "b"},
    "classes.cores": [1],
    "classes.chips": [1],
    "classes.extendedResourceNames": {"neuron-chip": "aws.amazon.com/neuron"},
}
# What must be on beside a value, so that there is something for it to change.
BESIDE: dict[str, dict[str, Any]] = {
    "hardware.sysfsRoot": {"hardware": {"hostPath": "/m"}},
    "hardware.procRoot": {"hardware": {"hostPath": "/m"}},
    "metrics.podMonitor.labels": {"metrics": {"podMonitor": {"enabled": True}}},
    "metrics.podMonitor.interval": {"metrics": {"podMonitor": {"enabled": True}}},
    "networkPolicy.metricsFrom": {"networkPolicy": {"enabled": True}},
}


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each value that isn't a group of values, with its dotted name."""
    if path and (not isinstance(value, dict) or not value):
        yield ".".join(path), value
        return
    for key, item in value.items():
        yield from leaves(item, (*path, key))


def another(name: str, default: Any) -> Any:
    if name in OTHERS:
        return OTHERS[name]
    match default:
        case bool():
            return not default
        case int() | float():
            return default + 1
        case str():
            return f"{default}x"
    raise AssertionError(f"say in OTHERS what {name} may be")


def nested(name: str, value: Any) -> dict[str, Any]:
    for key in reversed(name.split(".")):
        value = {key: value}
    return dict(value)


def merged(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    both = {key: merged(a[key], b[key]) if isinstance(b[key], dict) else b[key] for key in a.keys() & b.keys()}
    return {**a, **b, **both}


@pytest.fixture(scope="module")
def chart() -> Chart:
    """The chart by the real helm."""
    return Chart(binaries.build(binaries.helm())["helm"])


@pytest.fixture(scope="module")
def plain(chart: Chart) -> dict[str, str]:
    """Renders without the value in question, by what stands beside it."""
    return {str(beside): chart.text(**beside) for beside in ({}, *BESIDE.values())}


@pytest.mark.parametrize("name", [name for name, _ in leaves(DEFAULTS)])
def test_bc121_every_value_changes_what_is_rendered(chart: Chart, plain: dict[str, str], name: str) -> None:
    beside = BESIDE.get(name, {})
    default = dict(leaves(DEFAULTS))[name]
    value = another(name, default)
    assert value != default
    assert chart.text(**merged(beside, nested(name, value))) != plain[str(beside)]


def test_table_has_no_value_that_is_gone() -> None:
    assert set(OTHERS) | set(BESIDE) <= {name for name, _ in leaves(DEFAULTS)}
