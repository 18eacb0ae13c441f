"""Resolution as the runtimes do it, and the reasons that they keep to themselves."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cdi.errors import CdiError, UnresolvableError
from cdi.registry import Registry, load

NAME = "vendor.com/class=dev"


def _load(tmp_path: Path, **options: Any) -> Registry:
    """Two directories as runtimes have them: `etc`, then `run` of higher priority."""
    return load([tmp_path / "etc", tmp_path / "run"], **options)


def _value(registry: Registry, name: str = NAME) -> str:
    return registry.resolve(name).device.container_edits.env[0]


def test_nothing_there_is_no_error(tmp_path: Path) -> None:
    """BC-056: a missing directory must not stop the scan of the next."""
    registry = _load(tmp_path)
    assert registry.names() == ()
    assert registry.broken() == ()
    assert registry.why(NAME) == f"no spec in {tmp_path / 'etc'} and {tmp_path / 'run'} defines it"


def test_bc056_only_the_second_directory_exists(tmp_path: Path, put: Any) -> None:
    path = put("run", "a.json")
    found = _load(tmp_path).resolve(NAME)
    assert (found.path, found.device.name, found.spec.kind) == (path, "dev", "vendor.com/class")
    assert _load(tmp_path).why(NAME) == ""


def test_higher_priority_shadows(tmp_path: Path, put: Any) -> None:
    put("etc", "a.json", value="low")
    put("run", "b.json", value="high")
    assert _value(_load(tmp_path)) == "X=high"


def test_two_files_of_one_directory_are_a_conflict(tmp_path: Path, put: Any) -> None:
    first, second = put("run", "a.json"), put("run", "b.json")
    put("run", "c.json", device="other")
    registry = _load(tmp_path)
    assert registry.names() == ("vendor.com/class=other",)
    with pytest.raises(UnresolvableError) as caught:
        registry.resolve(NAME)
    assert caught.value.reasons == {
        NAME: f"defined in {first} and {second}, which have the same priority: remove all but one"
    }


def test_a_conflict_below_is_not_healed_by_one_definition_above(tmp_path: Path, put: Any) -> None:
    """Seen with podman: the runtimes delete the name after the scan, whoever had it."""
    first, second = put("etc", "a.json"), put("etc", "b.json")
    put("run", "c.json")
    registry = _load(tmp_path)
    assert registry.names() == ()
    assert f"defined in {first} and {second}," in registry.why(NAME)


def test_a_conflict_ends_with_one_of_the_files(tmp_path: Path, put: Any) -> None:
    put("run", "a.json", value="kept")
    second = put("run", "b.json")
    before = _load(tmp_path)
    second.unlink()
    assert _value(_load(tmp_path, previous=before)) == "X=kept"
    assert before.names() == ()  # a snapshot stays what it was


def test_a_broken_file_disturbs_no_other(tmp_path: Path, put: Any) -> None:
    put("run", "a.json", content="{")
    put("run", "b.json")
    put("run", "c.json", content="")
    registry = _load(tmp_path)
    assert _value(registry) == "X=1"
    assert [file.path.name for file in registry.broken()] == ["a.json", "c.json"]


def test_a_broken_file_is_in_no_conflict_and_shadows_nothing(tmp_path: Path, put: Any, document: Any) -> None:
    put("etc", "a.json", value="good")
    put("run", "b.json", device="dev", content='{"cdiVersion":"9.9.9","kind":"vendor.com/class"}')
    assert _value(_load(tmp_path)) == "X=good"


def test_why_names_the_file_and_the_field_that_breaks_it(tmp_path: Path, put: Any) -> None:
    path = put("run", "a.json", content=(
        '{"cdiVersion":"0.5.0","kind":"vendor.com/class",'
        '"devices":[{"name":"dev","containerEdits":{"env":["X=1","oops"]}}]}'
    ))  # fmt: skip
    reason = _load(tmp_path).why(NAME)
    assert reason == (f"defined, but not validly: {path} (devices[0].containerEdits.env[1]: 'oops' is not NAME=value)")


def test_why_names_unreadable_files_as_suspects_only(tmp_path: Path, put: Any) -> None:
    cut = put("run", "a.json", content='{"cdiVersion":"0.5.0","kind":"vendor.com/cla')
    reason = _load(tmp_path).why(NAME)
    assert f"not readable, so it may stand there: {cut} (not JSON: Unterminated string" in reason


def test_why_tells_a_name_that_can_never_resolve(tmp_path: Path) -> None:
    assert _load(tmp_path).why("dev").startswith("'dev' is not a qualified CDI device name")


def test_a_version_above_the_readers_newest_counts_for_nothing(tmp_path: Path, put: Any, document: Any) -> None:
    put("run", "a.json", content=json.dumps(document(cdiVersion="0.6.0")))
    assert _load(tmp_path).names() == (NAME,)
    assert "newer than 0.5.0" in _load(tmp_path, newest="0.5.0").why(NAME)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("a.json", True),
        ("a.yaml", True),
        (".a.json", True),  # seen with podman: dot-files are read
        (".json", True),
        ("a.conf", False),
        ("a.json.tmp", False),
        (".a.json.x.tmp", False),
        ("a.yml", False),
        ("a.JSON", False),
        ("sub/a.json", False),
    ],
)
def test_which_files_count(tmp_path: Path, put: Any, name: str, *, counts: bool) -> None:
    put("run", name)
    assert bool(_load(tmp_path).names()) is counts


def test_a_symbolic_link_counts_and_a_dangling_one_does_not(tmp_path: Path, put: Any) -> None:
    target = put("elsewhere", "a.json")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link.json").symlink_to(target)
    (tmp_path / "run" / "dangling.json").symlink_to(tmp_path / "nowhere")
    registry = _load(tmp_path)
    assert registry.names() == (NAME,)
    assert registry.broken() == ()


def test_a_directory_named_like_a_spec_is_passed_over(tmp_path: Path, put: Any) -> None:
    put("run", "dir.json/inner.json")
    assert _load(tmp_path).files == ()


def test_a_link_to_itself_is_a_fault_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "loop.json").symlink_to("loop.json")
    (file,) = _load(tmp_path).broken()
    assert file.reason == "can't be read: Too many levels of symbolic links"


def test_many_devices_and_kinds(tmp_path: Path, put: Any) -> None:
    for number in range(50):
        put("run", f"{number}.json", device=str(number), value=str(number))
    registry = _load(tmp_path)
    assert len(registry.names()) == 50
    assert _value(registry, "vendor.com/class=37") == "X=37"
    with pytest.raises(CdiError, match=r"vendor.com/class=50 \(no spec in"):
        registry.resolve("vendor.com/class=50")


def test_only_changed_files_are_read_again(tmp_path: Path, put: Any) -> None:
    put("run", "same.json", device="same")
    changed = put("run", "changed.json", value="1")
    before = _load(tmp_path)
    size = changed.stat().st_size
    put("run", "changed.json", value="2")
    assert changed.stat().st_size == size
    after = _load(tmp_path, previous=before)
    assert _value(after) == "X=2"
    files = {file.path.name: file for file in before.files}
    assert [file is files[file.path.name] for file in after.files] == [False, True]


def test_a_file_replaced_with_the_same_size_and_time_is_read_again(tmp_path: Path, put: Any) -> None:
    path = put("run", "a.json", value="1")
    before = _load(tmp_path)
    times = (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    other = put("spare", "b.json", value="2")
    other.rename(path)
    os.utime(path, ns=times)
    assert _value(_load(tmp_path, previous=before)) == "X=2"


def test_another_newest_version_forgets_the_previous_verdicts(tmp_path: Path, put: Any, document: Any) -> None:
    put("run", "a.json", content=json.dumps(document(cdiVersion="1.0.0")))
    before = _load(tmp_path)
    assert before.names() == (NAME,)
    assert _load(tmp_path, newest="0.5.0", previous=before).names() == ()


def test_a_file_in_the_place_of_a_directory(tmp_path: Path, put: Any) -> None:
    (tmp_path / "etc").write_text("")
    put("run", "a.json")
    assert _load(tmp_path).names() == (NAME,)
