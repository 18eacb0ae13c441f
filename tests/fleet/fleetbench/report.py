"""Results as a file of numbers and as tables to read."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
MACHINE = "a machine of 2 cores and 24 GiB, with etcd, API server, scheduler and load generator on it"
_COLUMNS = ("variant", "passes", "pods/s", "CPU ms/pod", "Filter ms/attempt", "bound")


def write(
    folder: Path, name: str, *, rows: Sequence[Row], raw: Sequence[Row], packing: Sequence[Row], setup: Row
) -> None:
    """`NAME.json` and `NAME.md`. No dates: a new run replaces an old one."""
    folder.mkdir(parents=True, exist_ok=True)
    text = {"setup": setup, "medians": rows, "packing": packing, "measurements": raw}
    (folder / f"{name}.json").write_text(json.dumps(text, indent=1) + "\n")
    (folder / f"{name}.md").write_text(markdown(rows, packing, setup))


def markdown(rows: Sequence[Row], packing: Sequence[Row], setup: Row) -> str:
    """A table for each workload and state: medians, ranges in brackets."""
    parts = ["# What the scheduler pays", _introduction(setup)]
    for workload, state in dict.fromkeys((row["workload"], row["state"]) for row in rows):
        chosen = [row for row in rows if (row["workload"], row["state"]) == (workload, state)]
        title = f"## {workload}, fleet {state}"
        parts.append(f"{title}\n\n{table(_COLUMNS, [_cells(row) for row in chosen])}")
    if packing:
        columns = ("variant", "scoring", "groups of four free", "possible")
        cells = [[str(row[key]) for key in ("variant", "scoring", "free", "possible")] for row in packing]
        parts.append(f"## Packing after churn\n\n{table(columns, cells)}")
    return "\n\n".join(parts) + "\n"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _introduction(setup: Row) -> str:
    note = " **A smoke test on a busy machine: these figures compare nothing.**" if setup["smoke"] else ""
    return (
        f"Kubernetes {setup['kubernetes']}, {setup['nodes']} nodes of {setup['size']} at LNC {setup['lnc']}, "
        f"on {MACHINE}. "
        f"No client limits. Pods are created while the scheduler is stopped, then time runs until the last is bound. "
        f"Medians of {setup['passes']} interleaved passes, ranges in brackets.{note}"
    )


def _cells(row: Row) -> list[str]:
    def shown(key: str) -> str:
        low, high = row[f"{key}_range"]
        spread = f" ({low:.3g}-{high:.3g})" if row["passes"] > 1 else ""
        return f"{row[key]:.3g}{spread}"

    figures = [shown(key) for key in ("pods_per_second", "cpu_ms_per_pod", "filter_ms_per_attempt")]
    return [row["variant"], str(row["passes"]), *figures, f"{row['bound']}/{row['pods']}"]
