"""Kernels of a codec for images, compiled by another process while this one compiles the kernels before them."""

import atexit
import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from obscodec.kernels import cache_folder, is_on_disk
from obscodec.runtime import n_processors

_COMPILES = "import sys; from obscodec.warming import compile_codec; compile_codec(*sys.argv[1:])"
_FLAGS = sys.flags
_log = logging.getLogger("obscodec")
_asked: dict[str, object] = {}  # by codec, which call looked into it


def change(frames: npt.NDArray[np.generic]) -> float:
    """The share of pixels that differ from the frame before."""
    return float(np.mean(frames[1:] != frames[:-1])) if frames[1:].size else 0.0


def compile_ahead(name: str) -> None:
    """Begin to compile the kernels of a codec for images in a process of its own, once in this one, and say so.

    Nothing happens if they are on disk or can't be kept there. No process begins if there is one processor only, or in
    a process that is itself one of several. This process compiles whatever the other one does not.
    """
    here = object()
    if _asked.setdefault(name, here) is not here:
        return
    # This process is going to encode: at once, or when it has compiled what comes before.
    is_ready = is_on_disk("obscodec.frames", "append_frames")
    order = ("decode", "encode") if is_ready else ("encode", "decode")
    missing = [what for what in order if not is_on_disk(f"obscodec.codecs.formats.images.{name}", f"{what}_items")]
    if not missing or cache_folder() is None:
        return
    _log.warning(f"obscodec compiles the codec {name!r} for images, for 10 to 20 seconds, the first time only")
    processes = sys.modules.get("multiprocessing.process")  # a process of several has it
    is_alone = n_processors() > 1 and not (processes and processes.parent_process())
    # In a program that has Python built in, another name is that of the program.
    if is_alone and Path(sys.executable or "").name.startswith("python"):
        _start([sys.executable, *_flags(), "-c", _COMPILES, name, *missing])


def _start(command: list[str]) -> None:
    null = subprocess.DEVNULL
    folder: str = numba.config.CACHE_DIR  # type: ignore[attr-defined]  # a program may have set it
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder} if folder else None
    try:
        process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, env=environment)
    except OSError:  # no more processes, or no interpreter of this name
        return
    atexit.register(_end, process, os.getpid())
    with suppress(RuntimeError):  # no more threads
        threading.Thread(target=process.wait, daemon=True).start()  # so that no ended process stays


def _flags() -> list[str]:
    """How an interpreter finds modules as this one does, but for those in the current folder, which it leaves out."""
    if _FLAGS.isolated:
        return ["-I"]
    return ["-P", *["-E"] * _FLAGS.ignore_environment, *["-s"] * _FLAGS.no_user_site]


def _end(process: subprocess.Popen[bytes], starter: int) -> None:
    """End the process with this one, which may be a short script; the next one goes on with what is missing.

    A forked process has this exit handler too, and leaves the process to its starter.
    """
    if os.getpid() == starter:
        process.kill()
        process.wait()
