"""Application to an OCI spec: the order, what replaces what, and purity."""

import copy
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.apply import apply, apply_edits, collect
from cdi.errors import ApplyError, UnresolvableError
from cdi.models import ContainerEdits, Device, DeviceNode, Hook, Mount, Spec
from cdi.registry import Registry, load
from cdi.write import write

_NODE = DeviceNode(path="/dev/a", type="c", major=245, minor=3, permissions="rw", file_mode=0o666)
_RULE = {"allow": True, "type": "c", "major": 245, "minor": 3, "access": "rw"}


def _env(*edits: tuple[str, ...], base: tuple[str, ...] = ()) -> list[str]:
    spec = apply_edits({"process": {"env": list(base)}}, [ContainerEdits(env=one) for one in edits])
    env: list[str] = spec["process"]["env"]
    return env


@pytest.fixture
def registry(tmp_path: Path) -> Callable[..., Registry]:
    """Write specs of kinds `<key>/claim`, each with spec-level edits, and load them."""

    def make(**kinds: dict[str, tuple[str, ...]]) -> Registry:
        for vendor, devices in kinds.items():
            edits = {name: ContainerEdits(env=env) for name, env in devices.items()}
            common = edits.pop("common", ContainerEdits())
            listed = tuple(Device(name=name, container_edits=one) for name, one in edits.items())
            spec = Spec(cdi_version="0.5.0", kind=f"{vendor}/claim", devices=listed, container_edits=common)
            write(spec, tmp_path / f"{vendor}.json")
        return load([tmp_path])

    return make


def test_env_is_replaced_in_place_and_the_last_wins() -> None:
    assert _env(("B=2", "C=3"), ("B=4",), base=("A=1", "B=0", "Z=9")) == ["A=1", "B=4", "Z=9", "C=3"]


def test_env_names_match_whole() -> None:
    assert _env(("AB=1",), ("A=2",), base=("ABC=0",)) == ["ABC=0", "AB=1", "A=2"]
    assert _env(("A=x=y",), base=("A=1", "A=2")) == ["A=1", "A=x=y"]


def test_two_devices_that_each_set_their_part_lose_one(registry: Callable[..., Registry]) -> None:
    """The trap that makes each device of a claim carry the whole of the edits."""
    part = registry(acc={"core0": ("CORES=0",), "core1": ("CORES=1",)})
    ids = ["acc/claim=core0", "acc/claim=core1"]
    assert apply({}, ids, part)["process"]["env"] == ["CORES=1"]
    assert apply({}, ids[::-1], part)["process"]["env"] == ["CORES=0"]


def test_devices_with_the_whole_edits_give_the_same_in_any_order_and_number(tmp_path: Path, spec: Spec) -> None:
    write(spec, tmp_path / "a.json")
    registry = load([tmp_path])
    first, second = registry.names()
    expected = apply({}, [first], registry)
    assert expected["linux"]["devices"] == [
        {"path": "/dev/acc0", "type": "c", "major": 245, "minor": 7, "fileMode": 0o666}
    ]
    for order in ([first, second], [second, first], [second], [first, second, first]):
        assert apply({}, order, registry) == expected


def test_edits_of_the_spec_act_once_before_its_first_device(registry: Callable[..., Registry]) -> None:
    made = registry(
        acc={"common": ("S=acc", "X=spec"), "a": ("X=a",), "b": ("Y=b",)},
        net={"common": ("S=net",), "n": ("Y=n",)},
    )
    names = ["acc/claim=a", "net/claim=n", "acc/claim=b", "acc/claim=a"]
    assert [one.env for one in collect(names, made)] == [
        ("S=acc", "X=spec"),
        ("X=a",),
        ("S=net",),
        ("Y=n",),
        ("Y=b",),
    ]
    assert apply({}, names, made)["process"]["env"] == ["S=net", "X=a", "Y=b"]


def test_all_unresolvable_names_are_told(registry: Callable[..., Registry]) -> None:
    made = registry(acc={"a": ("X=1",)})
    with pytest.raises(UnresolvableError) as caught:
        apply({}, ["acc/claim=b", "acc/claim=a", "nonsense"], made)
    assert list(caught.value.reasons) == ["acc/claim=b", "nonsense"]
    assert "acc/claim=b (no spec in" in str(caught.value)


def test_device_node_and_rule() -> None:
    spec = apply_edits({}, [ContainerEdits(device_nodes=(_NODE,))])
    assert spec["linux"] == {
        "devices": [{"path": "/dev/a", "type": "c", "major": 245, "minor": 3, "fileMode": 0o666}],
        "resources": {"devices": [_RULE]},
    }


def test_no_permissions_means_all() -> None:
    node = _NODE.model_copy(update={"permissions": ""})
    spec = apply_edits({}, [ContainerEdits(device_nodes=(node,))])
    assert spec["linux"]["resources"]["devices"] == [{**_RULE, "access": "rwm"}]


