"""WriteBuffer: rows of compressed arrays that wait to be stored together."""

from __future__ import annotations

import threading
from itertools import groupby
from operator import itemgetter
from weakref import ref

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, check_kind
from obscodec.arrays.compare import same
from obscodec.arrays.dirty_rows import DirtyRows, note
from obscodec.stores import Place, Store

_MAX_NBYTES = 1 << 18  # eight steps of Atari: storing them together takes little longer than storing one
_MANY_ROWS = 16  # of 16 KiB or less: from here on, to find equal ones takes longer than to store them
_MAX_ROWS = 64  # of small tensors, so that nobody waits for long


_Place = tuple[int, int]  # which array of ids, and which row of it


class WriteBuffer:
    """Rows of tensors on their way into a store.

    To store the observations of a step takes some 4 microseconds, and to get there 10 more. So they wait here, copied
    but not encoded, until there are some, or somebody wants to read. Arrays that share a store can share a write
    buffer, which keeps their rows in order. Where only a few rows may wait, one that is equal to the row before it, as
    an observation is to the next one of the step before, waits once. Several threads may read its arrays at once.

    Args:
        store: where the rows go.
        n_envs: how many tensors a row has; tensor ``i`` belongs to sequence ``i``.
        min_rows: how many rows may wait, however large they are.

    A store with ``max_bytes`` should have none: when it is full, its arrays can't be read until what waits has room.

    Attributes:
        store: where the rows go.
        n_envs: how many tensors a row has.
        min_rows: how many rows may wait, however large they are.
        row_shape: the shape of a row, ``(n_envs, *shape)``.
        dtype: its dtype.
        waiting: for which rows of which arrays something waits, in order, and in which row here.

    Example:
        >>> import numpy as np, obscodec
        >>> store = obscodec.AutoStore(obscodec.Layout((84, 84), np.uint8))
        >>> array = obscodec.TensorArray.zeros((10, 2), store, write_buffer=WriteBuffer(store, n_envs=2))
        >>> array[3] = np.ones((2, 84, 84), np.uint8)
        >>> store.stats().n_tensors
        0
        >>> array[3].min()
        np.uint8(1)
        >>> store.stats().n_tensors
        2
    """

    def __init__(self, store: Store, n_envs: int, min_rows: int = 4) -> None:
        check_kind("store", store, Store, "a Store, such as FrameStore(layout)")
        n_envs, min_rows = as_count("n_envs", n_envs), as_count("min_rows", min_rows)
        self.store = store
        self.n_envs = n_envs
        self.min_rows = min_rows
        store.write_buffers.add(self)
        self.row_shape = (n_envs, *store.layout.shape)
        self.dtype = store.layout.dtype
        row_nbytes = n_envs * store.layout.nbytes
        self._n_rows = max(min_rows, min(_MAX_NBYTES // max(1, row_nbytes), _MAX_ROWS))
        self._n_places = max(self._n_rows, _MAX_ROWS)
        self._merges = self._n_rows < _MANY_ROWS
        self._allocate(0)
        self._envs = np.arange(n_envs)
        self._sequences = np.tile(self._envs, self._n_rows)
        self._lock = threading.RLock()
        self.waiting: dict[_Place, int] = {}  # one thing to change, for interrupts
        self._arrays: dict[int, npt.NDArray[np.signedinteger]] = {}  # the ids, by ``id``
        self._watches: dict[int, list[ref[DirtyRows]]] = {}  # of arrays, by the ``id`` of their ids

    def put(self, ids: npt.NDArray[np.signedinteger], row: int, tensors: npt.NDArray[np.generic]) -> bool:
        """Let ``tensors`` wait, for the ids at ``ids[row]``.

        Args:
            ids: the ids of an array ``[n_steps, n_envs]`` of the store.
            row: which row of it, from 0 on.
            tensors: ``[n_envs, *shape]`` of the dtype of the store; copied.

        Returns:
            Whether they have this shape and dtype; nothing is done if not.

        Raises:
            HeapFull: those that waited do not fit into the store; they go on waiting.
        """
        if tensors.shape != self.row_shape or tensors.dtype != self.dtype:
            return False
        place = id(ids), row
        with self.store.changing, self._lock:
            if not len(self._rows):
                self._allocate(self._n_rows)
            new = self._n_used if self.waiting else 0
            if new == self._n_rows or len(self.waiting) == self._n_places:
                self.flush()
                new = 0
            self._rows[new] = tensors  # which stays free until somebody waits for it
            before = self.waiting.get(place)
            if before is not None:  # the observation of a step is the next one of the step before, in one array
                if same(self._bytes, before, new):
                    return True
                self.flush()
                new = 0
                self._rows[new] = tensors
            if new and self._merges and same(self._bytes, new - 1, new):
                new -= 1
            self._arrays[id(ids)] = ids
            self.waiting[place] = new
        return True

    def watch(self, ids: npt.NDArray[np.signedinteger], watches: list[ref[DirtyRows]]) -> None:
        """Let watches know when rows of ``ids`` are stored; the list may change."""
        with self._lock:
            self._watches[id(ids)] = watches

    def flush(self) -> None:
        """Store what waits.

        Raises:
            HeapFull: it does not fit into the store; it goes on waiting.
        """
        if self.waiting:
            with self.store.changing, self._lock:
                self._flush()

    def reserve(self, row: int, n: int) -> None:
        """Make sure that :meth:`put` stores nothing, and so can't fail for that, the next ``n`` times.

        Args:
            row: which row of its arrays these are for; nothing waits for it then.
            n: how many arrays.

        Raises:
            HeapFull: what waits does not fit into the store; it goes on waiting.
        """
        if self.waiting:
            with self.store.changing, self._lock:
                many = self._n_used + n > self._n_rows or len(self.waiting) + n > self._n_places
                if many or any((array, row) in self.waiting for array in self._arrays):
                    self._flush()

    def forget(self, row: int) -> None:
        """Drop what waits for a row of any array."""
        with self._lock:
            self.waiting = {place: at for place, at in self.waiting.items() if place[1] != row}

    @property
    def memory_bytes(self) -> int:
        """Bytes of the rows that can wait; 0 as long as none has waited."""
        return self._bytes.nbytes

    def _allocate(self, n_rows: int) -> None:
        layout = self.store.layout
        self._bytes = np.empty((n_rows, self.n_envs * layout.nbytes), np.uint8)
        self._tensors = layout.tensors(self._bytes.reshape(n_rows * self.n_envs, layout.nbytes))
        self._rows = self._tensors.reshape(n_rows, *self.row_shape)  # last: an interrupt leaves no rows, or all

    @property
    def _n_used(self) -> int:
        """How many of the rows are used."""
        return next(reversed(self.waiting.values())) + 1

    def _flush(self) -> None:
        if not self.waiting:  # another thread was here first
            return
        n_used, rows = self._n_used, np.array(list(self.waiting.values()))
        self.store.exchange(
            self._places(),
            self._tensors[: n_used * self.n_envs],
            np.add.outer(rows * self.n_envs, self._envs).reshape(-1),
            self._sequences[: n_used * self.n_envs],
        )
        self.waiting.clear()
        self._arrays.clear()

    def _places(self) -> list[Place]:
        """Where the rows that wait go, in their order; rows of an array that wait one after the other are one place."""
        places = []
        for array, waiting in groupby(self.waiting, key=itemgetter(0)):
            rows = [row for _, row in waiting]
            index = rows[0] if len(rows) == 1 else np.array(rows)
            if array in self._watches:
                note(self._watches[array], (index,))
            places.append(Place(self._arrays[array], index))
        return places

    def __reduce__(self) -> tuple[type[WriteBuffer], tuple[Store, int, int]]:
        self.flush()
        return WriteBuffer, (self.store, self.n_envs, self.min_rows)
