"""The decorators of all kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from numba import njit
from numba.core.dispatcher import Dispatcher

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F, inline: Literal["never", "always"] = "never", *, nogil: bool = True) -> Dispatcher[F]:
    """Compile ``function`` at its first call, to run without the GIL; cached on disk where numba can write.

    A kernel that Python calls returns numbers, never arrays: numba runs Python code to return an array, and turns an
    exception that a signal handler raises there into ``SystemError``.
    """
    try:
        kernel: Dispatcher[F] = njit(nogil=nogil, cache=True, inline=inline)(function)
    except RuntimeError:  # a read-only installation without a home directory: compiled in each process
        kernel = njit(nogil=nogil, inline=inline)(function)
    return kernel


def compiled_with_gil(function: F) -> Dispatcher[F]:
    """:func:`compiled` for a short kernel during which no other thread runs Python."""
    return compiled(function, nogil=False)


def inlined(function: F) -> Dispatcher[F]:
    """:func:`compiled` for a few instructions, or for one caller: they become part of each caller.

    LLVM optimizes any other kernel once for itself, and again for each kernel that calls it.
    """
    return compiled(function, inline="always")
