"""Spec files written whole or not at all.

A reader sees the old file or the new one, never a part: the content goes to a temporary file in the
same directory, which is then renamed. Its name ends in `.tmp`, because runtimes read every `*.json`
and `*.yaml` there, dot-files included. Equal content is not written again, so that runtimes that watch
the directory aren't woken. Where the directory is a tmpfs (as /var/run/cdi is) nothing survives a
reboot and `durable` buys nothing.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from cdi import validate
from cdi.errors import WriteError
from cdi.models import Spec

_MODE = 0o644  # runtimes may run as somebody else; mkstemp gives 0600
_DIRECTORY_MODE = 0o755


def write(spec: Spec, path: Path, *, durable: bool = False) -> bool:
    """Make `path` hold the spec; True if it was written, False if it held just that before.

    The directory is made if it is missing. `durable` syncs file and directory, so that the spec is
    there after a loss of power.

    Raises:
        InvalidSpecError: runtimes would refuse the spec; nothing is written.
        WriteError: the file system refused; an old file is as it was.
    """
    content = validate.check(spec, source=str(path)).to_json()
    if _content(path) == content:
        return False
    try:
        _make_directory(path.parent)
        _replace(path, content, durable=durable)
        if durable:
            _sync_directory(path.parent)
    except OSError as error:
        raise WriteError("write", path, error) from error
    return True


def remove(path: Path, *, durable: bool = False) -> bool:
    """Remove a spec file; False if there was none.

    Raises:
        WriteError: the file system refused.
    """
    try:
        path.unlink()
        if durable:
            _sync_directory(path.parent)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise WriteError("remove", path, error) from error
    return True


def remove_leftovers(directory: Path, *, prefix: str) -> int:
    """Remove temporary files that a killed writer left for specs whose names start with `prefix`.

    Only for a caller that knows no other writer of such specs is at work. Returns how many went.

    Raises:
        WriteError: the file system refused.
    """
    count = 0
    for path in directory.glob(f".{prefix}*.tmp"):
        count += remove(path)
    return count


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:  # absent, or whatever else: the write will tell
        return None


def _make_directory(directory: Path) -> None:
    """With its mode as it is meant, whatever the umask; one that is there keeps its own."""
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(_DIRECTORY_MODE)


def _replace(path: Path, content: bytes, *, durable: bool) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), _MODE)
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(temporary).unlink()
        raise


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
