"""Files on a disk, where systems differ: when one is safe there, when it can be removed, how long its path may be."""

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

_FULL_SYNC: Final = getattr(fcntl, "F_FULLFSYNC", None)  # of macOS
_NO_FULL_SYNC: Final = errno.ENOTSUP, errno.EINVAL, errno.ENOTTY  # says a file system that has none
_IS_WINDOWS: Final = sys.platform == "win32"
_WAITS_S: Final = (0.01, 0.05, 0.2, 0.5) if _IS_WINDOWS else ()
_MOST_CHARACTERS: Final = 200  # of a folder; Windows takes 259 with a name in it, unless the path has a prefix


def sync(descriptor: int) -> None:
    """Have an open file, or the names in a folder, be on the disk; ``fsync`` of macOS leaves them in the disk's cache.

    Raises:
        OSError: the disk refuses.
    """
    if _FULL_SYNC is not None:
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC)
        except OSError as error:
            if error.errno not in _NO_FULL_SYNC:
                raise
        else:
            return
    os.fsync(descriptor)


def patiently(change: Callable[..., object], *arguments: Any) -> None:
    """Rename or remove a file. Windows refuses this while a reader or a scanner has the file open: then try again."""
    for wait_s in _WAITS_S:
        try:
            change(*arguments)
        except PermissionError:
            time.sleep(wait_s)
        else:
            return
    change(*arguments)


def folder_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a folder, wherever the process goes later; on Windows, files in it may have long paths."""
    return Path(prefixed(os.path.abspath(path))) if _IS_WINDOWS else Path(path).absolute()  # noqa: PTH100


def prefixed(path: str) -> str:
    r"""An absolute path of Windows; a long one with the prefix that lets it be long.

    See "Maximum Path Length Limitation" of Microsoft.

    Example:
        >>> prefixed("C:\\" + 300 * "x")[:8], prefixed("\\\\host\\" + 300 * "x")[:14], prefixed("C:\\x")
        ('\\\\?\\C:\\x', '\\\\?\\UNC\\host\\x', 'C:\\x')
    """
    if len(path) <= _MOST_CHARACTERS or path.startswith("\\\\?\\"):
        return path
    return "\\\\?\\UNC" + path[1:] if path.startswith("\\\\") else "\\\\?\\" + path


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder; it is removed with its files when the context ends, by the process that made it alone.

    A ``tempfile.TemporaryDirectory`` is also removed by a process that is forked meanwhile, when this process ends.
    """
    maker, folder = os.getpid(), Path(tempfile.mkdtemp())
    try:
        yield folder
    finally:
        if os.getpid() == maker:
            shutil.rmtree(folder, ignore_errors=True)  # Windows removes no file that is mapped
