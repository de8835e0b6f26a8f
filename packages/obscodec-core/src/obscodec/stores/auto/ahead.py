"""Kernels that another process compiles, while this one goes on."""

import atexit
import importlib
import logging
import os
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt

from obscodec.codecs import check_codec
from obscodec.kernels import WARM, cache_folder, is_on_disk, load_numba
from obscodec.runtime import n_processors
from obscodec.stores.auto.candidates import CANDIDATES

_COMPILES = "import sys; from obscodec.warming import compile_codec; compile_codec(*sys.argv[1:])"
_COMPILES_BUFFERS = "from obscodec.warming import compile_buffers; compile_buffers()"
# Kernels that buffers call, the last ones to be compiled among them.
_OF_BUFFERS = (
    ("obscodec.frames", "append_frames"),
    ("obscodec.frames", "exchange_step"),
    ("obscodec.frames", "find_frames"),
    ("obscodec.columns", "take_items"),
)
_FLAGS = sys.flags
_WARMING = "obscodec.warming"
_MOST_SECONDS = 30  # that compiling takes, mostly
_log = logging.getLogger("obscodec")
_asked: dict[str, object] = {}  # by codec, which call looked into it
NOW = "OBSCODEC_COMPILE"  # the variable that is "now" if kernels are compiled when the first store is made
_prepared: set[str] = set()  # has something as soon as kernels of buffers are there, or another process compiles them


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
    _log.warning(
        f"obscodec compiles the codec {name!r} for images, for 10 to 30 seconds, the first time only; your program "
        f"goes on meanwhile; {WARM}"
    )
    if (process := _start(_COMPILES, name, *missing)) is not None:
        with suppress(RuntimeError):  # no more threads
            threading.Thread(target=process.wait, daemon=True).start()  # so that no ended process stays


@cache
def load_ahead() -> None:
    """Import what the background calls, in a tenth of the time that numba takes.

    A process that is forked in the middle of an import would keep half of a module.
    """
    load_numba()
    importlib.import_module(_WARMING)
    for candidate in CANDIDATES:
        check_codec(candidate.spec)


def compile_here() -> None:
    """Have this process compile what it calls: it does so for others, or somebody waits for it."""
    _prepared.add("here")


def prepare() -> None:
    """Have the kernels that buffers call compiled, on disk or here. The first time, it takes some 20 seconds.

    Another process compiles them, so that the threads of this one go on; where it can't, the caller does.
    """
    if _prepared or all(is_on_disk(*kernel) for kernel in _OF_BUFFERS):
        compile_here()
        return
    process = None if cache_folder() is None else _start(_COMPILES_BUFFERS)
    if process is not None:
        _log.warning(
            "obscodec compiles its kernels for this machine, for 10 to 30 seconds, the first time only; your program "
            f"goes on meanwhile, and observations wait uncompressed; {WARM}"
        )
        _wait(process)
    compile_here()
    if process is None or process.returncode:
        importlib.import_module(_WARMING).compile_buffers()  # a room above this one


def _wait(process: "subprocess.Popen[bytes]") -> None:
    """Wait for a process, and show how long that takes, if there is a terminal; it may have been closed, or close."""
    shows, seconds, is_done = False, 0, False
    with suppress(AttributeError, OSError, ValueError):
        shows = sys.stderr.isatty()
    while not is_done:
        try:
            process.wait(1 if shows else None)
            is_done, text = True, "\r\033[K"  # an empty line
        except subprocess.TimeoutExpired:
            seconds += 1
            done = "#" * min(seconds, _MOST_SECONDS)
            text = f"\robscodec compiles [{done:{_MOST_SECONDS}}] {seconds} s"
        if shows:
            with suppress(AttributeError, OSError, ValueError):
                sys.stderr.write(text)
                sys.stderr.flush()


def _start(program: str, *arguments: str) -> "subprocess.Popen[bytes] | None":
    """Run a program of Python in a process that ends with this one; None if there should be, or can be, no other."""
    processes = sys.modules.get("multiprocessing.process")  # a process of several has it
    is_alone = n_processors() > 1 and not (processes and processes.parent_process())
    # In a program that has Python built in, another name is that of the program.
    if not is_alone or not Path(sys.executable or "").name.startswith("python"):
        return None
    command = [sys.executable, *_flags(), "-c", program, *arguments]
    null = subprocess.DEVNULL
    folder: str = numba.config.CACHE_DIR  # type: ignore[attr-defined]  # a program may have set it
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder} if folder else None
    try:
        process = subprocess.Popen(command, stdin=null, stdout=null, stderr=null, env=environment)
    except OSError:  # no more processes, or no interpreter of this name
        return None
    atexit.register(_end, process, os.getpid())
    return process


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
