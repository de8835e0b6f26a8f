"""Copies from host memory that may change at once: through pinned memory, which is kept until the copy is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

PIECE_NBYTES = 32 << 20  # CuPy rounds pinned memory up to a power of two, and keeps it for the next upload


def copy_through_pinned(host: npt.NDArray[np.uint8], address: Any, keep: Callable[[object], None]) -> None:
    """Queue a copy on the current stream of the current device.

    Args:
        host: ``u8[n]``.
        address: a ``cupy.cuda.MemoryPointer``, where it goes.
        keep: see ``Device.keep``.
    """
    stream = cupy.cuda.get_current_stream()
    for begin in range(0, len(host), PIECE_NBYTES):
        piece = host[begin : begin + PIECE_NBYTES]
        pinned = cupy.cuda.alloc_pinned_memory(len(piece))
        np.copyto(np.frombuffer(pinned, np.uint8, len(piece)), piece)
        (address + begin).copy_from_host_async(pinned.ptr, len(piece), stream)
        keep(pinned)
