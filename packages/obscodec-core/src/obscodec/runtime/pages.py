"""Chunk: a piece of memory that comes from the operating system and goes back to it, and what is made of chunks."""

import ctypes
import math
import mmap
import sys
from contextlib import suppress
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.segments import Bytes

T = TypeVar("T", bound=np.generic)
_HUGE_PAGE_NBYTES = 1 << 21
_malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None


def new_chunk(nbytes: int) -> Bytes:
    """``u8[nbytes]`` of zeros.

    Its pages become resident when they are first written. They go back to the operating system at once when the last
    array that views them is gone: ``malloc`` keeps freed blocks of this size, so this asks the system for a mapping.

    Raises:
        MemoryError: the system has none left.
    """
    return np.frombuffer(_mapping(nbytes), np.uint8)


def new_huge_chunk(nbytes: int) -> Bytes:
    """:func:`new_chunk` in pages of 2 MiB, where the system has them: an eighth less time to write all of it."""
    if nbytes < _HUGE_PAGE_NBYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return new_chunk(nbytes)
    mapping = _mapping(nbytes + _HUGE_PAGE_NBYTES)  # so that it can begin with a page; what is not written is free
    with suppress(OSError):  # the system has no such pages
        mapping.madvise(mmap.MADV_HUGEPAGE)
    chunk = np.frombuffer(mapping, np.uint8)
    begin = -chunk.ctypes.data % _HUGE_PAGE_NBYTES
    return chunk[begin : begin + nbytes]


def new_table(shape: tuple[int, ...], dtype: type[T]) -> npt.NDArray[T]:
    """An array of zeros in a chunk, of one element or more: rows that were never written take no memory."""
    return new_chunk(math.prod(shape) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)


def doubled(table: npt.NDArray[T]) -> npt.NDArray[T]:
    """A table with twice as many rows, the new ones of zeros."""
    grown = new_table((2 * len(table), *table.shape[1:]), table.dtype.type)
    grown[: len(table)] = table
    return grown


def _mapping(nbytes: int) -> mmap.mmap:
    try:
        if hasattr(mmap, "MAP_PRIVATE"):  # a shared mapping would be written to by forked processes
            return mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        return mmap.mmap(-1, nbytes)
    except OSError as error:
        raise MemoryError(f"the system has no {nbytes} bytes of memory left: {error}") from error


def give_back_free_memory() -> None:
    """Have ``malloc`` give pages that are free back to the operating system, in a C library that can do that.

    Without it, glibc keeps what a compressor worked in, some MB. It takes a fraction of a millisecond; tens of them in
    a process that has freed hundreds of MB in small pieces.
    """
    if _malloc_trim is not None:
        _malloc_trim(ctypes.c_size_t(0))
