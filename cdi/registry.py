"""What the spec directories define, as the runtimes see it, and why a device can't be resolved.

Rules (those of the runtimes):
* directories come in rising priority; `*.json` and `*.yaml` directly in them are read, dot-files and
  symbolic links too, folders below are not; a directory that is missing is empty;
* a device that a directory of higher priority defines again is the one of that directory;
* a device that two files of one directory define is in conflict and resolves for nobody. That holds
  even where a directory of higher priority defines it once (seen with podman);
* a file with a fault, or that can't be read, defines nothing and disturbs no other.
Runtimes keep the reason to themselves; `Registry.why` tells it.
"""

import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cdi import validate
from cdi.errors import Fault, InvalidNameError, InvalidSpecError, UnresolvableError
from cdi.models import Device, Spec
from cdi.names import parse_name
from cdi.read import read

DEFAULT_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))
_SUFFIXES = (".json", ".yaml")


@dataclass(frozen=True, slots=True)
class SpecFile:
    """One file as found. With `faults` it counts for nothing; `spec` is then what could be read."""

    path: Path
    priority: int
    identity: tuple[int, ...]
    spec: Spec | None
    faults: tuple[Fault, ...] = ()

    def names(self) -> Iterator[str]:
        """The qualified names that the file defines, or would define without its faults."""
        if self.spec is not None:
            for device in self.spec.devices:
                yield f"{self.spec.kind}={device.name}"

    @property
    def reason(self) -> str:
        """All faults in one line."""
        return "; ".join(map(str, self.faults))


@dataclass(frozen=True, slots=True)
class Resolved:
    """A device, the spec that it stands in, and that spec's file."""

    spec: Spec
    device: Device
    path: Path


@dataclass(frozen=True)
class Registry:
    """A snapshot of the directories. Made by `load`; a later state is another snapshot."""

    directories: tuple[Path, ...]
    newest: str
    files: tuple[SpecFile, ...] = field(default=())

    def names(self) -> tuple[str, ...]:
        """The qualified names that resolve, sorted."""
        return tuple(sorted(self._devices))

    def resolve(self, name: str) -> Resolved:
        """The device of a qualified name.

        Raises:
            UnresolvableError: no device; its text is `why(name)`.
        """
        found = self._devices.get(name)
        if found is None:
            raise UnresolvableError({name: self.why(name)})
        return found

    def why(self, name: str) -> str:
        """Why a name doesn't resolve, naming files; empty if it does."""
        if name in self._devices:
            return ""
        try:
            parse_name(name)
        except InvalidNameError as error:
            return str(error)
        if rivals := self._conflicts.get(name):
            return f"defined in {_listed(rivals)}, which have the same priority: remove all but one"
        return self._missing(name)

    def broken(self) -> tuple[SpecFile, ...]:
        """The files that count for nothing, with their faults."""
        return tuple(file for file in self.files if file.faults)

    def _missing(self, name: str) -> str:
        culprits = [file for file in self.broken() if name in file.names()]
        if culprits:
            return "defined, but not validly: " + ", ".join(f"{one.path} ({one.reason})" for one in culprits)
        text = f"no spec in {_listed(self.directories)} defines it"
        unread = [f"{one.path} ({one.reason})" for one in self.broken() if one.spec is None]
        return f"{text}; not readable, so it may stand there: {', '.join(unread)}" if unread else text

    @cached_property
    def _definitions(self) -> dict[str, list[SpecFile]]:
        found: dict[str, list[SpecFile]] = {}
        for file in self.files:
            for name in () if file.faults else file.names():
                found.setdefault(name, []).append(file)
        return found

    @cached_property
    def _conflicts(self) -> dict[str, tuple[Path, ...]]:
        found = {}
        for name, files in self._definitions.items():
            rivals = [one for one in files if sum(other.priority == one.priority for other in files) > 1]
            if rivals:
                found[name] = tuple(one.path for one in rivals)
        return found

    @cached_property
    def _devices(self) -> dict[str, Resolved]:
        found = {}
        for name, files in self._definitions.items():
            if name not in self._conflicts:
                found[name] = _resolved(max(files, key=lambda file: file.priority), name)
        return found


def load(
    directories: Sequence[Path] = DEFAULT_DIRECTORIES,
    *,
    newest: str = validate.NEWEST,
    previous: Registry | None = None,
) -> Registry:
    """Read the directories, in rising priority. No error of a file or directory is raised: see `broken`.

    `newest` is the newest spec version taken. Files that didn't change since `previous` (by inode,
    size and times) are not read again.
    """
    known = {}
    if previous is not None and previous.newest == newest:
        known = {(file.path, file.priority, file.identity): file for file in previous.files}
    files: list[SpecFile] = []
    for priority, directory in enumerate(directories):
        for path, identity in _spec_files(directory):
            old = known.get((path, priority, identity))
            files.append(old or _load_file(path, priority, identity, newest))
    return Registry(tuple(directories), newest, tuple(files))


def _spec_files(directory: Path) -> Iterator[tuple[Path, tuple[int, ...]]]:
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith(_SUFFIXES))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:  # an empty identity is never the same as before; reading it tells the reason
        yield directory, ()
        return
    for path in paths:
        try:
            status = path.stat()
        except FileNotFoundError:  # removed just now, or a dangling link
            continue
        except OSError:
            yield path, ()
            continue
        if not stat.S_ISDIR(status.st_mode):
            yield path, (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _load_file(path: Path, priority: int, identity: tuple[int, ...], newest: str) -> SpecFile:
    try:
        spec = read(path)
    except InvalidSpecError as error:
        return SpecFile(path, priority, identity, None, error.faults)
    except OSError as error:
        return SpecFile(path, priority, (), None, (Fault("", f"can't be read: {error.strerror}"),))
    return SpecFile(path, priority, identity, spec, validate.faults(spec, newest=newest))


def _resolved(file: SpecFile, name: str) -> Resolved:
    assert file.spec is not None  # noqa: S101 - a file without faults has a spec
    device = next(one for one in file.spec.devices if f"{file.spec.kind}={one.name}" == name)
    return Resolved(file.spec, device, file.path)


def _listed(paths: Sequence[Path]) -> str:
    return " and ".join(map(str, paths))
