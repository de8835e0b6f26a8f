"""HostToDevice: arrays of a device that the CPU decodes into, through pinned memory that is used again."""

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec_cupy.device.device import Device, Mark

_KEPT = 2  # pieces of pinned memory: one that is copied from, one that is filled
_STEP_NBYTES = 1 << 20  # of their sizes, so that a batch that is a little larger than the last one needs no new memory


class HostToDevice:
    """Fills arrays of one device. Safe to use from several threads."""

    def __init__(self) -> None:
        self._memories: list[tuple[npt.NDArray[np.uint8], Mark]] = []  # and when they can be filled again
        self._lock = threading.Lock()

    def fill(self, device: Device, out: Any, decode: Callable[[npt.NDArray[np.generic]], None]) -> None:
        """Have ``decode`` fill pinned memory, and queue a copy of that; see ``Backend.fill``."""
        with device.on_stream_of(out):
            target = device.view(out)
            memory = self._take(device, target.nbytes)
            filled = memory[: target.nbytes]
            decode(filled.view(target.dtype).reshape(target.shape))
            device.write_from(filled, target)
            self._give(memory, device.mark())

    def _take(self, device: Device, nbytes: int) -> npt.NDArray[np.uint8]:
        with self._lock:
            for i, (memory, copied) in enumerate(self._memories):
                if len(memory) >= nbytes and copied.passed():
                    del self._memories[i]
                    return memory
        return device.pinned(-(-nbytes // _STEP_NBYTES) * _STEP_NBYTES)

    def _give(self, memory: npt.NDArray[np.uint8], copied: Mark) -> None:
        with self._lock:
            self._memories.append((memory, copied))
            older = self._memories[:-_KEPT]
            self._memories[:-_KEPT] = [(m, c) for m, c in older if not c.passed()]
