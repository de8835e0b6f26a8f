"""Copies from host memory that may change at once: through pinned memory, which is kept until the copy is done."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import cupy
import numpy as np
import numpy.typing as npt

from obscodec_cupy.device import Mark
from obscodec_cupy.events import EventMark

PIECE_NBYTES = 32 << 20  # CuPy rounds pinned memory up to a power of two, and keeps it for the next upload


class Uploads:
    """The copies of one device that are under way."""

    def __init__(self) -> None:
        self._under_way: deque[tuple[Mark, Any]] = deque()
        self._lock = threading.Lock()

    def copy(self, host: npt.NDArray[np.uint8], address: Any) -> None:
        """Queue a copy of ``u8[n]`` to a ``cupy.cuda.MemoryPointer`` on the current stream of the current device."""
        stream = cupy.cuda.get_current_stream()
        for begin in range(0, len(host), PIECE_NBYTES):
            piece = host[begin : begin + PIECE_NBYTES]
            pinned = cupy.cuda.alloc_pinned_memory(len(piece))
            np.copyto(np.frombuffer(pinned, np.uint8, len(piece)), piece)
            (address + begin).copy_from_host_async(pinned.ptr, len(piece), stream)
            self._keep_until(EventMark(), pinned)

    def _keep_until(self, done: Mark, pinned: Any) -> None:
        with self._lock:
            self._under_way.append((done, pinned))
            while self._under_way and self._under_way[0][0].passed():
                self._under_way.popleft()
