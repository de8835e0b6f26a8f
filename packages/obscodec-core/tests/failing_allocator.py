"""Allocations that fail, one after the other, in a process of its own that is started by :func:`run_with`."""

import ctypes
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from new_python import run_python
from obscodec.frames.sealer import TRAINER
from obscodec.stores.auto.looks import LOOKER
from obscodec.stores.auto.move import MOVER

SOURCE = Path(__file__).with_suffix(".c")


def run_with(script: Path, *arguments: str, folder: Path) -> str:
    """What a Python script prints in a process whose allocator can fail; its errors are ours."""
    if sys.platform != "linux" or shutil.which("cc") is None:
        pytest.skip("needs cc and LD_PRELOAD of Linux, to replace malloc")
    library = folder / "failing_allocator.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SOURCE], check=True)
    return run_python(script, *arguments, LD_PRELOAD=str(library))


def choose_in_the_caller() -> None:
    """Have stores choose and train codecs in the call that is due, so that only its allocations fail."""

    def no_thread(job: object) -> None:
        raise RuntimeError("can't start new thread")

    MOVER.put = LOOKER.put = TRAINER.put = no_thread


def at_every_allocation(
    prepare: Callable[[], Callable[[], object]], step: int = 1, *, spare_torch: bool = False
) -> Iterator[str]:
    """Have the first allocation of a call fail, then the second one, and so on to its end.

    Args:
        prepare: gives the call, anew for each allocation.
        step: how many allocations to go on each time.
        spare_torch: leave out those of torch, which ends the process if one fails.

    Yields:
        The error that the call raised, after that; ``""`` if it raised none.

    Raises:
        AssertionError: it raised something else than ``MemoryError``.
    """
    library = ctypes.CDLL(None)
    if spare_torch:
        library.spare_torch()
    fail = library.fail_allocation
    fail.restype, fail.argtypes = ctypes.c_long, [ctypes.c_long]
    at = n_short = 0
    while True:
        call, error = prepare(), None
        fail(at)
        try:
            call()
        except BaseException as raised:
            left = fail(-1)
            error = raised
        else:
            left = fail(-1)
        if left >= 0:  # it had fewer allocations, as some calls have
            if error is not None:
                raise error
            n_short += 1
            if n_short == 8:
                return
            yield ""
            continue
        if error is not None and not isinstance(error, MemoryError):
            raise AssertionError(f"allocation {at}: {error!r}") from error
        yield "" if error is None else repr(error)
        at, n_short = at + step, 0
