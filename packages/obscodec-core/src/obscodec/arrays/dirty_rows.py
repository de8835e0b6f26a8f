"""DirtyRows: the rows of an array of ids that have changed, for a copy of the array on a device."""

import threading
from collections.abc import Sequence
from weakref import ref

import numpy as np

from obscodec.arrays.indexing import Part
from obscodec.segments import Ints


class DirtyRows:
    """Collects the changed rows of an array of ``n_rows``, at first all. Safe to use from several threads.

    Attributes:
        has_changed: whether :meth:`take` would return any row.
    """

    def __init__(self, n_rows: int) -> None:
        self.has_changed = True
        self._changed = np.ones(n_rows, bool)
        self._lock = threading.Lock()

    def note(self, index: Sequence[Part]) -> None:
        """Add the rows that an index selects; all rows if the index begins with a mask or a new axis."""
        first = index[0] if index else slice(None)
        some = isinstance(first, slice | int | np.integer)
        some |= isinstance(first, np.ndarray) and first.dtype.kind in "iu"
        with self._lock:
            self.has_changed = True
            self._changed[first if some else slice(None)] = True

    def take(self) -> Ints:
        """``i64[n]``, rising: the rows that have changed since the last call."""
        with self._lock:
            (rows,) = self._changed.nonzero()
            self._changed[rows] = False
            self.has_changed = False
        return rows


def note(watches: list[ref[DirtyRows]], index: Sequence[Part]) -> None:
    """Add the rows that an index selects to all watches that are alive, and remove the others from the list."""
    for one in list(watches):
        watch = one()
        if watch is None:
            watches.remove(one)
        else:
            watch.note(index)
