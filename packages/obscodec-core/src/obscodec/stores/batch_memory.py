"""BatchMemory: memory for batches that is used again once nobody holds the batch that is in it.

A fresh array of 14 MB costs more in page faults than in writing it. So a batch is an array over memory that comes back
when the last array, tensor or view of it is gone, and never before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.devices import backend
from obscodec.layout import Layout
from obscodec.runtime import new_huge_chunk
from obscodec.segments import Bytes
from obscodec.stores.store import Store

_MIN_NBYTES = 1 << 16  # below, a new array costs little
_KEPT = 2  # one batch that is used, one that is prepared
_MAX_KEPT_NBYTES = 1 << 28  # larger ones go back to the operating system


class _Lease:
    """Memory that goes back when this object does: numpy keeps it alive for as long as any view of the array."""

    _lent: tuple[Callable[[Bytes], None], Bytes] | None = None  # nothing before there is an array of it

    def __init__(self, memory: Bytes, give: Callable[[Bytes], None]) -> None:
        self.__array_struct__ = memory.__array_struct__  # which numpy takes faster than __array_interface__
        self._lent = give, memory

    def __del__(self) -> None:
        if self._lent is not None:
            give, memory = self._lent
            give(memory)


class BatchMemory:
    """A source of arrays whose memory is used again. Safe to use from several threads.

    It keeps the memory of two batches, of 256 MiB each at most, for as long as it lives.

    Args:
        allocate: where new memory comes from: called with a number of bytes, gives ``u8[nbytes]``. Pinned memory, for
            instance.

    Example:
        >>> memory = BatchMemory()
        >>> batch = memory.array(256, Layout((84, 84), np.uint8))
        >>> address = batch.ctypes.data
        >>> del batch
        >>> memory.array(256, Layout((84, 84), np.uint8)).ctypes.data == address
        True
    """

    def __init__(self, allocate: Callable[[int], Bytes] = new_huge_chunk) -> None:
        self._allocate = allocate
        self._free: list[Bytes] = []
        self._lock = threading.RLock()  # a batch can go back while the garbage collector runs in here

    def array(self, n: int, layout: Layout) -> npt.NDArray[np.generic]:
        """An array ``[n, *shape]`` with unknown content, which nobody else holds."""
        nbytes = n * layout.nbytes
        if nbytes < _MIN_NBYTES:
            return np.empty((n, *layout.shape), layout.dtype)
        lease = _Lease(self._take(nbytes), self._give)
        return layout.tensors(np.asarray(lease)[:nbytes].reshape(n, layout.nbytes))

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept for the next batches."""
        with self._lock:
            return sum(memory.nbytes for memory in self._free)

    def _take(self, nbytes: int) -> Bytes:
        with self._lock:
            for memory in list(self._free):  # the collector may give memory back while this runs
                if nbytes <= memory.nbytes <= 2 * nbytes:
                    self._free = [other for other in self._free if other is not memory]
                    return memory
        return self._allocate(nbytes)

    def _give(self, memory: Bytes) -> None:
        with self._lock:
            if memory.nbytes <= _MAX_KEPT_NBYTES:
                self._free.append(memory)
            del self._free[:-_KEPT]

    def __reduce__(self) -> tuple[type[BatchMemory], tuple[Callable[[int], Bytes]]]:
        return BatchMemory, (self._allocate,)


BATCH_MEMORY = BatchMemory()  # for all buffers of the process


def new_batch(store: Store, n: int) -> Any:
    """An array for ``n`` tensors of a store, where that decodes them: in memory that is used again, or on its device.

    Raises:
        HeapFull: the device has not enough free memory.
    """
    if store.device == "cpu":
        return BATCH_MEMORY.array(n, store.layout)
    return backend(store.device).empty(store.device, n, store.layout)
