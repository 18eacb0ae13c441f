"""The rules for a slice's metadata when it is created; what the server fills in itself is ignored."""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.inventory.lint import names
from dra_driver.inventory.lint.findings import At

Decoded = Mapping[str, Any]
ANNOTATION_BYTES = 256 * 1024
_GENERATED = 58  # characters that are left of generateName; five random ones follow
_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_OWNER = ("apiVersion", "kind", "name", "uid")


def check(at: At, found: Decoded) -> None:
    """A decoded ObjectMeta."""
    _names(at, found.get("name", ""), found.get("generateName", ""))
    for key, value in found.get("labels", {}).items():
        names.label_key(at["labels"][key], key)
        names.label_value(at["labels"][key], value)
    _annotations(at["annotations"], found.get("annotations", {}))
    _owners(at["ownerReferences"], found.get("ownerReferences", []))
    _finalizers(at["finalizers"], found.get("finalizers", []))


def _names(at: At, name: str, generate: str) -> None:
    if not name and not generate:
        at["name"].refuse("required", "name or generateName is required")
    if generate:
        masked = f"{generate[:-2]}a" if len(generate) > 1 and generate.endswith("-") else generate
        names.dns_subdomain(at["generateName"], masked)
    if generate or name:
        names.dns_subdomain(at["name"], name or f"{generate[:_GENERATED]}x")


def _annotations(at: At, found: Decoded) -> None:
    for key in found:
        names.label_key(at[key], key.lower())
    if sum(names.size(text) for pair in found.items() for text in pair) > ANNOTATION_BYTES:
        at.refuse("annotations-size", f"more than {ANNOTATION_BYTES} bytes in all")


def _owners(at: At, owners: Sequence[Decoded]) -> None:
    for index, owner in enumerate(owners):
        for name in (name for name in _OWNER if not owner.get(name)):
            at[index][name].refuse("required", "must not be empty")
        version = owner.get("apiVersion", "")
        if version and (version.count("/") > 1 or version.endswith("/")):
            at[index]["apiVersion"].refuse("owner-version", f"{version!r} isn't [<group>/]<version>")
        if (version, owner.get("kind")) == ("v1", "Event"):
            at[index].refuse("owner-event", "an Event can't own anything")
    if sum(owner.get("controller", False) for owner in owners) > 1:
        at.refuse("owner-controller", "only one owner may be the controller")


def _finalizers(at: At, finalizers: Sequence[str]) -> None:
    for index, name in enumerate(finalizers):
        names.label_key(at[index], name)
        if "/" not in name and name not in _FINALIZERS:
            at[index].refuse("finalizer", f"{name!r} is neither a standard finalizer nor fully qualified")
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        at.refuse("finalizer", "orphan and foregroundDeletion exclude each other")
