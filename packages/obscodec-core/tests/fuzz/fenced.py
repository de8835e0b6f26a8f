"""Memory that shows who goes beyond it: a read or a write behind its end ends the process."""

import ctypes
import mmap
import sys

import numpy as np
from obscodec.layout import Rows
from obscodec.segments import Bytes

_FILL = 0xA5
_CANARY = bytes([_FILL]) * 64


def fenced(nbytes: int, *, before: bool = False) -> Bytes:
    """``u8[nbytes]`` that ends, or begins, at a page that nobody may touch; Windows has no such pages."""
    if sys.platform == "win32":
        return np.empty(nbytes, np.uint8)
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = np.frombuffer(mmap.mmap(-1, size + 2 * mmap.PAGESIZE), np.uint8)
    for fence in (pages.ctypes.data, pages.ctypes.data + mmap.PAGESIZE + size):
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError("the memory can't be fenced")
    begin = mmap.PAGESIZE if before else mmap.PAGESIZE + size - nbytes
    return pages[begin : begin + nbytes]


class Fenced:
    """Memory before a fence, for streams and rows of up to ``nbytes``."""

    def __init__(self, nbytes: int) -> None:
        self._memory = fenced(nbytes + len(_CANARY))

    def holding(self, content: bytes) -> Bytes:
        """``content`` right before the fence."""
        held = self._memory[len(self._memory) - len(content) :]
        held[:] = np.frombuffer(content, np.uint8)
        return held

    def rows(self, n: int, nbytes: int) -> Rows:
        """``u8[n, nbytes]`` right before the fence, to be filled."""
        begin = len(self._memory) - n * nbytes
        self._memory[begin - len(_CANARY) :] = _FILL
        return self._memory[begin:].reshape(n, nbytes)

    def check(self, rows: Rows) -> None:
        """Make sure that nobody has written before ``rows``."""
        begin = len(self._memory) - rows.nbytes
        if self._memory[begin - len(_CANARY) : begin].tobytes() != _CANARY:
            raise AssertionError("bytes before the rows have changed")
