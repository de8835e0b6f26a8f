"""The decorator of all kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from numba import njit
from numba.core.dispatcher import Dispatcher

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> Dispatcher[F]:
    """Compile at the first call, without the GIL; kept on disk where numba finds a place that can be written.

    A kernel that Python calls gives numbers, no arrays: numba runs Python code while it hands an array over, and says
    ``SystemError`` of an exception of a signal handler there.
    """
    try:
        kernel: Dispatcher[F] = njit(nogil=True, cache=True)(function)
    except RuntimeError:  # a read-only installation without a home directory: compiled in each process
        kernel = njit(nogil=True)(function)
    return kernel


def inlined(function: F) -> Dispatcher[F]:
    """The same for a few instructions that belong into their callers."""
    try:
        kernel: Dispatcher[F] = njit(nogil=True, cache=True, inline="always")(function)
    except RuntimeError:
        kernel = njit(nogil=True, inline="always")(function)
    return kernel
