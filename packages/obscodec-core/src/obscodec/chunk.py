"""Chunk: a piece of memory that comes from the operating system and goes back to it."""

from __future__ import annotations

import mmap

import numpy as np

from obscodec.segments import Bytes


def new_chunk(nbytes: int) -> Bytes:
    """``u8[nbytes]`` of zeros.

    Its pages become resident when they are first written. They go back to the operating system at once when the last
    array that views them is gone: ``malloc`` keeps freed blocks of this size, so this asks the system for a mapping.
    """
    if hasattr(mmap, "MAP_PRIVATE"):  # a shared mapping would be written to by forked processes
        memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    else:
        memory = mmap.mmap(-1, nbytes)
    return np.frombuffer(memory, np.uint8)
