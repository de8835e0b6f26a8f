"""Kernels that another process compiles, while this one goes on."""

import atexit
import importlib
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numba

from obscodec.codecs import check_codec
from obscodec.kernels import WARM, cache_folder, is_on_disk, load_numba
from obscodec.runtime import n_processors
from obscodec.stores.auto.candidates import CANDIDATES

# Kernels that buffers call, the last ones to be compiled among them.
_OF_BUFFERS = (
    ("obscodec.frames", "append_frames"),
    ("obscodec.frames", "exchange_step"),
    ("obscodec.frames", "find_frames"),
    ("obscodec.columns", "take_items"),
)
_BUFFERS = "compile_buffers()"
_FLAGS = sys.flags
_WARMING = "obscodec.warming"
_log = logging.getLogger("obscodec")
_asked: dict[str, object] = {}  # by what is to be compiled, the call of this process that sees to it
NOW = "OBSCODEC_COMPILE"  # the variable that is "now" if kernels are compiled when the first store is made


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
    _asked[_BUFFERS] = None


def prepare() -> None:
    """Have the kernels that buffers call compiled, on disk or here. The first time, it takes some 20 seconds.

    Another process compiles them, so that the threads of this one go on; where it can't, the caller does.
    """
    what = "its kernels for this machine", ", and observations wait uncompressed"
    if not _are_there(_BUFFERS, _OF_BUFFERS, *what):
        importlib.import_module(_WARMING).compile_buffers()  # a room above this one


def prepare_codec(name: str) -> None:
    """:func:`prepare` for a codec of images. Where no other process can be, its first call compiles."""
    package = f"obscodec.codecs.formats.images.{name}"
    kernels = (package, "encode_items"), (package, "decode_items")
    _are_there(f"compile_codec({name!r})", kernels, f"the codec {name!r} for images")


def _are_there(call: str, kernels: Sequence[tuple[str, str]], what: str, meanwhile: str = "") -> bool:
    """Whether kernels are on disk; if not, and once in this process, another one makes a ``call`` of ``warming`` first.

    It is waited for. No process begins if there is one processor only, or in a process that is itself one of several.
    """
    here = object()
    if _asked.setdefault(call, here) is not here or all(is_on_disk(*kernel) for kernel in kernels):
        return True
    process = None if cache_folder() is None else _start(f"from obscodec import warming; warming.{call}")
    if process is None:
        return False
    _log.warning(
        f"obscodec compiles {what}, for half a minute or more, the first time only; your program goes on meanwhile"
        f"{meanwhile}; {WARM}"
    )
    return process.wait() == 0


def _start(program: str) -> "subprocess.Popen[bytes] | None":
    """Run a program of Python in a process that ends with this one; None if there should be, or can be, no other."""
    processes = sys.modules.get("multiprocessing.process")  # a process of several has it
    is_alone = n_processors() > 1 and not (processes and processes.parent_process())
    # In a program that has Python built in, another name is that of the program.
    if not is_alone or not Path(sys.executable or "").name.startswith("python"):
        return None
    command = [sys.executable, *_flags(), "-c", program]
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
