"""The linter of ResourceSlices: every rule of resource.k8s.io/v1 by server minor, and harm that it allows.

Pure. Invariant: without a finding of severity `refused` the server of that minor stores a slice, and it
stores all of it but the fields with a finding of severity `dropped`. Tests hold this against the validation of
the real servers. Admission, quota and the size of the whole object are outside.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from dra_driver.inventory.lint import gates, metadata, pools, schema, spec
from dra_driver.inventory.lint.findings import At, Finding
from dra_driver.inventory.lint.server import Server, server

Wire = Mapping[str, Any]


def lint(
    objects: Iterable[Any],
    *,
    minor: int,
    features: Mapping[str, bool] | None = None,
    common: Mapping[str, Collection[str]] | None = None,
) -> list[Finding]:
    """Findings on all ResourceSlices among `objects`; `List`s are looked into, other kinds passed over.

    `minor`: 37 stands for 1.37. `features`: feature gates that differ from the minor's defaults. `common`:
    by driver the attributes that each of its devices must have, since selectors read them. Raises
    CoresliceError for a minor or gate that doesn't exist.
    """
    judge, findings, decoded = server(minor, features), list[Finding](), list[pools.Named]()
    for index, found in enumerate(slices(objects)):
        name, stored = check(found, judge, findings, index)
        if stored is not None:
            decoded.append((name, stored))
    pools.check(decoded, judge, findings, common or {})
    return findings


def slices(objects: Iterable[Any]) -> Iterator[Wire]:
    """The ResourceSlices among objects and in lists of them, in their order."""
    for found in objects:
        kind = found.get("kind") if isinstance(found, Mapping) else None
        if kind == "ResourceSlice":
            yield found
        elif isinstance(kind, str) and kind.endswith("List"):
            yield from slices(found.get("items") or ())


def check(found: Wire, judge: Server, sink: list[Finding], index: int = 0) -> tuple[str, Wire | None]:
    """Judges one slice by itself; its name, and its decoded spec without what is dropped, None for another version."""
    name = _name(found, index)
    at = At(judge, name, sink)
    if found.get("apiVersion") != "resource.k8s.io/v1":
        text = f"only resource.k8s.io/v1 is judged, not {found.get('apiVersion')!r}"
        at["apiVersion"].refuse("api-version", text)
        return name, None
    decoded = schema.decode(at, schema.SLICE, found)
    stored: dict[str, Any] = decoded.get("spec", {})
    gates.drop(at["spec"], stored)
    metadata.check(at["metadata"], decoded.get("metadata", {}))
    spec.check(at["spec"], stored)
    return name, stored


def _name(found: Wire, index: int) -> str:
    fields = found.get("metadata")
    name = fields.get("name") if isinstance(fields, Mapping) else None
    return name if isinstance(name, str) and name else f"#{index}"
