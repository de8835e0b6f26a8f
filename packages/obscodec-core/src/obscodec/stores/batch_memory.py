"""BatchMemory: memory for batches, used again as soon as nobody holds the batch in it.

A fresh array of 14 MB costs more in page faults than in writing it. So a batch is an array over memory that comes back
when its last array, tensor or view is gone, and never before.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.devices import backend
from obscodec.layout import Layout
from obscodec.runtime import PicklableLock, new_huge_chunk
from obscodec.segments import Bytes
from obscodec.stores.store import Store

_MIN_NBYTES = 1 << 16  # below, a new array costs little
_KEPT = 2  # one batch in use, one being prepared
_MAX_KEPT_NBYTES = 1 << 28  # larger ones go back to the operating system


class _Lease:
    """Gives memory back when it is deleted; numpy keeps it alive as long as there is a view of the array."""

    _lent: tuple[Callable[[Bytes], None], Bytes] | None = None  # until the memory is an array

    def __init__(self, memory: Bytes, give: Callable[[Bytes], None]) -> None:
        self.__array_struct__ = memory.__array_struct__  # numpy reads it faster than __array_interface__
        self._lent = give, memory

    def __del__(self) -> None:
        if self._lent is not None:
            give, memory = self._lent
            give(memory)


class BatchMemory:
    """Makes arrays in memory that it uses again. Safe to use from several threads.

    It keeps the memory of two batches, of 256 MiB each at most, as long as it lives. ``allocate`` returns new memory
    ``u8[nbytes]``.
    """

    def __init__(self, allocate: Callable[[int], Bytes] = new_huge_chunk) -> None:
        self._allocate = allocate
        self._free: list[Bytes] = []
        self._lock = PicklableLock()  # a batch can go back while the garbage collector runs in here

    def array(self, n: int, layout: Layout) -> npt.NDArray[np.generic]:
        """An array ``[n, *shape]`` that nobody else holds; its content is undefined."""
        nbytes = n * layout.nbytes
        if nbytes < _MIN_NBYTES:
            return np.empty((n, *layout.shape), layout.dtype)
        lease = _Lease(self._borrow(nbytes), self._give_back)
        return np.asarray(lease)[:nbytes].view(layout.dtype).reshape(n, *layout.shape)

    def _borrow(self, nbytes: int) -> Bytes:
        with self._lock:
            for memory in list(self._free):  # a copy: the garbage collector may give memory back meanwhile
                if nbytes <= memory.nbytes <= 2 * nbytes:
                    self._free = [other for other in self._free if other is not memory]
                    return memory
        return self._allocate(nbytes)

    def _give_back(self, memory: Bytes) -> None:
        with self._lock:
            if memory.nbytes <= _MAX_KEPT_NBYTES:
                self._free.append(memory)
            del self._free[:-_KEPT]


BATCH_MEMORY = BatchMemory()  # for all buffers of the process


def new_batch(store: Store, n: int) -> Any:
    """An array ``[n, *shape]`` for tensors of a store: in reused memory, or on the GPU that decodes them.

    Raises:
        HeapFull: the device has not enough free memory.
    """
    if store.device == "cpu":
        return BATCH_MEMORY.array(n, store.layout)
    return backend(store.device).empty(store.device, n, store.layout)
