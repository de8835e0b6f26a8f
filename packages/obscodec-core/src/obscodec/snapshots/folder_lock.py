"""A lock on a folder, by which one process writes to it at a time."""

import os
import tempfile
import weakref
from pathlib import Path
from typing import Final

import xxhash

from obscodec.errors import SnapshotError
from obscodec.runtime import PicklableLock

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]
    import msvcrt


class FolderLock:
    """A context in which no other process writes to a folder; SnapshotError if another one has the lock.

    The system ends it for a process that is killed. An exception from a signal handler may come before the context
    ends: then the lock goes with this object. A process that is forked meanwhile gives up its part of the lock at once:
    otherwise it would have it as long as it lives.
    """

    _descriptor = -1

    def __init__(self, path: Path) -> None:
        _held.add(self)
        with _NO_FORKS:
            self._descriptor = os.open(_locked_file(path), _FLAGS)
        try:
            _lock(self._descriptor)
        except (BlockingIOError, PermissionError):
            raise SnapshotError(f"{path} is being written by somebody else: use another folder") from None

    def close(self) -> None:
        """Let others write; a second call does nothing."""
        with _NO_FORKS:
            if self._descriptor >= 0:
                _unlock(self._descriptor)  # a process that was forked just now may not have given up its part
            self.give_up()

    def give_up(self) -> None:
        """Give up the part of this process, which was forked; the other process has the lock as before."""
        with _NO_FORKS:
            descriptor, self._descriptor = self._descriptor, -1
            if descriptor >= 0:
                os.close(descriptor)

    def __enter__(self) -> "FolderLock":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


if fcntl is not None:
    _FLAGS = os.O_RDONLY

    def _locked_file(path: Path) -> Path:
        return path

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)

else:
    _FLAGS = os.O_RDWR | os.O_CREAT

    def _locked_file(path: Path) -> Path:
        """A file that stands for the folder, which Windows can't lock. It stays, empty."""
        name = xxhash.xxh3_128_hexdigest(os.fsencode(os.path.normcase(path.resolve())))
        return Path(tempfile.gettempdir(), f"obscodec-{name}.lock")

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

    def _unlock(descriptor: int) -> None:
        """Do nothing: no process is forked here, and the lock ends when its file is closed."""


# Held while a descriptor is open that no object names: a process that is forked then would keep its part of the lock.
_NO_FORKS: Final = PicklableLock()
_held: "weakref.WeakSet[FolderLock]" = weakref.WeakSet()


def _give_up_all() -> None:
    for lock in list(_held):
        lock.give_up()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_give_up_all)
