"""Machines as trees, and a reader that is told where they are."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.neuron.catalogue import GIB, Size
from dra_driver.neuron.machine import Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.machines import MachinePaths, make_machine

Read = Callable[[MachinePaths], Machine]

# A torus of sixteen chips that know LNC 2; the order of links is the kernel driver's.
TORUS = Size(
    name="trn2.48xlarge",
    physical_cores=8,
    memory=96 * GIB,
    family="Trainium2",
    instance_family="Trn2",
    device_architecture="NDv3",
    core_architecture="NCv3",
    links=(
        *((12, 1, 3, 4), (0, 13, 5, 2), (14, 3, 1, 6), (2, 15, 7, 0)),
        *((8, 5, 7, 0), (4, 9, 1, 6), (10, 7, 5, 2), (6, 11, 3, 4)),
        *((4, 9, 11, 12), (8, 5, 13, 10), (6, 11, 9, 14), (10, 7, 15, 8)),
        *((0, 13, 15, 8), (12, 1, 9, 14), (2, 15, 13, 10), (14, 3, 11, 12)),
    ),
)


@pytest.fixture
def one(tmp_path: Path) -> MachinePaths:
    """A trn1.2xlarge: one chip, two cores."""
    return make_machine("trn1.2xlarge", tmp_path / "one")


@pytest.fixture
def torus(tmp_path: Path) -> MachinePaths:
    """Sixteen chips of eight cores."""
    return make_machine(TORUS, tmp_path / "torus")


@pytest.fixture
def read() -> Read:
    return lambda paths: read_machine(sysfs_root=paths.sysfs, proc_root=paths.proc)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into; pytest's own are closed to them."""
    folder = Path(tempfile.mkdtemp(prefix="coreslice-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def as_nobody() -> Iterator[Callable[[], None]]:
    """Gives up root for the rest of the test; does nothing for who isn't root."""

    def drop() -> None:
        if os.geteuid() == 0:
            os.seteuid(65534)

    yield drop
    if os.getuid() == 0:
        os.seteuid(0)
