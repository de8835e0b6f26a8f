"""DirtyRows: which rows of an array of ids were assigned to, for a copy of it on a device."""

import threading
from collections.abc import Sequence
from weakref import ref

import numpy as np

from obscodec.arrays.indexing import Part
from obscodec.segments import Ints


class DirtyRows:
    """Notes rows of an array, until they are taken. Safe to use from several threads.

    Args:
        n_rows: how many the array has; at the beginning, all count as assigned to.
    """

    def __init__(self, n_rows: int) -> None:
        self._n_rows = n_rows
        self._assigned = np.ones(n_rows, bool)
        self._lock = threading.Lock()

    def note(self, index: Sequence[Part]) -> None:
        """Note the rows that an index selects, or all if it selects in another way than most."""
        first = index[0] if index else slice(None)
        some = isinstance(first, slice | int | np.integer)
        some |= isinstance(first, np.ndarray) and first.dtype.kind in "iu"
        with self._lock:
            self._assigned[first if some else slice(None)] = True

    def take(self) -> Ints:
        """``i64[n]``, the rows that were assigned to since the last call, rising."""
        with self._lock:
            rows = np.flatnonzero(self._assigned)
            self._assigned[rows] = False
        return rows


def note(watches: list[ref[DirtyRows]], index: Sequence[Part]) -> None:
    """Have all watches that still are there note what an index selects; the others go from the list."""
    for one in list(watches):
        watch = one()
        if watch is None:
            watches.remove(one)
        else:
            watch.note(index)
