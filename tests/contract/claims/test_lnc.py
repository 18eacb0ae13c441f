"""The LNC in force on real files: who may change it, when, and what becomes of claims that were planned before."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.lnc import FILE, InForce, decode, encode, load
from dra_driver.claims.records import RecordError
from dra_driver.claims.refusals import Reason
from dra_driver.claims.settling import settle
from dra_driver.claims.store import RecordStore
from dra_driver.lnc import NodeLnc
from dra_driver.neuron.catalogue import SIZES
from dra_driver.neuron.machine import Machine
from dra_driver.settings import Lnc
from dra_driver.simulator.machines import make_machine, put
from dra_driver.simulator.nominal import nominal
from dra_driver.simulator.samples import Objects, claim
from tests.contract.claims.conftest import Node, ReadOnly

TRN2, TRN1 = nominal(SIZES["trn2.3xlarge"]), nominal(SIZES["trn1.2xlarge"])
NOTHING = "/nowhere/logical_nc_config"


@pytest.fixture
def trn2(tmp_path: Path, api: Objects) -> Iterator[Node]:
    node = Node(tmp_path, make_machine("trn2.3xlarge", tmp_path / "trn2", stats=False), api)
    yield node
    node.close()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator["Stores"]:
    with ExitStack() as open_stores:
        yield Stores(tmp_path / "state", open_stores)


class Stores:
    """Instances of the driver on one state directory, as far as LNC goes."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder = folder
        self._opened = opened

    def instance(self, setting: Lnc = Lnc.AUTO, file: str | Path = NOTHING) -> NodeLnc:
        store = RecordStore(self.folder)
        self._opened.callback(store.close)
        return NodeLnc(store, setting=setting, file=Path(file))

    def started(self, setting: Lnc = Lnc.AUTO, file: str | Path = NOTHING) -> NodeLnc:
        found = self.instance(setting, file)
        found.look(TRN2)
        return found

    @property
    def value(self) -> int | None:
        state = load(self.folder)
        return state.value if state else None


# The file


@pytest.mark.parametrize("state", [InForce(1), InForce(2, 7)])
def test_what_is_written_is_read(state: InForce) -> None:
    assert decode(encode(state)) == state


@pytest.mark.parametrize("content", [b"", b"2", encode(InForce(2))[:-5], encode(InForce(2)).replace(b"2", b"1", 1)])
def test_what_was_cut_off_or_altered_is_not_read(content: bytes) -> None:
    with pytest.raises(RecordError):
        decode(content)


def test_another_kind_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="release"):
        decode(encode(InForce(3)))
    assert load(tmp_path) is None


# Whose wish it is


def test_the_wish_is_in_force_at_once_where_nothing_is_prepared(stores: Stores) -> None:
    node = stores.instance(Lnc.ONE)
    assert (node.in_force(TRN2), stores.value) == (1, None)
    node.look(TRN2)
    assert (node.in_force(TRN2), node.wished(TRN2), stores.value) == (1, 1, 1)
    assert node.pending() == ""
    assert node.findings() == ()


@pytest.mark.parametrize("machine", [TRN1, Machine()])
def test_hardware_that_knows_one_has_no_file(stores: Stores, machine: Machine, tmp_path: Path) -> None:
    put(tmp_path / "f", "rubbish")
    node = stores.instance(Lnc.AUTO, tmp_path / "f")
    node.look(machine)
    assert (node.in_force(machine), node.wished(machine), stores.value) == (1, 1, None)
    assert node.findings() == ()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NEURON_LOGICAL_NC_CONFIG=1", 1),
        ("NEURON_LOGICAL_NC_CONFIG=2\n", 2),
        (" NEURON_LOGICAL_NC_CONFIG = 1 \n\n", 1),
    ],
)
def test_the_file_is_read(stores: Stores, tmp_path: Path, text: str, value: int) -> None:
    put(tmp_path / "f", text)
    assert stores.started(Lnc.AUTO, tmp_path / "f").in_force(TRN2) == value
    assert stores.value == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n",
        "1",
        "NEURON_LOGICAL_NC_CONFIG=",
        "NEURON_LOGICAL_NC_CONFIG=0",
        "NEURON_LOGICAL_NC_CONFIG=12",
        "NEURON_LOGICAL_NC_CONFIG=-1",
        "neuron_logical_nc_config=1",
        "NEURON_LOGICAL_NC_CONFIG=1\nNEURON_LOGICAL_NC_CONFIG=2\n",
        "NEURON_LOGICAL_NC_CONFIG=1" + " " * 10000 + "2",
    ],
)
def test_what_is_not_understood_is_told_and_wishes_for_nothing(stores: Stores, tmp_path: Path, text: str) -> None:
    file = tmp_path / "f"
    put(file, text)
    node = stores.started(Lnc.AUTO, file)
    assert node.in_force(TRN2) == 2
    assert [(each.reason, str(file) in each.text) for each in node.findings()] == [("LNCFileUnreadable", True)]
    put(file, "NEURON_LOGICAL_NC_CONFIG=1")
    node.look(TRN2)
    assert (node.in_force(TRN2), node.findings()) == (1, ())
    put(file, text)
    node.look(TRN2)
    assert node.in_force(TRN2) == 1, "the last value stays"
    assert node.pending() == ""


def test_a_folder_in_place_of_the_file_is_told(stores: Stores, tmp_path: Path) -> None:
    assert [each.reason for each in stores.started(Lnc.AUTO, tmp_path).findings()] == ["LNCFileUnreadable"]


