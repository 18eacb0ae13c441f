"""`coreslice slices --lint FILE`: what an API server would say to any slices, and what harm they would do."""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dra_driver.errors import CoresliceError
from dra_driver.inventory.attributes import COMMON
from dra_driver.inventory.lint.findings import Finding, Severity
from dra_driver.inventory.lint.linter import lint, slices

GOOD, FAILED, WRONG_USE = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds `--lint` and what belongs to it."""
    parser.add_argument(
        "--lint", metavar="FILE", help="judge the ResourceSlices in a YAML or JSON file instead; - reads stdin"
    )
    parser.add_argument(
        "--feature-gates", type=_gates, metavar="G=true,…", default={}, help="of the server, where they aren't defaults"
    )


def run(args: argparse.Namespace) -> int:
    """Prints one finding a line: 0 without a finding, 1 with one or without a slice, 2 for a bad file or gate."""
    try:
        found = list(slices(_load(args.lint)))
        common = {args.driver_name: COMMON}
        findings = lint(found, minor=args.server_version, features=args.feature_gates, common=common)
    except CoresliceError as error:
        print(f"coreslice slices --lint: {error}", file=sys.stderr)
        return WRONG_USE
    if not found:
        print(f"coreslice slices --lint: no ResourceSlice in {args.lint}", file=sys.stderr)
        return FAILED
    for finding in findings:
        print(finding)
    print(_verdict(len(found), args.server_version, findings), file=sys.stderr)
    return FAILED if findings else GOOD


def _verdict(count: int, minor: int, findings: list[Finding]) -> str:
    numbers = {kind: sum(finding.severity is kind for finding in findings) for kind in Severity}
    told = ", ".join(f"{number} {kind}" for kind, number in numbers.items() if number)
    return f"{count} slice{'' if count == 1 else 's'} for Kubernetes 1.{minor}: {told or 'nothing to say'}"


def _gates(text: str) -> dict[str, bool]:
    gates = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        if value not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{part!r} is no GATE=true or GATE=false")
        gates[name] = value == "true"
    return gates


def _load(name: str) -> list[Any]:
    """All documents of a file."""
    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CoresliceError(f"{name} can't be read: {error}") from error
    try:
        return [json.loads(text)]
    except json.JSONDecodeError as error:
        return list(_yaml(name, text, error))


def _yaml(name: str, text: str, fault: Exception) -> Iterator[Any]:
    try:
        import yaml  # noqa: PLC0415 - an extra that the daemon's image doesn't have
    except ImportError as error:
        text = f"{name} isn't JSON ({fault}), and YAML needs PyYAML: install coreslice[demo]"
        raise CoresliceError(text) from error

    class Loader(yaml.SafeLoader):
        """Times stay text, as they do on their way to a server."""

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    try:
        yield from yaml.load_all(text, Loader=Loader)
    except yaml.YAMLError as error:
        raise CoresliceError(f"{name} is neither JSON nor YAML: {error}") from error
