"""A file that is replaced at once: the old one is there until the new one is, whenever the writer is killed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished-"  # folders beside the file, of writers that are at work or were killed


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Put what the block writes in the place of a file, when the block is done.

    What killed writers left is removed. Of two writers at the same time, one may find that its work is gone, and fail.

    Args:
        path: of the file, which may be there, in a folder that is.

    Yields:
        Where the block writes the new file, in a folder of its own. What else it writes into that is removed.

    Raises:
        OSError: the new file could not be brought to the disk. Then, and if the block fails, the old file is there; on
            a file system without hard links it may be the new one, which is complete.
    """
    _remove_unfinished(path.parent)
    work = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=path.parent))
    try:
        yield work / path.name
        _bring_to_disk(work / path.name)
        _exchange(path, work)
    finally:
        _remove_unfinished(path.parent)


def _exchange(path: Path, work: Path) -> None:
    """Move the new file out of ``work``, and back if the disk does not take that."""
    old, is_new = work / "old", not path.exists()
    if not is_new:
        with suppress(OSError):
            os.link(path, old)
    (work / path.name).replace(path)
    try:
        _bring_to_disk(path.parent)
    except BaseException:
        if is_new:
            path.unlink()
        elif old.exists():
            old.replace(path)
        raise


def _bring_to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, outlast a loss of power."""
    if os.name == "nt" and path.is_dir():
        return  # Windows can't be asked to
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_unfinished(folder: Path) -> None:
    for work in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(work, ignore_errors=True)