def test_a_file_where_the_folder_should_be_is_none(stores: Stores, tmp_path: Path) -> None:
    put(tmp_path / "opt", "")
    assert stores.started(Lnc.AUTO, tmp_path / "opt/logical_nc_config").findings() == ()


# Several instances


def test_the_instance_that_started_last_decides(stores: Stores) -> None:
    old = stores.started(Lnc.TWO)
    new = stores.started(Lnc.ONE)
    assert stores.value == 1
    for _ in range(3):
        old.look(TRN2)
        new.look(TRN2)
        assert (old.in_force(TRN2), new.in_force(TRN2), stores.value) == (1, 1, 1)
    assert "LNC 2 is wished for" in old.pending()
    assert new.pending() == ""


def test_started_again_an_instance_decides_again(stores: Stores) -> None:
    stores.started(Lnc.TWO)
    stores.started(Lnc.ONE)
    assert stores.started(Lnc.TWO).in_force(TRN2) == 2


def test_without_a_change_nothing_is_written(stores: Stores) -> None:
    node = stores.started()
    before = (stores.folder / FILE).stat()
    node.look(TRN2)
    after = (stores.folder / FILE).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_full_disk_leaves_what_is_in_force(stores: Stores, read_only: ReadOnly) -> None:
    node = stores.started(Lnc.TWO)
    again = stores.instance(Lnc.ONE)
    with read_only(stores.folder):
        again.look(TRN2)
        assert (again.in_force(TRN2), stores.value) == (2, 2)
    again.look(TRN2)
    node.look(TRN2)
    assert (again.in_force(TRN2), node.in_force(TRN2)) == (1, 1)
    assert sorted(path.name for path in stores.folder.iterdir()) == [FILE, "lock"]


# With claims


def made(api: Objects, name: str, device: str) -> dict[str, Any]:
    """An allocated claim of a pod's own."""
    found = claim(name, device, owner=f"pod-of-{name}")
    api.put(found)
    return found


def changed(node: Node, value: int) -> int:
    """As another instance with another wish would have it; what is in force after that."""
    store = RecordStore(node.state)
    try:
        with store.locked():
            return settle(store, value, decider=99).value
    finally:
        store.close()


def test_nothing_changes_under_a_claim(trn2: Node, api: Objects) -> None:
    held = made(api, "a", "core-0-0-lnc2")
    trn2.prepared(held)
    assert changed(trn2, 1) == 2
    trn2.unprepare(held)
    assert changed(trn2, 1) == 1


def test_nor_under_a_record_that_cannot_be_read(trn2: Node, api: Objects) -> None:
    held = made(api, "a", "core-0-0-lnc2")
    trn2.prepared(held)
    trn2.record(held).write_text("cut off")
    assert changed(trn2, 1) == 2


def test_nor_under_one_of_an_earlier_boot(trn2: Node, api: Objects) -> None:
    """Its pod comes up again and is prepared under the same device name."""
    held = made(api, "a", "core-0-0-lnc2")
    trn2.prepared(held)
    trn2.reboot()
    trn2.start()
    assert changed(trn2, 1) == 2
    trn2.prepared(held)


def test_a_claim_of_the_other_lnc_is_refused(trn2: Node, api: Objects) -> None:
    for name in ("core-0-0-lnc1", "core-0-7-lnc1", "chip-0-lnc1"):
        text = trn2.refused(made(api, name, name))
        assert text.startswith(Reason.OTHER_LNC.code)
        assert name in text
    assert trn2.refused(made(api, "none", "core-0-7-lnc2")).startswith(Reason.UNKNOWN_DEVICE.code)
    assert [path for path in trn2.files() if path != FILE] == []


class Meanwhile:
    """The API, where something happens while it answers the first time: after the plan's snapshot, before its end."""

    def __init__(self, api: Objects, action: Callable[[], object]) -> None:
        self._api = api
        self._actions = [action]

    def get_claim(self, namespace: str, name: str) -> dict[str, Any]:
        while self._actions:
            self._actions.pop()()
        return self._api.get_claim(namespace, name)

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        return self._api.get_pod(namespace, name)


@pytest.mark.parametrize(("wait", "reason"), [(0.0, Reason.SCAN_OUTDATED), (20.0, Reason.OTHER_LNC)])
def test_a_plan_that_a_change_has_overtaken_grants_nothing(
    trn2: Node, api: Objects, wait: float, reason: Reason
) -> None:
    """Another instance changed it after this one looked: what counts is what the lock shows."""
    planned = made(api, "a", "core-0-0-lnc2")
    trn2.api = Meanwhile(api, lambda: changed(trn2, 1))
    trn2.start(wait=wait)
    text = trn2.refused(planned)
    assert text.startswith(reason.code)
    assert "LNC 2" in text
    assert "LNC 1" in text
    assert trn2.files() == [FILE]
    trn2.prepared(made(api, "b", "core-0-0-lnc1"))


@pytest.mark.parametrize("how", ["lost", "cut off"])
def test_where_the_value_is_lost_the_records_tell_it(trn2: Node, api: Objects, how: str) -> None:
    trn2.prepared(made(api, "a", "core-0-0-lnc2"))
    if how == "lost":
        (trn2.state / FILE).unlink()
    else:
        (trn2.state / FILE).write_text("2")
    assert load(trn2.state) is None
    assert changed(trn2, 1) == 2
    trn2.prepared(made(api, "b", "core-0-1-lnc2"))


def test_where_it_is_lost_and_nothing_is_prepared_the_first_claim_settles_it(trn2: Node, api: Objects) -> None:
    trn2.prepared(made(api, "a", "core-0-0-lnc2"))
    state = load(trn2.state)
    assert state
    assert state.value == 2
    assert changed(trn2, 1) == 2
