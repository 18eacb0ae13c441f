"""What is taken out of the image, and what not."""

import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

STRIP = Path(__file__).parents[3] / "deploy/image/strip.py"
strip: Callable[[Path], None] = runpy.run_path(str(STRIP))["strip"]


def install(folder: Path, name: str, *files: str) -> None:
    """Lay a distribution out as pip does, with its own list of files."""
    metadata = f"{name.replace('-', '_')}-1.0.dist-info"
    listed = [*files, f"{metadata}/METADATA", f"{metadata}/licenses/LICENSE", f"{metadata}/RECORD"]
    for file in listed:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (folder / metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / metadata / "RECORD").write_text("".join(f"{file},,\n" for file in listed))


@pytest.fixture
def lib(tmp_path: Path) -> Path:
    folder = tmp_path / "lib"
    install(
        folder, "kubernetes", "kubernetes/__init__.py", "kubernetes/aio/client/x.py", "kubernetes/client/models/x.py"
    )
    return folder


def left(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_takes_the_asyncio_half_of_the_client_only(lib: Path) -> None:
    strip(lib)
    assert {name for name in left(lib) if name.endswith(".py")} == {
        "kubernetes/__init__.py",
        "kubernetes/client/models/x.py",
    }


def test_takes_a_distribution_that_only_that_half_needs_whole(lib: Path) -> None:
    before = left(lib) - {"kubernetes/aio/client/x.py"}
    install(lib, "attrs", "attr/__init__.py", "attrs/__init__.py")
    install(lib, "aiohttp-retry", "aiohttp_retry/client.py")
    strip(lib)
    assert left(lib) == before
    assert not (lib / "attr").exists()


def test_leaves_a_file_that_no_distribution_to_be_taken_has(lib: Path) -> None:
    install(lib, "yarl", "yarl/a.py", "shared/of_yarl.py")
    install(lib, "other", "shared/of_other.py")
    strip(lib)
    assert "shared/of_other.py" in left(lib)
    assert "shared/of_yarl.py" not in left(lib)


def test_never_goes_outside_of_its_folder(lib: Path) -> None:
    """Scripts are listed as ../../bin/NAME: beside the folder that may be somebody else's."""
    outside = lib.parent / "bin/tool"
    outside.parent.mkdir()
    outside.touch()
    install(lib, "yarl", "yarl/a.py", "../bin/tool")
    strip(lib)
    assert outside.exists()


@pytest.mark.parametrize("file", ["p/x.pyi", "p/c/x.pyx", "p/x.h", "p/tests/test_x.py", "p/test/x.py", "bin/tool"])
def test_takes_what_no_program_imports(lib: Path, file: str) -> None:
    install(lib, "p", "p/__init__.py", file)
    strip(lib)
    assert file not in left(lib)
    assert "p/__init__.py" in left(lib)


@pytest.mark.parametrize("file", ["p/x.so", "p/contest.py", "p/py.typed", "p/testing.py", "p/data.json"])
def test_leaves_what_one_may(lib: Path, file: str) -> None:
    install(lib, "p", "p/__init__.py", file)
    strip(lib)
    assert file in left(lib)


def test_keeps_the_licence_of_what_stays(lib: Path) -> None:
    strip(lib)
    assert "kubernetes-1.0.dist-info/licenses/LICENSE" in left(lib)


def test_says_so_where_the_client_looks_different(lib: Path) -> None:
    """A release that moves its asyncio half would make the image twice as large without a word."""
    strip(lib)
    with pytest.raises(FileNotFoundError, match="aio"):
        strip(lib)
