"""Builders of the API objects that scenarios are made of. Plain dicts, v1."""

from collections.abc import Mapping, Sequence
from typing import Any

from testbed.images import BUSYBOX

Object = dict[str, Any]

# What a container sees of its grant: its environment and its Neuron nodes, then a mark.
SHOW = """env | sort
for node in /dev/neuron*; do [ -e "$node" ] && stat -c 'NODE %n %t:%T %a' "$node"; done
echo SHOWN"""
STAY = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done"


def container(
    name: str = "main",
    *,
    claims: Sequence[str | tuple[str, str]] = (),
    resources: Mapping[str, int] | None = None,
    env: Mapping[str, str] | None = None,
    stays: bool = True,
    **more: Any,
) -> Object:
    """A container that prints what it sees and stays (or ends).

    ``claims``: names from the pod's ``claims``, or (name, request) for one request of it.
    ``resources``: extended resources by name, as limits.
    """
    named = [{"name": item} if isinstance(item, str) else {"name": item[0], "request": item[1]} for item in claims]
    asked: Object = {"claims": named} if named else {}
    if resources:
        asked["limits"] = {key: str(value) for key, value in resources.items()}
    return {
        "name": name,
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", SHOW + "\n" + (STAY if stays else "")],
        "env": [{"name": key, "value": value} for key, value in (env or {}).items()],
        "resources": asked,
        **more,
    }


def pod(
    name: str,
    *containers: Object,
    claims: Mapping[str, str] | None = None,
    init: Sequence[Object] = (),
    **spec: Any,
) -> Object:
    """A pod. ``claims``: name in the pod -> ``template/<name>`` or ``claim/<name>``."""
    fields = {"template": "resourceClaimTemplateName", "claim": "resourceClaimName"}
    wanted = []
    for key, source in (claims or {}).items():
        kind, _, target = source.partition("/")
        wanted.append({"name": key, fields[kind]: target})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "containers": list(containers or (container(),)),
            "initContainers": list(init),
            "resourceClaims": wanted,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            **spec,
        },
    }


def claim_spec(requests: Mapping[str, str]) -> Object:
    """Requests by name, each one device of the class."""
    return {
        "devices": {
            "requests": [
                {"name": name, "exactly": {"deviceClassName": device_class}} for name, device_class in requests.items()
            ]
        }
    }


def claim(name: str, **requests: str) -> Object:
    """A claim that a user makes: ``claim("shared", r="neuron-core")``."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": claim_spec(requests),
    }


def template(name: str, **requests: str) -> Object:
    """A claim template: ``template("one-core", r="neuron-core")``."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": claim_spec(requests)},
    }


def device_class(name: str, expression: str, *, extended: str = "") -> Object:
    """A class of one CEL selector; ``extended`` is its extended resource name."""
    spec: Object = {"selectors": [{"cel": {"expression": expression}}]}
    if extended:
        spec["extendedResourceName"] = extended
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": spec,
    }
