"""Write the go.mod of one Kubernetes version: tests/go/kubernetes, or another folder beside it.

``k8s.io/kubernetes`` requires its staging modules at v0.0.0 and replaces them by
folders of its own tree, which a consumer of the module does not have. Each is
published separately as ``v0.<minor>.<patch>`` of the same code, so the test bed's
module replaces each by that. Usage: ``python pin_kubernetes.py v1.37.2``; then
``go mod tidy`` has run and go.mod and go.sum are ready to be committed. An older
minor is a folder of its own: ``python pin_kubernetes.py v1.34.4 kubernetes-1.34``.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

COMMANDS = ("kubelet", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl")
GO_MODULES = Path(__file__).parent


def upstream_go_mod(version: str) -> str:
    """The text of the go.mod of ``k8s.io/kubernetes`` at ``version`` (from the module cache)."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", f"k8s.io/kubernetes@{version}"],
        check=True,
        capture_output=True,
        text=True,
        cwd="/",
    )
    return Path(json.loads(done.stdout)["GoMod"]).read_text()


def render(version: str, upstream: str) -> str:
    """The test bed's go.mod: one require, one replace for each staging module, a tool line for each program."""
    staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging/", upstream, flags=re.MULTILINE)
    go = re.search(r"^go (\S+)$", upstream, flags=re.MULTILINE)
    if not staging or not go:
        raise SystemExit(f"go.mod of k8s.io/kubernetes {version}: no staging modules or no go line in it")
    published = "v0." + version.removeprefix("v1.")
    lines = [
        "module coreslice.dev/testbed/kubernetes",
        "",
        f"go {go[1]}",
        "",
        "godebug default=go" + ".".join(go[1].split(".")[:2]),
        "",
        f"require k8s.io/kubernetes {version}",
        "",
        "replace (",
        *(f"\t{name} => {name} {published}" for name in staging),
        ")",
        "",
        "tool (",
        *(f"\tk8s.io/kubernetes/cmd/{name}" for name in COMMANDS),
        ")",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    wanted = sys.argv[1]
    target = GO_MODULES / (sys.argv[2] if len(sys.argv) > 2 else "kubernetes")
    target.mkdir(exist_ok=True)
    (target / "go.mod").write_text(render(wanted, upstream_go_mod(wanted)))
    (target / "go.sum").unlink(missing_ok=True)
    subprocess.run(["go", "mod", "tidy"], check=True, cwd=target)
