"""The decorators of all kernels."""

from __future__ import annotations

import logging
import mmap
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from llvmlite.binding.ffi import lib  # type: ignore[import-untyped]
from numba import njit
from numba.core.caching import FunctionCache
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target

F = TypeVar("F", bound=Callable[..., object])
Names = frozenset[tuple[str, str]]
UNCACHED = (
    "numba finds no writable folder for compiled kernels, so each process compiles them anew, for half a minute or "
    "more: set NUMBA_CACHE_DIR to a folder that this user can write"
)
WARM = "`python -m obscodec warm` compiles all kernels ahead"
COMPILING: Any = getattr(global_compiler_lock, "_lock", None)  # the lock that a thread holds while it compiles
_LOCKS = [lock for lock in (COMPILING, getattr(getattr(lib, "_lock", None), "_lock", None)) if lock is not None]
_LOCKING = {"numba.core.compiler_lock", "llvmlite.binding.ffi"}  # where these are taken
# What reading a damaged pickle raises, such as of a file that lost its content when a machine went down.
_DAMAGED = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, LookupError, TypeError, ValueError)
_LEAST_NBYTES = 1 << 25  # of memory that LLVM needs to load a kernel; the first takes 20 MB, most 1 to 4
_log = logging.getLogger("obscodec")
_kernels: list[Dispatcher[Callable[..., object]]] = []
_unkept: set[tuple[str, str]] = set()


class KernelNames(NamedTuple):
    """Name and types of each kernel that this process compiled, loaded from disk, or could not write there."""

    compiled: Names
    loaded: Names
    unkept: Names


class _Files(FunctionCache):
    """Numba's files of a kernel. One that can't be read or written, or is damaged, costs time, and no more."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What is on disk, None if there is nothing of use.

        Raises:
            MemoryError: the process can take no more memory. LLVM would end it.
        """
        _require_memory()
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except OSError:
            return None  # compiled anew; saving tells if the folder is at fault
        except _DAMAGED:
            self._remove_index()  # saving would read it, too
            return None
        # Two processes that add kernels to an index at once may give both the same file.
        return found if found is None or found.signature.args == tuple(sig) else None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Write to disk if possible."""
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except (OSError, *_DAMAGED) as error:
            self._remove_index()  # it may take an older file for this kernel
            if not _unkept:
                _log.warning(
                    f"obscodec compiles its kernels, and can't keep them in {self.cache_path} ({error}), so each "
                    "process compiles them anew, for half a minute or more: make room there, or set NUMBA_CACHE_DIR to "
                    "another folder"
                )
            _unkept.add((_name(self._py_func), str(sig)))

    def _remove_index(self) -> None:
        with suppress(OSError):
            Path(self._cache_file._index_path).unlink(missing_ok=True)


def _require_memory() -> None:
    try:
        mmap.mmap(-1, _LEAST_NBYTES).close()
    except OSError as error:
        text = f"there are no {_LEAST_NBYTES} bytes of memory left, which loading a compiled function may take"
        raise MemoryError(text) from error


def compiled(function: F, inline: Literal["never", "always"] = "never", *, nogil: bool = True) -> Dispatcher[F]:
    """Compile ``function`` at its first call, cached on disk where numba can write.

    It runs without the GIL, but for a short kernel during which no other thread shall run Python.

    A kernel that Python calls returns numbers, never arrays: numba runs Python code to return an array, and turns an
    exception that a signal handler raises there into ``SystemError``.

    To load a kernel takes memory. So whoever calls one that undoes a change, calls it once with nothing to undo before
    the first change.
    """
    kernel: Dispatcher[F]
    # Nobody calls kernels from C: without wrappers for it, less is compiled.
    kernel = njit(nogil=nogil, inline=inline, no_cfunc_wrapper=True)(function)  # type: ignore[call-overload]
    with suppress(RuntimeError):  # a read-only installation without a home directory: compiled in each process
        kernel._cache = _Files(function)  # type: ignore[attr-defined, no-untyped-call]
    _kernels.append(kernel)
    return kernel


@cache
def load_numba() -> None:
    """Load what numba needs before the first kernel, in half a second, which is no matter before a loop begins.

    Else a kernel loads it, perhaps in the background: all of that is Python, for which other threads wait.
    """
    with global_compiler_lock:
        cpu_target.target_context.refresh()


def release_left_locks() -> None:
    """Release the locks of numba and of LLVM that an exception from a signal handler has left to this thread.

    They take them in a line of Python, and enter ``with`` in a later one. Once that happened, this thread could compile
    kernels, and load them, and others would wait for ever.
    """
    left = [lock for lock in _LOCKS if lock._is_owned()]
    frame = sys._getframe() if left else None
    while frame is not None:
        if frame.f_globals.get("__name__") in _LOCKING:
            return  # this call is made in the middle of theirs
        frame = frame.f_back
    for lock in left:
        while lock._is_owned():
            lock.release()


def kernels_here() -> KernelNames:
    """The kernels of this process."""
    missed, found = set[tuple[str, str]](), set[tuple[str, str]]()
    for kernel in _kernels:
        missed |= {(_name(kernel.py_func), str(types)) for types in kernel.stats.cache_misses}
        found |= {(_name(kernel.py_func), str(types)) for types in kernel.stats.cache_hits}
    return KernelNames(frozenset(missed), frozenset(found), frozenset(_unkept))


def _name(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def is_on_disk(package: str, name: str) -> bool:
    """Whether numba has kept the kernel ``name`` of a package, which it does when all that it calls are kept."""
    for kernel in _kernels:
        folder, code = kernel.stats.cache_path, kernel.py_func.__code__
        if code.co_name == name and folder and kernel.py_func.__module__.startswith(f"{package}."):
            return any(Path(folder).glob(f"*.{name}-{code.co_firstlineno}.*.nbi"))
    return False


def cache_folder() -> str | None:
    """The folder that has all that numba compiles; None if there is a kernel for which it can write nowhere."""
    paths: list[str | None] = [kernel.stats.cache_path for kernel in _kernels]
    known = [path for path in paths if path is not None]
    return os.path.commonpath(known) if len(known) == len(paths) else None


def inlined(function: F) -> Dispatcher[F]:
    """:func:`compiled` for a few instructions, or for one caller: they become part of each caller.

    LLVM optimizes any other kernel once for itself, and again for each kernel that calls it.
    """
    return compiled(function, inline="always")
