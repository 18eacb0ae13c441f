# ruff: noqa: INP001 -- a script beside what it reads
"""Generate the Python code of the kubelet's gRPC contracts.

`python proto/generate.py [OUT]` writes `dra_driver/kubelet/api/*` under OUT, by default the checkout itself.
Needs grpcio-tools and mypy-protobuf in the running interpreter's environment. The proto root is also the
Python package root, since generated imports are absolute; and each file's path is unique, since the
descriptor pool is keyed by it (upstream calls them all `api.proto`).
"""

import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent
SOURCES = sorted(ROOT.glob("dra_driver/kubelet/api/*.proto"))
KINDS = ("python", "grpc_python", "mypy", "mypy_grpc")


def generate(out: Path) -> None:
    """Write modules and type stubs of every `.proto` file under `out`; raises CalledProcessError."""
    out.mkdir(parents=True, exist_ok=True)
    scripts = Path(sysconfig.get_path("scripts"))
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}"),
            *(f"--plugin={name}={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")),
            *(f"--{kind}_out={out}" for kind in KINDS),
            *(str(source.relative_to(ROOT)) for source in SOURCES),
        ],
        cwd=ROOT,
        check=True,
    )


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent)
