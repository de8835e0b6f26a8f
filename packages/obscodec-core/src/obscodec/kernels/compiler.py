"""The decorators of all kernels."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal, TypeVar

from numba import njit
from numba.core.dispatcher import Dispatcher

F = TypeVar("F", bound=Callable[..., object])
UNCACHED = (
    "numba finds no folder to keep compiled kernels in that it can write, so each process compiles them anew, for some "
    "seconds: set NUMBA_CACHE_DIR to a folder that this user can write"
)
_kernels: list[Dispatcher[Callable[..., object]]] = []


def compiled(function: F, inline: Literal["never", "always"] = "never", *, nogil: bool = True) -> Dispatcher[F]:
    """Compile ``function`` at its first call, to run without the GIL; cached on disk where numba can write.

    A kernel that Python calls returns numbers, never arrays: numba runs Python code to return an array, and turns an
    exception that a signal handler raises there into ``SystemError``.
    """
    try:
        kernel: Dispatcher[F] = njit(nogil=nogil, cache=True, inline=inline)(function)
    except RuntimeError:  # a read-only installation without a home directory: compiled in each process
        kernel = njit(nogil=nogil, inline=inline)(function)
    _kernels.append(kernel)
    return kernel


def compiled_here() -> frozenset[tuple[str, str]]:
    """Name and types of each kernel that was compiled in this process, not loaded."""
    return frozenset(
        (f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}", str(types))
        for kernel in _kernels
        for types in kernel.stats.cache_misses
    )


def cache_folder() -> str | None:
    """The folder that has all that numba compiles; None if there is a kernel for which it can write nowhere."""
    paths: list[str | None] = [kernel.stats.cache_path for kernel in _kernels]
    known = [path for path in paths if path is not None]
    return os.path.commonpath(known) if len(known) == len(paths) else None


def compiled_with_gil(function: F) -> Dispatcher[F]:
    """:func:`compiled` for a short kernel during which no other thread runs Python."""
    return compiled(function, nogil=False)


def inlined(function: F) -> Dispatcher[F]:
    """:func:`compiled` for a few instructions, or for one caller: they become part of each caller.

    LLVM optimizes any other kernel once for itself, and again for each kernel that calls it.
    """
    return compiled(function, inline="always")
