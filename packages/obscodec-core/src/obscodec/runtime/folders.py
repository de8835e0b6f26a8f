"""A temporary folder that a forked process leaves alone."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
