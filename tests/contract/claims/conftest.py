"""A node's claims on real files: machine, records, CDI directory; and calls as the kubelet makes them."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.ledger import Boot, Ledger
from dra_driver.claims.planning import Planning, Reader
from dra_driver.claims.refusals import Refusal
from dra_driver.claims.service import ClaimService, Hooks
from dra_driver.claims.specs import SpecDirectory
from dra_driver.claims.store import RecordStore
from dra_driver.hardware import NodeHardware
from dra_driver.kubelet.types import ClaimRef, Failed, Prepared
from dra_driver.lnc import NodeLnc
from dra_driver.neuron.catalogue import GIB, Size
from dra_driver.settings import Lnc
from dra_driver.simulator.container import ContainerView, see
from dra_driver.simulator.machines import MachinePaths, make_machine, put, reboot
from dra_driver.simulator.samples import DRIVER, POOL, Objects, ref

Obj = dict[str, Any]
ReadOnly = Callable[[Path], AbstractContextManager[None]]

# Four chips of two cores in a ring, so that grants over chips can be asked for.
FOUR = Size(
    name="inf2.24xlarge",
    physical_cores=2,
    memory=32 * GIB,
    family="Inferentia2",
    instance_family="Inf2",
    device_architecture="NDv3",
    core_architecture="NCv2",
    links=((3, 1), (0, 2), (1, 3), (2, 0)),
)
BTIME = 1_000_000_000


class Caller:
    """The kubelet's side of a call: it may give up, and has a deadline."""

    def __init__(self, remaining: float | None = 45.0) -> None:
        self.remaining = remaining
        self.given_up = threading.Event()

    def is_active(self) -> bool:
        return not self.given_up.is_set()

    def time_remaining(self) -> float | None:
        return self.remaining


class Node:
    """One node; `start` makes an instance of what serves claims, as a restarted process would."""

    def __init__(self, root: Path, machine: MachinePaths, api: Reader) -> None:
        self.machine = machine
        put(self.machine.proc / "stat", f"cpu 0\nbtime {BTIME}\n")
        self.api = api
        self.state = root / "state"
        self.cdi = root / "cdi"
        self.refusals: list[tuple[str, str]] = []
        self.changes = 0
        self.elsewhere = ""  # who holds chips beside the records
        self._stores: list[RecordStore] = []
        self.start()

    def start(self, *, wait: float = 0.0, waiting: int = 4) -> ClaimService:
        """Another instance beside those that are there, its CDI directory brought in step."""
        self.store = RecordStore(self.state)
        self._stores.append(self.store)
        lnc = NodeLnc(self.store, setting=Lnc.AUTO, file=self.state / "none")
        self.hardware = NodeHardware(sysfs_root=self.machine.sysfs, proc_root=self.machine.proc, lnc=lnc.in_force)
        specs = SpecDirectory(self.cdi, driver=DRIVER)
        boot = Boot.read(self.machine.proc)
        self.ledger = Ledger(self.store, specs, self.hardware, boot, elsewhere=lambda: self.elsewhere)
        self.ledger.restore()
        self.service = ClaimService(
            planning=Planning(self.api, DRIVER, POOL),
            ledger=self.ledger,
            hardware=self.hardware,
            hooks=Hooks(self._refused, self._changed),
            wait=wait,
            waiting=waiting,
        )
        return self.service

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def _refused(self, claim: ClaimRef, refusal: Refusal) -> None:
        self.refusals.append((claim.name, refusal.reason.code))

    def _changed(self) -> None:
        self.changes += 1

    def reboot(self, boot_id: str = "next", *, major: int = 240) -> None:
        """The machine comes up again: another boot id, another major, nothing in /var/run."""
        reboot(self.machine, boot_id, major=major)
        for path in self.cdi.glob("*"):
            path.unlink()

    def prepare(self, *claims: Obj, call: Caller | None = None) -> dict[str, Prepared | Failed]:
        """One call for these claims; answers by claim name."""
        refs = [ref(one) for one in claims]
        answers = self.service.prepare(refs, call or Caller())
        assert answers.keys() == {one.uid for one in refs}
        return {one.name: answers[one.uid] for one in refs}

    def prepared(self, *claims: Obj) -> dict[str, Prepared]:
        """The same, where each has to be prepared."""
        answers = self.prepare(*claims)
        found = {name: answer for name, answer in answers.items() if isinstance(answer, Prepared)}
        assert found.keys() == answers.keys(), answers
        return found

    def refused(self, claim: Obj, *others: Obj, call: Caller | None = None) -> str:
        """Why the first claim of a call isn't prepared."""
        answer = self.prepare(claim, *others, call=call)[claim["metadata"]["name"]]
        assert isinstance(answer, Failed), answer
        return answer.error

    def unprepare(self, *claims: Obj) -> dict[str, str]:
        """One call; texts of errors by claim name, empty for success."""
        refs = [ref(one) for one in claims]
        answers = self.service.unprepare(refs)
        assert answers.keys() == {one.uid for one in refs}
        return {one.name: answer.error if (answer := answers[one.uid]) else "" for one in refs}

    def see(self, *answers: Prepared) -> ContainerView:
        """What a container sees that gets all devices of these answers."""
        ids = [cdi_id for answer in answers for device in answer.devices for cdi_id in device.cdi_ids]
        return see(ids, cdi_dirs=[self.cdi])

    def record(self, claim: Obj) -> Path:
        return self.state / f"{claim['metadata']['uid']}.record"

    def spec(self, claim: Obj) -> Path:
        return self.cdi / f"{DRIVER}-claim_{claim['metadata']['uid']}.json"

    def files(self) -> list[str]:
        """What there is of records and CDI files, leftovers included."""
        state = [path.name for path in self.state.iterdir() if path.name != "lock"]
        return sorted([*state, *(path.name for path in self.cdi.glob("*"))])


@pytest.fixture
def api() -> Objects:
    return Objects()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine's tree, made once."""
    root = tmp_path_factory.mktemp("machine") / "tree"
    make_machine(FOUR, root)
    return root


@pytest.fixture
def machine(template: Path, tmp_path: Path) -> MachinePaths:
    """A tree of its own out of links: whoever changes a file puts another in its place."""
    root = tmp_path / "machine"
    shutil.copytree(template, root, symlinks=True, copy_function=os.link)
    return MachinePaths(root / "sys", root / "proc", root / "dev")


@pytest.fixture
def node(tmp_path: Path, machine: MachinePaths, api: Objects) -> Iterator[Node]:
    one = Node(tmp_path, machine, api)
    yield one
    one.close()


@pytest.fixture
def caller() -> Callable[..., Caller]:
    return Caller


@pytest.fixture
def small() -> Iterator[Callable[..., None]]:
    """Puts a small tmpfs in a folder's place."""
    mounted: list[Path] = []

    def mount(path: Path, size: str) -> None:
        path.mkdir(exist_ok=True)
        _as_root("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path)
        mounted.append(path)

    yield mount
    for path in mounted:
        _as_root("umount", "--lazy", path)  # the lock file is open until the node is closed


@pytest.fixture
def read_only() -> ReadOnly:
    """Makes a folder read-only for a while, for root too; what is open there stays open."""

    @contextmanager
    def within(path: Path) -> Iterator[None]:
        _as_root("mount", "--bind", path, path)
        try:
            _as_root("mount", "-o", "remount,bind,ro", path)
            yield
        finally:
            _as_root("umount", "--lazy", path)

    return within


def _as_root(*command: str | Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.stderr}"
