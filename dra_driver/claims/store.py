"""The journal: one file a claim, `<claim UID>.record`, in the state directory.

Writing is temporary file, fsync, rename, fsync of the directory. What is on disk is the truth, under a lock that every
instance on the node takes; memory is a cache keyed by file identity. Deleting needs nothing but the UID. One bad record
never voids another: it is kept as `Damaged`, and what it may hold is for the caller to block.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dra_driver.claims import lnc
from dra_driver.claims.lnc import InForce
from dra_driver.claims.records import Damaged, Record, RecordError, checked_uid, decode, encode
from dra_driver.claims.refusals import Reason, Refusal

log = logging.getLogger(__name__)

_SUFFIX = ".record"
_TEMPORARY = ".tmp"
Identity = tuple[int, int, int]


class RecordStore:
    """All records of a node. Read and change them inside `with store.locked():` only."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mutex = threading.Lock()
        self._unsynced = False
        self._cache: dict[str, tuple[Identity, Record | Damaged]] = {}
        self._lnc: tuple[Identity, InForce | None] | None = None
        try:
            directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._lock_file = self._opened()
        except OSError as error:
            raise RecordError(
                f"can't use the state directory {directory}: {error.strerror}; it must be writable and on a disk"
                " that outlives a reboot"
            ) from error

    def close(self) -> None:
        """Let go of the lock file."""
        os.close(self._lock_file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the node's lock: against threads here and other instances of the driver. Not to be nested.

        Raises:
            Refusal: the directory can't be read.
        """
        with self._mutex:
            try:
                self._take()
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def records(self) -> dict[str, Record]:
        """Readable records by claim UID, as they were when the lock was taken, or as they were changed since.

        Without the lock: as this instance saw or left them last.
        """
        return {uid: entry for uid, (_, entry) in self._cache.items() if isinstance(entry, Record)}

    def damaged(self) -> list[Damaged]:
        """Records that can't be read, as they were when the lock was taken."""
        return [entry for _, entry in self._cache.values() if isinstance(entry, Damaged)]

    def lnc(self) -> InForce | None:
        """The node's LNC in force, as `records`; None where none was settled, or what was can't be read."""
        known = self._lnc
        return known[1] if known else None

    def save_lnc(self, state: InForce) -> None:
        """Make it durable.

        Raises:
            Refusal: the disk refused; what was in force still is.
        """
        path = self._directory / lnc.FILE
        temporary = self._directory / f".{lnc.FILE}{_TEMPORARY}"
        try:
            identity = _write(temporary, lnc.encode(state))
            temporary.replace(path)
            self._lnc, self._unsynced = (identity, state), True
            self._sync()
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise _storage("write", path, error) from error

    def forget_lnc(self) -> bool:
        """Remove it; False when there was none. For whoever takes the driver away."""
        path, self._lnc = self._directory / lnc.FILE, None
        found = path.exists()
        path.unlink(missing_ok=True)
        return found

    def save(self, records: Sequence[Record]) -> None:
        """Make these records durable, in one go; without any, nothing is written.

        Raises:
            Refusal: the disk refused. Every record is then whole, the old or the new one, and no other file is left.
        """
        made: list[Path] = []
        try:
            written: dict[str, tuple[Identity, Record | Damaged]] = {}
            for record in records:
                made.append(self._temporary(record.claim.uid))
                written[record.claim.uid] = _write(made[-1], encode(record)), record
            for record in records:
                self._temporary(record.claim.uid).replace(self._path(record.claim.uid))
                self._unsynced = True
            self._sync()
            self._cache = {**self._cache, **written}  # another object: it may be read without the lock
        except OSError as error:
            for temporary in made:
                with suppress(OSError):
                    temporary.unlink(missing_ok=True)
            raise _storage("write a record in", self._directory, error) from error

    def forget(self, uid: str) -> bool:
        """Remove a claim's record durably; False when there was none.

        Raises:
            Refusal: the disk refused; the claim counts as held.
        """
        path = self._path(uid)
        try:
            found = path.exists()
            path.unlink(missing_ok=True)
            self._unsynced |= found
            self._cache = {known: entry for known, entry in self._cache.items() if known != uid}
            self._sync()
        except OSError as error:
            raise _storage("remove", path, error) from error
        return found

    def sweep(self) -> None:
        """Remove what writers that were killed have left. Inside the lock no other can be at work.

        Raises:
            Refusal: the disk refused.
        """
        try:
            for path in self._directory.glob(f".*{_TEMPORARY}"):
                path.unlink(missing_ok=True)
        except OSError as error:
            raise _storage("clear up", self._directory, error) from error

    def _path(self, uid: str) -> Path:
        return self._directory / f"{checked_uid(uid)}{_SUFFIX}"

    def _temporary(self, uid: str) -> Path:
        return self._directory / f".{checked_uid(uid)}{_TEMPORARY}"

    def _sync(self) -> None:
        """Make names durable. One that failed is owed: a repeated call must not succeed without it."""
        if self._unsynced:
            descriptor = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._unsynced = False

    def _opened(self) -> int:
        return os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _take(self) -> None:
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            while not self._is_locked():
                log.error("the lock in %s was removed while the driver ran: made anew", self._directory)
                stale, self._lock_file = self._lock_file, self._opened()
                os.close(stale)
                fcntl.flock(self._lock_file, fcntl.LOCK_EX)
            self._refresh()
        except OSError as error:
            raise _storage("read", self._directory, error) from error

    def _is_locked(self) -> bool:
        """Whether the lock is the one that others find: on a file that was removed it excludes nobody.

        A directory that is gone isn't made again: what was held nobody knows, so all is refused until a restart.
        """
        held = os.fstat(self._lock_file)
        try:
            found = (self._directory / "lock").stat()
        except FileNotFoundError:
            return False
        return (held.st_dev, held.st_ino) == (found.st_dev, found.st_ino)

    def _refresh(self) -> None:
        """Look at every file, read those that are others than before. Runs at each lock, so it makes no `Path`."""
        found: dict[str, tuple[Identity, Record | Damaged]] = {}
        settled = None
        with os.scandir(self._directory) as entries:
            for entry in entries:
                uid, dot, suffix = entry.name.rpartition(".")
                if uid and dot + suffix == _SUFFIX:
                    identity = _identity(entry.stat(follow_symlinks=False))
                    cached = self._cache.get(uid)
                    if cached is None or cached[0] != identity:
                        cached = identity, _read(uid, Path(entry.path))
                    found[uid] = cached
                elif entry.name == lnc.FILE:
                    identity, settled = _identity(entry.stat(follow_symlinks=False)), self._lnc
                    if settled is None or settled[0] != identity:
                        settled = identity, _read_lnc(Path(entry.path))
        self._cache, self._lnc = found, settled


def _read(uid: str, path: Path) -> Record | Damaged:
    try:
        return decode(path.read_bytes(), uid=uid)
    except (OSError, RecordError) as error:
        return Damaged(uid, path, str(error))


def _read_lnc(path: Path) -> InForce | None:
    try:
        return lnc.decode(path.read_bytes())
    except (OSError, RecordError) as error:
        log.error("%s can't be read (%s): what records hold decides, then what is wished", path, error)  # noqa: TRY400
        return None


def _identity(stat: os.stat_result) -> Identity:
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size)


def _write(path: Path, content: bytes) -> Identity:
    """For root alone, whatever the umask: who can alter a record decides who gets a core."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
        return _identity(os.fstat(file.fileno()))


def load(directory: Path) -> tuple[list[Record], list[Damaged]]:
    """Read all records without a lock, for people who look; nothing is created or changed."""
    entries = [_read(path.stem, path) for path in sorted(directory.glob(f"*{_SUFFIX}"))]
    good = [entry for entry in entries if isinstance(entry, Record)]
    return good, [entry for entry in entries if isinstance(entry, Damaged)]


def _storage(action: str, path: Path, error: OSError) -> Refusal:
    return Refusal(Reason.STORAGE, f"can't {action} {path}: {error.strerror}; free space there, or mount it writable")