def test_same_path_is_replaced_but_the_old_rule_stays() -> None:
    """As the runtimes do it: a driver must not count on a later node to take rights away."""
    other = _NODE.model_copy(update={"minor": 4})
    spec = apply_edits({}, [ContainerEdits(device_nodes=(_NODE,)), ContainerEdits(device_nodes=(other,))])
    assert [one["minor"] for one in spec["linux"]["devices"]] == [4]
    assert [one["minor"] for one in spec["linux"]["resources"]["devices"]] == [3, 4]


def test_existing_devices_and_rules_of_the_base_are_kept() -> None:
    deny = {"allow": False, "access": "rwm"}
    null = {"path": "/dev/null", "type": "c", "major": 1, "minor": 3}
    base = {"linux": {"devices": [null], "resources": {"devices": [deny], "pids": {"limit": 9}}}}
    linux = apply_edits(base, [ContainerEdits(device_nodes=(_NODE,))])["linux"]
    assert linux["devices"][0] == null
    assert linux["resources"] == {"devices": [deny, _RULE], "pids": {"limit": 9}}


@pytest.mark.parametrize(
    ("node", "user", "expected"),
    [
        ({}, {}, {}),
        ({}, {"uid": 1000, "gid": 1001}, {"uid": 1000, "gid": 1001}),
        ({"uid": 0}, {"uid": 1000, "gid": 0}, {"uid": 0}),
        ({"uid": 5, "gid": 6}, {"uid": 1000}, {"uid": 5, "gid": 6}),
    ],
)
def test_bc064_the_owner_is_the_specs_or_the_containers_user(
    node: dict[str, int], user: dict[str, int], expected: dict[str, int]
) -> None:
    edits = ContainerEdits(device_nodes=(_NODE.model_copy(update=node),))
    (device,) = apply_edits({"process": {"user": user}}, [edits])["linux"]["devices"]
    assert {key: device[key] for key in ("uid", "gid") if key in device} == expected


def _status(mode: int, major: int = 0, minor: int = 0) -> Callable[[str], os.stat_result]:
    def look(path: str) -> os.stat_result:
        assert path == "/dev/host"
        fields = [mode, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        return os.stat_result(fields, {"st_rdev": os.makedev(major, minor)})

    return look


@pytest.mark.parametrize(
    ("given", "status", "expected"),
    [
        ({}, _status(stat.S_IFCHR, 245, 9), ("c", 245, 9)),
        ({}, _status(stat.S_IFBLK, 7, 1), ("b", 7, 1)),
        ({"type": "c"}, _status(stat.S_IFCHR, 245, 9), ("c", 245, 9)),
        ({"major": 245, "minor": 3}, _status(stat.S_IFCHR, 1, 1), ("c", 245, 3)),
        ({"type": "c", "major": 0, "minor": 3}, _status(stat.S_IFCHR, 245, 9), ("c", 245, 9)),
    ],
)
def test_what_the_spec_leaves_out_is_the_host_nodes(
    given: dict[str, Any], status: Callable[[str], os.stat_result], expected: tuple[str, int, int]
) -> None:
    node = DeviceNode(path="/dev/a", host_path="/dev/host", **given)
    spec = apply_edits({}, [ContainerEdits(device_nodes=(node,))], stat_node=status)
    (device,) = spec["linux"]["devices"]
    assert (device["type"], device["major"], device["minor"]) == expected


def test_a_real_host_node_is_looked_at_under_its_own_path() -> None:
    edits = ContainerEdits(device_nodes=(DeviceNode(path="/dev/null"),))
    (device,) = apply_edits({}, [edits])["linux"]["devices"]
    assert device == {"path": "/dev/null", "type": "c", "major": 1, "minor": 3}


def test_a_fifo_has_no_numbers_and_no_rule(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    node = DeviceNode(path="/run/pipe", host_path=str(tmp_path / "pipe"))
    assert apply_edits({}, [ContainerEdits(device_nodes=(node,))])["linux"] == {
        "devices": [{"path": "/run/pipe", "type": "p"}]
    }


def test_bc055_numbers_given_means_the_host_node_is_not_looked_at() -> None:
    def never(path: str) -> os.stat_result:
        raise AssertionError(path)

    apply_edits({}, [ContainerEdits(device_nodes=(_NODE,))], stat_node=never)


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"path": "/dev/a", "host_path": "/dev/not-there"}, "/dev/not-there: No such file or directory"),
        ({"path": "/dev/null", "type": "b"}, "type 'b' asked, /dev/null is 'c'"),
        ({"path": "/"}, "/ is not a device node"),
    ],
)
def test_a_host_node_that_does_not_fit(node: dict[str, str], text: str) -> None:
    with pytest.raises(ApplyError, match=text):
        apply_edits({}, [ContainerEdits(device_nodes=(DeviceNode.model_validate(node),))])


