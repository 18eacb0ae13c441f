"""Machines as trees, and a reader that is told where they are."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.neuron.machine import Machine
from dra_driver.neuron.sysfs import read_machine
from dra_driver.simulator.machines import MachinePaths, make_machine

Read = Callable[[MachinePaths], Machine]


@pytest.fixture
def one(tmp_path: Path) -> MachinePaths:
    """A trn1.2xlarge: one chip, two cores."""
    return make_machine("trn1.2xlarge", tmp_path / "one")


@pytest.fixture
def torus(tmp_path: Path) -> MachinePaths:
    """A trn2.48xlarge, without its counters: sixteen chips of eight cores."""
    return make_machine("trn2.48xlarge", tmp_path / "torus", stats=False)


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
