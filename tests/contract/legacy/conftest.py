"""A device plugin and the simulated kubelet's device manager on real sockets."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.neuron.machine import Chip, Machine
from dra_driver.simulator.kubelet_devices import DeviceManager


def _machine(chips: int, cores: int) -> Machine:
    return Machine(
        tuple(
            Chip(index=index, major=243, minor=index, physical_cores=cores, neighbours=frozenset())
            for index in range(chips)
        )
    )


@pytest.fixture
def make_machine() -> Callable[[int, int], Machine]:
    return _machine


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, for the sake of the 107 bytes of a socket's path."""
    with tempfile.TemporaryDirectory(prefix="cs-", dir="/tmp") as path:
        yield Path(path)


@pytest.fixture
def manager(folder: Path) -> Iterator[DeviceManager]:
    manager = DeviceManager(folder)
    manager.start()
    yield manager
    manager.stop()
