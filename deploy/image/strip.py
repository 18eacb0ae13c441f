# ruff: noqa: INP001 a script that the recipe copies, no package
"""Remove from a folder of installed packages what the daemon never imports: ``strip.py FOLDER``.

The Kubernetes client has an asyncio twin of itself that is half of its size, and what
only the twin needs comes with it. A distribution is removed by the list of files in
its own metadata, so nothing of another one goes. Licence texts of what stays are kept.
"""

import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

# Needed by the asyncio twin only, but for tzdata: nothing here asks for a time zone.
UNUSED = (
    *("aiohappyeyeballs", "aiohttp", "aiohttp-retry", "aiosignal", "attrs", "frozenlist", "multidict", "propcache"),
    *("yarl", "tzdata"),
)
TWIN = "kubernetes/aio"
# Type hints and C sources; the packages' own tests and documents.
SUFFIXES = (".pyi", ".pyx", ".pxd", ".c", ".h")
FOLDERS = ("tests", "test", "docs", "e2e_test", "bin")


def strip(folder: Path) -> None:
    """Remove it. Raises FileNotFoundError where the twin is not where it is expected."""
    shutil.rmtree(folder / TWIN)
    for distribution in distributions(path=[str(folder)]):
        if distribution.name in UNUSED:
            remove(distribution, folder)
    for path in sorted(leftovers(folder)):
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    remove_empty(folder)


def remove(distribution: Distribution, folder: Path) -> None:
    """Every file of one distribution, by its own list."""
    for entry in distribution.files or []:
        path = folder / entry
        if folder in path.resolve().parents:  # scripts are listed as ../../bin/NAME
            path.unlink(missing_ok=True)


def leftovers(folder: Path) -> Iterator[Path]:
    """Files and folders that no program imports; a distribution's metadata has its licences and stays."""
    for path in folder.rglob("*"):
        inside = path.relative_to(folder)
        if any(part.endswith(".dist-info") for part in inside.parts):
            continue
        if path.suffix in SUFFIXES or (path.is_dir() and path.name in FOLDERS):
            yield path


def remove_empty(folder: Path) -> None:
    """Folders without a file, innermost first."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()


if __name__ == "__main__":
    strip(Path(sys.argv[1]))
