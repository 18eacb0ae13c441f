# ruff: noqa: INP001, T201 -- a script
"""Makes what is checked in but follows from the chart: its README and the raw manifests.

    python deploy/generate.py [--helm HELM]     writes both
    python deploy/generate.py --check           exit status 1 and the names of the files that are out of date

The README is README.md.in with the table of values in it; the table comes from values.yaml, whose comments
are the descriptions. The manifests are what `helm template` makes of the defaults, hooks left out.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
CHART = HERE / "helm" / "coreslice"
MANIFESTS = HERE / "manifests" / "coreslice.yaml"
NAMESPACE = "coreslice"
KUBE_VERSION = ("--kube-version", "1.37.0")  # so that every helm renders the same
LONGEST_DEFAULT = 60  # characters; a longer list is counted instead


def main(argv: list[str] | None = None) -> int:
    """Write, or compare; see above."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--helm", default="helm", help="the helm binary")
    parser.add_argument("--check", action="store_true", help="write nothing, say what is out of date")
    options = parser.parse_args(argv)
    made = {CHART / "README.md": readme(), MANIFESTS: manifests(options.helm)}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if options.check:
            print(f"{path.relative_to(HERE.parent)} is out of date; run: python deploy/generate.py", file=sys.stderr)
        else:
            path.write_text(made[path])
    return 1 if options.check and stale else 0


def readme() -> str:
    """The chart's README."""
    rows = [f"| `{name}` | {shown(default)} | {text} |" for name, default, text in described()]
    table = "\n".join(["| value | default | what |", "| --- | --- | --- |", *rows])
    return (CHART / "README.md.in").read_text().replace("@VALUES@", table)


def manifests(helm: str) -> str:
    """Everything that the chart installs by default, for `kubectl apply`."""
    command = [helm, "template", "coreslice", str(CHART), "--namespace", NAMESPACE, "--no-hooks", *KUBE_VERSION]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return f"# Rendered from deploy/helm/coreslice with its default values by deploy/generate.py.\n{rendered}"


def described() -> Iterator[tuple[str, Any, str]]:
    """Name, default and description of every value. ValueError where one has no comment."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    values = yaml.safe_load("\n".join(lines))
    path: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in lines:
        text = line.strip()
        if text.startswith("#"):
            comment.append(text.removeprefix("#").strip())
            continue
        key, colon, rest = text.partition(":")
        if text and colon and not text.startswith("-"):
            indent = len(line) - len(line.lstrip())
            path = [(at, name) for at, name in path if at < indent] + [(indent, key)]
            name = ".".join(step for _, step in path)
            default = _at(values, name)
            if comment or rest.strip() or not isinstance(default, dict):
                if not comment:
                    raise ValueError(f"values.yaml: {name} has no comment")
                yield name, default, " ".join(comment)
        comment = []


def shown(default: Any) -> str:
    """A default as a cell of the table."""
    text = json.dumps(default)
    if isinstance(default, list) and len(text) > LONGEST_DEFAULT:
        return f"{len(default)} entries"
    return f"`{text}`"


def _at(values: Any, name: str) -> Any:
    for step in name.split("."):
        values = values[step]
    return values


if __name__ == "__main__":
    sys.exit(main())
