"""Copies from host memory that may change at once: through pinned memory, which is kept until the copy is done."""

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt
from obscodec import HeapFull

PIECE_NBYTES = 32 << 20  # CuPy rounds pinned memory up to a power of two, and keeps it for the next upload


def copy_through_pinned(host: npt.NDArray[np.uint8], address: Any, keep: Callable[[object], None]) -> None:
    """Queue a copy on the current stream of the current device.

    Args:
        host: ``u8[n]``.
        address: a ``cupy.cuda.MemoryPointer``, where it goes.
        keep: see ``Device.keep``.

    Raises:
        HeapFull: the host has not enough memory that can be pinned; the first bytes may be copied then.
    """
    stream = cupy.cuda.get_current_stream()
    for begin in range(0, len(host), PIECE_NBYTES):
        piece = host[begin : begin + PIECE_NBYTES]
        pinned = _pinned(len(piece))
        np.copyto(np.frombuffer(pinned, np.uint8, len(piece)), piece)
        (address + begin).copy_from_host_async(pinned.ptr, len(piece), stream)
        keep(pinned)


def _pinned(nbytes: int) -> Any:
    runtime = cupy.cuda.runtime
    try:
        return cupy.cuda.alloc_pinned_memory(nbytes)
    except runtime.CUDARuntimeError as error:
        raise HeapFull(f"the host can't pin {nbytes:,} bytes to copy them to the device: {error}") from error
