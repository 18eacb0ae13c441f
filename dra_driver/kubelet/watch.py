"""A trigger for scans: something may have changed in these folders.

Level based: events are never read for what they say, only as a reason to look; a slow timer is another, since
inotify loses events on overflow, and its watch on a folder that is removed and made again. So a missed event
costs a delay, never a wrong state.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from watchdog.events import (
    DirDeletedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

if TYPE_CHECKING:
    from watchdog.observers.api import ObservedWatch

_log = logging.getLogger(__name__)

# Not opened, closed or modified: one's own reads would wake the handler.
_EVENTS: Final[list[type[FileSystemEvent]]] = [
    FileCreatedEvent,
    FileDeletedEvent,
    FileMovedEvent,
    DirDeletedEvent,
]


class FolderWatch(FileSystemEventHandler):
    """Calls `trigger`, which must be quick, on events in the folders; `rearm` follows remade folders."""

    def __init__(self, folders: Sequence[Path], trigger: Callable[[], None]) -> None:
        self._folders = tuple(dict.fromkeys(folders))
        self._trigger = trigger
        self._observer = Observer()
        self._watches: dict[Path, tuple[int, ObservedWatch]] = {}
        self._warned: set[Path] = set()
        self._running = threading.Event()

    def start(self) -> None:
        """Begin to watch those folders that exist."""
        try:
            self._observer.start()
            self._running.set()
        except OSError as error:
            _log.warning("no inotify (%s): changes are seen by the timer only", error)
        self.rearm()

    def rearm(self) -> None:
        """Watch folders that have appeared or were made again since the last time."""
        for folder in self._folders if self._running.is_set() else ():
            inode = _inode(folder)
            known = self._watches.get(folder)
            if known and known[0] != inode:
                self._watches.pop(folder)
                self._observer.unschedule(known[1])
            if inode and folder not in self._watches:
                self._schedule(folder, inode)

    def _schedule(self, folder: Path, inode: int) -> None:
        try:
            watch = self._observer.schedule(self, str(folder), event_filter=_EVENTS)
        except OSError as error:
            if folder not in self._warned:
                _log.warning("can't watch %s (%s): changes are seen by the timer only", folder, error)
            self._warned.add(folder)
            return
        self._watches[folder] = (inode, watch)
        self._trigger()

    def stop(self) -> None:
        """Stop watching."""
        if self._running.is_set():
            self._running.clear()
            self._observer.stop()
            self._observer.join()

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 -- see above
        """Any event is a reason to look."""
        self._trigger()


def _inode(folder: Path) -> int:
    try:
        return folder.stat().st_ino
    except OSError:
        return 0
