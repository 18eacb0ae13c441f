"""Where a slice or a device is: node name, node selector or all nodes."""

from collections.abc import Mapping, Sequence
from typing import Any

from dra_driver.inventory.lint.findings import At
from dra_driver.inventory.lint.names import dns_subdomain, label_key, label_value

Decoded = Mapping[str, Any]


def chosen(at: At, found: Decoded, flags: Sequence[str]) -> list[str]:
    """The node-selection fields that count as set; `flags` are those that may only be true."""
    fields = []
    if "nodeName" in found:
        if found["nodeName"]:
            fields.append("nodeName")
            dns_subdomain(at["nodeName"], found["nodeName"])
        else:
            at["nodeName"].refuse("node-name-empty", "must be left out or not be empty")
    if "nodeSelector" in found:
        fields.append("nodeSelector")
        selector(at["nodeSelector"], found["nodeSelector"])
    for flag in (flag for flag in flags if flag in found):
        if found[flag]:
            fields.append(flag)
        else:
            at[flag].refuse("only-true", "must be left out or true")
    return fields


def selector(at: At, found: Decoded) -> None:
    """A v1 NodeSelector."""
    terms = found.get("nodeSelectorTerms", [])
    at = at["nodeSelectorTerms"]
    if not terms:
        at.refuse("node-selector-terms", "must have at least one term")
    for index, term in enumerate(terms):
        for name, rule in (("matchExpressions", _expression), ("matchFields", _field)):
            for number, requirement in enumerate(term.get(name, ())):
                rule(at[index][name][number], requirement)


def _expression(at: At, found: Decoded) -> None:
    operator, values = found.get("operator", ""), found.get("values", [])
    match operator:
        case "In" | "NotIn":
            good, wanted = bool(values), "values"
        case "Exists" | "DoesNotExist":
            good, wanted = not values, "no values"
        case "Gt" | "Lt":
            good, wanted = len(values) == 1, "one value"
        case _:
            good, wanted = True, ""
            at["operator"].refuse("node-selector-operator", f"{operator!r} isn't an operator of a node selector")
    if not good:
        at["values"].refuse("node-selector-values", f"operator {operator} needs {wanted}")
    label_key(at["key"], found.get("key", ""))
    for index, value in enumerate(values):
        label_value(at["values"][index], value)


def _field(at: At, found: Decoded) -> None:
    operator, values, key = found.get("operator", ""), found.get("values", []), found.get("key", "")
    if operator not in ("In", "NotIn"):
        at["operator"].refuse("node-selector-operator", f"{operator!r} isn't an operator for fields")
    elif len(values) != 1:
        at["values"].refuse("node-selector-values", f"operator {operator} needs one value for a field")
    if key != "metadata.name":
        at["key"].refuse("node-selector-key", f"{key!r} isn't a field: only metadata.name is")
        return
    for index, value in enumerate(values):
        dns_subdomain(at["values"][index], value)
