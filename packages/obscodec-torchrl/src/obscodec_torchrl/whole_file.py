"""Replacing a file at once: whenever the writer is killed, the old file is there or the new one, and complete."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished-"  # begins the names of folders beside the file, of writers at work or killed


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Let a block write a new file, and put it in the place of ``path`` when the block ends.

    Folders that killed writers left are removed. If two writers work at the same time, one may lose its folder, and
    fail.

    Args:
        path: of the file, which may exist; its folder must.

    Yields:
        The path at which the block writes the new file, in a temporary folder.

    Raises:
        OSError: the disk refused the new file. Then, and if the block fails, the old file stays; on a file system
            without hard links, the complete new file may be there instead.
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
    """Move the new file out of ``work``, and bring the old one back if the disk refuses the move."""
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
        return  # Windows can't sync a folder
    descriptor = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_unfinished(folder: Path) -> None:
    for work in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(work, ignore_errors=True)
