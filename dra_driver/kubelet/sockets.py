"""One gRPC server on one unix socket, and the socket files of instances that died.

Invariants: a public name appears only when its server answers, by rename, which the kubelet's watcher sees as
one creation; modes don't depend on the caller's umask; only what is ours or dead is ever removed. gRPC itself
replaces an existing socket in silence, even a live one, and on stop unlinks by name whatever lies there by
then: it never gets to know the public name.
"""

import fcntl
import os
import re
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

from dra_driver.errors import KubeletError
from dra_driver.kubelet.names import dot_name

# The umask belongs to the process: two threads that change it would restore each other's value.
_UMASK = threading.Lock()
_CONNECT_TIMEOUT = 1.0


class SocketServer:
    """A gRPC server that is reachable under `path` from `start` until `unlink`."""

    def __init__(self, path: Path, *, add: Callable[[grpc.Server], None], workers: int, name: str) -> None:
        self.path = path
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix=name)
        self._server = grpc.server(self._pool)
        add(self._server)
        self._identity: tuple[int, int] | None = None

    def start(self) -> None:
        """Bind, serve and publish; raises KubeletError, after which nothing is left behind."""
        if os.path.lexists(self.path):
            raise KubeletError(
                f"can't serve {self.path}: the name is taken, either by an instance with the same name that "
                "still runs or by a file that isn't a socket; stop or remove it"
            )
        try:
            self._bind(dot_name(self.path))
        except (RuntimeError, OSError) as error:
            self.stop(0)
            raise KubeletError(f"can't serve {self.path}: {_reason(self.path.parent, error)}") from error

    def _bind(self, hidden: Path) -> None:
        with _private_umask():
            self._server.add_insecure_port(f"unix:{hidden}")
        self._server.start()
        self._identity = _identity(hidden)
        hidden.rename(self.path)

    def still_ours(self) -> bool:
        """Whether the public name leads to this server; its inode isn't given anew while it is bound."""
        return self._identity is not None and _identity(self.path) == self._identity

    def unlink(self) -> None:
        """Take the public name away, unless somebody else has it by now."""
        if self.still_ours():
            self.path.unlink(missing_ok=True)

    def stop(self, grace: float) -> None:
        """Refuse new calls, give running ones `grace` seconds, and wait for the end."""
        self._server.stop(grace).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)


def prepare_plugin_dir(path: Path) -> None:
    """Make the driver's own folder, 0750; raises KubeletError where its parent is missing or read-only."""
    try:
        path.mkdir(mode=0o750, exist_ok=True)
    except OSError as error:
        raise KubeletError(f"can't make the plugin folder {path}: {_reason(path.parent, error)}") from error


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that an instance that is just binding isn't taken for a dead one."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise KubeletError(f"can't use {folder}: {_reason(folder, error)}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_dead(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Unlink the sockets of that name pattern on which nobody listens; the kubelet would dial them for hours.

    One that answers, or of which it can't be told, stays (kubernetes#132660). Hold `exclusive` meanwhile.
    """
    try:
        found = [path for path in sorted(folder.iterdir()) if pattern.fullmatch(path.name) and _is_dead(path)]
        for path in found:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise KubeletError(f"can't clean up sockets in {folder}: {_reason(folder, error)}") from error
    return found


def live(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """Sockets of that name pattern on which somebody listens, or of which it can't be told.

    A folder that isn't there has none; raises KubeletError where it can't be read.
    """
    try:
        found = [path for path in sorted(folder.iterdir()) if pattern.fullmatch(path.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KubeletError(f"can't look for sockets in {folder}: {error.strerror}") from error
    return [path for path in found if _identity(path) is not None and not _is_dead(path)]


def _is_dead(path: Path) -> bool:
    if _identity(path) is None:
        return False
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_CONNECT_TIMEOUT)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None


@contextmanager
def _private_umask() -> Iterator[None]:
    """Whoever reaches the socket can have devices prepared: 0700, whatever the umask (BC-010)."""
    with _UMASK:
        before = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(before)


def _reason(folder: Path, error: Exception) -> str:
    """The cause in words; gRPC writes it to stderr only and raises a bare RuntimeError."""
    if not folder.is_dir():
        return f"the folder {folder} doesn't exist; check the kubelet's --root-dir and this driver's folders"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"the folder {folder} isn't writable for uid {os.geteuid()}; the driver runs as root"
    return str(error)