def test_mounts_replace_by_destination_and_are_sorted_by_depth() -> None:
    base = {"mounts": [{"destination": "/a/b/c", "source": "1"}, {"destination": "/a", "source": "2"}]}
    edits = ContainerEdits(
        mounts=(
            Mount(host_path="/h/x", container_path="/a/b", options=("ro", "bind"), type="bind"),
            Mount(host_path="/h/y", container_path="/a/b/c"),
            Mount(host_path="/h/z", container_path="/"),
        )
    )
    assert apply_edits(base, [edits])["mounts"] == [
        {"destination": "/", "source": "/h/z"},
        {"destination": "/a", "source": "2"},
        {"destination": "/a/b", "source": "/h/x", "type": "bind", "options": ["ro", "bind"]},
        {"destination": "/a/b/c", "source": "/h/y"},
    ]


def test_hooks_are_appended_in_order() -> None:
    first = Hook(hook_name="createContainer", path="/h1", args=("h1", "x"), env=("A=1",), timeout=5)
    edits = ContainerEdits(hooks=(first, Hook(hook_name="poststop", path="/h2")))
    hooks = apply_edits({"hooks": {"createContainer": [{"path": "/h0"}]}}, [edits, edits])["hooks"]
    told = {"path": "/h1", "args": ["h1", "x"], "env": ["A=1"], "timeout": 5}
    assert hooks == {"createContainer": [{"path": "/h0"}, told, told], "poststop": [{"path": "/h2"}] * 2}


def test_gids_are_united_and_zero_is_passed_over() -> None:
    edits = [ContainerEdits(additional_gids=(5, 0, 6)), ContainerEdits(additional_gids=(6, 7))]
    base = {"process": {"user": {"uid": 1, "additionalGids": [7]}}}
    assert apply_edits(base, edits)["process"]["user"] == {"uid": 1, "additionalGids": [7, 5, 6]}
    assert apply_edits({}, [ContainerEdits(additional_gids=(0,))]) == {}


def test_edits_that_are_not_understood_are_refused_not_skipped() -> None:
    edits = ContainerEdits.model_validate({"intelRdt": {"closID": "x"}})
    with pytest.raises(ApplyError, match="intelRdt can't be applied"):
        apply_edits({}, [edits])


@pytest.mark.parametrize("base", [{}, {"process": None, "linux": None, "mounts": None, "hooks": None}])
def test_a_base_without_the_parts(base: dict[str, None]) -> None:
    edits = ContainerEdits(
        env=("A=1",),
        device_nodes=(_NODE,),
        mounts=(Mount(host_path="/h", container_path="/c"),),
        hooks=(Hook(hook_name="poststop", path="/h"),),
        additional_gids=(5,),
    )
    assert set(apply_edits(base, [edits])) == {"process", "linux", "mounts", "hooks"}


def test_the_argument_is_not_touched() -> None:
    base: dict[str, Any] = {
        "process": {"env": ["A=1"], "user": {"uid": 1}},
        "linux": {"devices": [{"path": "/dev/a"}], "resources": {"devices": []}},
        "mounts": [],
        "hooks": {"poststop": []},
    }
    before = copy.deepcopy(base)
    edits = ContainerEdits(
        env=("A=2",),
        device_nodes=(_NODE,),
        mounts=(Mount(host_path="/h", container_path="/c"),),
        hooks=(Hook(hook_name="poststop", path="/h"),),
    )
    assert apply_edits(base, [edits]) != before
    assert base == before


@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("12=")), max_size=4), max_size=4),
    st.lists(st.tuples(st.sampled_from("ABC"), st.sampled_from("90")), max_size=3, unique_by=lambda e: e[0]),
)
def test_env_holds_each_name_once_with_the_last_value(
    edits: list[list[tuple[str, str]]], base: list[tuple[str, str]]
) -> None:
    joined = [tuple(f"{name}={value}" for name, value in one) for one in edits]
    expected = dict(base)
    for one in edits:
        expected.update(one)
    result = _env(*joined, base=tuple(f"{name}={value}" for name, value in base))
    assert result == [f"{name}={value}" for name, value in expected.items()]


@given(st.lists(st.builds(DeviceNode, path=st.sampled_from(["/dev/a", "/dev/b"]), type=st.just("c"),
                          major=st.just(245), minor=st.integers(0, 3),
                          permissions=st.sampled_from(["r", "rw", ""])), max_size=6))  # fmt: skip
def test_applying_twice_changes_nothing_more(nodes: list[DeviceNode]) -> None:
    edits = [ContainerEdits(device_nodes=tuple(nodes))]
    once = apply_edits({}, edits)
    twice = apply_edits(once, edits)
    key = "linux"
    assert sorted(map(str, twice.get(key, {}).get("devices", []))) == sorted(
        map(str, once.get(key, {}).get("devices", []))
    )
    assert twice.get(key, {}).get("resources") == once.get(key, {}).get("resources")
    assert len({one["path"] for one in once.get(key, {}).get("devices", [])}) == len({node.path for node in nodes})
