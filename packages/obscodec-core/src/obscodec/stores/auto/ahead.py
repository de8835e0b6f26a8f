"""Kernels of a codec for images, compiled by another process while this one compiles those that come before."""

import atexit
import multiprocessing
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from obscodec.kernels import cache_folder, is_on_disk
from obscodec.runtime import n_processors

_COMPILES = "import sys; from obscodec.warming import compile_codec; compile_codec(*sys.argv[1:])"
_FORMATS = "obscodec.codecs.formats"
_N_PAIRS = 16


def change(frames: npt.NDArray[np.generic]) -> float:
    """The share of pixels that differ from the frame before, in the first ``frames``."""
    first = frames[: _N_PAIRS + 1]
    return float(np.mean(first[1:] != first[:-1])) if len(first) > 1 else 0.0


@cache
def compile_ahead(name: str) -> None:
    """Begin to compile the kernels of a codec for images in a process of its own, once in this one.

    Nothing happens if they are on disk or can't be kept there, if there is one processor only, or in a process that is
    itself one of several. Whatever the other process does or fails to do, this one compiles what it does not find.
    """
    if n_processors() < 2 or multiprocessing.parent_process() is not None or cache_folder() is None:
        return
    if not Path(sys.executable or "").name.startswith("python"):  # a program that has Python built in
        return
    if is_on_disk(f"{_FORMATS}.{name}"):
        return
    # This process is going to encode: at once, or when it has compiled the codecs that it tries before.
    order = ("decode", "encode") if is_on_disk(f"{_FORMATS}.delta_rle") else ("encode", "decode")
    command = [sys.executable, "-P", "-c", _COMPILES, name, *order]  # -P: no modules out of the current folder
    null = subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null)
    except OSError:  # no more processes, or no interpreter of this name
        return
    atexit.register(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process with this one: nobody waits for its kernels any more."""
    process.kill()
    process.wait()
