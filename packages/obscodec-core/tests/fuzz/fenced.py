"""Memory that shows who goes beyond it: a read or a write behind its end ends the process."""

import ctypes
import mmap

import numpy as np
from obscodec.layout import Rows
from obscodec.segments import Bytes

_FILL = 0xA5
_CANARY = bytes([_FILL]) * 64


class Fenced:
    """Some pages, and behind them one that nobody may touch.

    Args:
        nbytes: the most bytes that are asked for.
    """

    def __init__(self, nbytes: int) -> None:
        n_pages = 1 + -(-nbytes // mmap.PAGESIZE)
        self._pages = np.frombuffer(mmap.mmap(-1, (n_pages + 1) * mmap.PAGESIZE), np.uint8)
        self._memory = self._pages[: n_pages * mmap.PAGESIZE]
        end = self._pages.ctypes.data + self._memory.nbytes
        if ctypes.CDLL(None).mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError("the memory can't be fenced")

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
