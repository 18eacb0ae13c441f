"""What the daemon costs to start and to keep, and what it must not load. Figures go into the report's properties."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.contract.driver.conftest import DRIVER, Rig, eventually

RSS_BUDGET_MIB = 90
CPU_BUDGET_S = 2.0
# Nicer output, tests, and what the typed Kubernetes client would cost: 600 modules and half a second.
TYPED = ("kubernetes.client.models.v1", "kubernetes.client.api.")
FORBIDDEN = ("rich.", "cel.", "dra_driver.simulator.", "dra_driver.legacy.", *TYPED)
# The command, which at its end writes down what was imported.
TELLING = """
import atexit, pathlib, sys
listed = pathlib.Path(sys.argv.pop(1))
atexit.register(lambda: listed.write_text("\\n".join(sys.modules)))
from dra_driver.cli.main import main
sys.exit(main())
"""


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[0]) / 1024


def test_start_and_memory_stay_within_budget(
    rig: Rig, record_testsuite_property: Callable[[str, object], None]
) -> None:
    pid = rig.launch().pid
    rig.kubelet.wait_registered(DRIVER)
    registered = cpu_seconds(pid)
    rig.wait_ready()
    for number in range(50):
        rig.prepare(ref := rig.core(f"c{number}"))
        rig.unprepare(ref)
    resident = resident_mib(pid)
    record_testsuite_property("cpu_seconds_to_registered", registered)
    record_testsuite_property("resident_mib_after_50_claims", round(resident, 1))
    assert 0 < registered <= CPU_BUDGET_S
    assert 0 < resident <= RSS_BUDGET_MIB


def test_daemon_loads_neither_simulator_nor_typed_client_nor_niceties(rig: Rig) -> None:
    """Of the whole process, from its start through a claim: lazy imports count too."""
    listed = rig.paths.root / "modules"
    arguments = rig.build()._command[3:]
    with subprocess.Popen([sys.executable, "-c", TELLING, listed, *arguments], stderr=subprocess.DEVNULL) as process:
        try:
            rig.kubelet.wait_registered(DRIVER)
            eventually(lambda: len(rig.slices()) == 2, "slices")
            rig.prepare(ref := rig.core("a"))
            rig.unprepare(ref)
        finally:
            process.terminate()
            assert process.wait(10) == 0
    modules = set(listed.read_text().split())
    assert {"grpc", "kubernetes.config", "dra_driver.driver", "dra_driver.cli.driver"} <= modules
    assert sorted(name for name in modules if f"{name}.".startswith(FORBIDDEN)) == []
    others = {name for name in modules if name.startswith("dra_driver.cli.")} - {"dra_driver.cli.main"}
    assert others == {"dra_driver.cli.driver"}
