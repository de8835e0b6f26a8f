"""Chunks: memory that comes straight from the operating system and goes back to it; and tables in chunks."""

import ctypes
import math
import mmap
import sys
from contextlib import suppress
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.segments import Bytes, Ints

T = TypeVar("T", bound=np.generic)
N = TypeVar("N", int, Ints)
_HUGE_PAGE_NBYTES = 1 << 21
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_malloc_trim = getattr(_libc, "malloc_trim", None)


def new_chunk(nbytes: int) -> Bytes:
    """``u8[nbytes]`` of zeros.

    Its pages become resident when they are first written, and go back to the operating system with the last array that
    views them. ``malloc`` would keep freed blocks of this size, so the chunk is a mapping.

    Raises:
        MemoryError: the system has no memory left.
    """
    return np.frombuffer(_mapping(nbytes), np.uint8)


def new_huge_chunk(nbytes: int) -> Bytes:
    """:func:`new_chunk` in pages of 2 MiB where the system has them, which takes an eighth less time to fill."""
    if nbytes < _HUGE_PAGE_NBYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return new_chunk(nbytes)
    mapping = _mapping(nbytes + _HUGE_PAGE_NBYTES)  # room to begin with a page; it takes no memory unwritten
    with suppress(OSError):  # this system has no such pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    chunk = np.frombuffer(mapping, np.uint8)
    begin = -chunk.ctypes.data % _HUGE_PAGE_NBYTES
    return chunk[begin : begin + nbytes]


def new_table(shape: tuple[int, ...], dtype: type[T]) -> npt.NDArray[T]:
    """An array of zeros, one or more, in a chunk: rows that were never written take no memory."""
    return new_chunk(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)


def in_pages(nbytes: N) -> N:
    """Bytes of the pages in which the first ``nbytes`` of a chunk lie: the memory that they take. An array has many."""
    return -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE


def doubled(table: npt.NDArray[T]) -> npt.NDArray[T]:
    """A copy of a table with twice as many rows, the new ones zero."""
    grown = new_table((2 * len(table), *table.shape[1:]), table.dtype.type)
    grown[: len(table)] = table
    return grown


def _mapping(nbytes: int) -> mmap.mmap:
    try:
        if hasattr(mmap, "MAP_PRIVATE"):  # forked processes would write to a shared mapping
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, nbytes)
    except OSError as error:
        if error.errno is None:  # such as the TimeoutError of a signal handler
            raise
        raise MemoryError(f"the system has no {nbytes} bytes of memory left: {error}") from error


def give_back_free_memory() -> None:
    """Have glibc give free pages back to the operating system; it would keep some MB after a compressor worked.

    It takes a fraction of a millisecond, or tens of them in a process that freed hundreds of MB in small pieces.
    """
    if _malloc_trim is not None:
        _malloc_trim(ctypes.c_size_t(0))
