"""DirtyRows: the rows of an array of ids that have changed, for a copy of the array on a device."""

from collections.abc import Sequence
from weakref import ref

import numpy as np

from obscodec.arrays.indexing import Part
from obscodec.runtime import PicklableLock
from obscodec.segments import Ints

_FEW = 64


class DirtyRows:
    """Collects the changed rows of an array of ``n_rows``, at first all. Safe to use from several threads."""

    def __init__(self, n_rows: int) -> None:
        self.has_changed = True  # since the last drain
        self._n_rows = n_rows
        self._rows: set[int] | None = None  # None for all
        self._lock = PicklableLock()

    def note(self, index: Sequence[Part]) -> None:
        """Add the rows that an index selects; all if they are many, or the index begins with a mask or a new axis."""
        first = index[0] if index else slice(None)
        rows: Sequence[int] | None = None
        if isinstance(first, int | np.integer) and not isinstance(first, bool):
            rows = (int(first),)
        elif isinstance(first, slice):
            rows = range(*first.indices(self._n_rows))
        elif isinstance(first, np.ndarray) and first.dtype.kind in "iu":
            rows = first.reshape(-1).tolist()
        with self._lock:
            self.has_changed = True
            if rows is None or self._rows is None or len(rows) + len(self._rows) > max(_FEW, self._n_rows // 8):
                self._rows = None
            else:
                self._rows.update(row % self._n_rows for row in rows)

    def drain(self) -> Ints:
        """``i64[n]``, rising: the rows that have changed since the last call."""
        with self._lock:
            rows = np.arange(self._n_rows) if self._rows is None else np.array(sorted(self._rows), np.int64)
            self._rows = set()
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
