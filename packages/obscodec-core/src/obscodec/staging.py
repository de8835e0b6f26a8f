"""Staging: rows of compressed arrays that wait to be stored together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.errors import ShapeError
from obscodec.interrupts import uninterrupted
from obscodec.kernels.rows import same
from obscodec.segments import Ints
from obscodec.store import Store, check_ids

_MAX_NBYTES = 1 << 18  # four steps of Atari: storing them together takes little longer than storing one
_MIN_ROWS = 4  # three steps, however many environments there are, if rows that repeat are found
_MANY_ROWS = 8  # from here on, to find them takes longer than to store them
_MAX_ROWS = 64  # of small tensors, so that nobody waits for long


class Staging:
    """Rows of tensors on their way into a store.

    To store the observations of a step takes some 4 microseconds, and to get there 10 more. So they wait here, copied
    but not encoded, until there are some, or somebody wants to read. Arrays that share a store can share a staging,
    which keeps their rows in order. Where only a few rows may wait, one that is equal to the row before it, as an
    observation is to the next one of the step before, waits once. Not safe to use from several threads.

    Args:
        store: where the rows go.
        n_envs: how many tensors a row has; tensor ``i`` belongs to stream ``i``.

    A store with ``max_bytes`` should have none: when it is full, its arrays can't be read until what waits has room.

    Attributes:
        store: where the rows go.
        n_envs: how many tensors a row has.
        row_shape: the shape of a row, ``(n_envs, *shape)``.
        dtype: its dtype.

    Example:
        >>> import numpy as np, obscodec
        >>> store = obscodec.AutoStore(obscodec.Layout((84, 84), np.uint8))
        >>> array = obscodec.TensorArray.zeros((10, 2), store, staging=Staging(store, n_envs=2))
        >>> array[3] = np.ones((2, 84, 84), np.uint8)
        >>> store.stats().n_tensors
        0
        >>> array[3].min()
        np.uint8(1)
        >>> store.stats().n_tensors
        2
    """

    def __init__(self, store: Store, n_envs: int) -> None:
        self.store = store
        self.n_envs = n_envs
        store.stagings.add(self)
        self.row_shape = (n_envs, *store.layout.shape)
        self.dtype = store.layout.dtype
        row_nbytes = n_envs * store.layout.nbytes
        self._n_rows = int(np.clip(_MAX_NBYTES // max(1, row_nbytes), _MIN_ROWS, _MAX_ROWS))
        self._bytes = np.empty((self._n_rows, row_nbytes), np.uint8)
        self._tensors = store.layout.tensors(self._bytes.reshape(self._n_rows * n_envs, store.layout.nbytes))
        self._envs = np.arange(n_envs)
        self._n_used = 0  # of the rows
        self._places: set[tuple[int, int]] = set()
        self._ids: list[npt.NDArray[np.signedinteger]] = []  # of the places that wait, in order
        self._which: list[int] = []  # the row of each

    def fits(self, tensors: npt.NDArray[np.generic]) -> bool:
        """Whether ``tensors`` have the shape and the dtype of a row."""
        return tensors.shape == self.row_shape and tensors.dtype == self.dtype

    def put(self, ids: npt.NDArray[np.signedinteger], row: int, tensors: npt.NDArray[np.generic]) -> None:
        """Let ``tensors`` wait, for the ids at ``ids[row]``.

        Args:
            ids: the ids of an array ``[n_steps, n_envs]`` of the store.
            row: which row of it, from 0 on.
            tensors: ``[n_envs, *shape]`` of the dtype of the store; copied.

        Raises:
            ShapeError: the tensors don't fit.
            HeapFull: those that waited do not fit into the store; they go on waiting.
        """
        if not self.fits(tensors):
            raise ShapeError(f"a row is {self.dtype} {self.row_shape}, got {tensors.dtype} {tensors.shape}")
        place = id(ids), row
        if self._n_used == self._n_rows or len(self._ids) == _MAX_ROWS or place in self._places:
            self.flush()
        which = self._n_used
        self._tensors[which * self.n_envs : (which + 1) * self.n_envs] = tensors
        if which and self._n_rows < _MANY_ROWS and same(self._bytes, which - 1, which):
            which -= 1
        self._n_used = which + 1
        self._places.add(place)
        self._ids.append(ids[row])
        self._which.append(which)

    def flush(self) -> None:
        """Store what waits.

        Raises:
            HeapFull: it does not fit into the store; it goes on waiting.
        """
        if not self._ids:
            return
        with uninterrupted():
            self._flush()

    def _flush(self) -> None:
        old: Ints = np.concatenate(self._ids, dtype=np.int64)
        which = np.add.outer(np.array(self._which) * self.n_envs, self._envs).reshape(-1)
        n_tensors = self._n_used * self.n_envs
        streams = np.tile(self._envs, self._n_used)
        new = self.store.replace_repeated(old, self._tensors[:n_tensors], which, streams)
        check_ids(new, self._ids[0].dtype)
        for ids, stored in zip(self._ids, new.reshape(len(self._ids), self.n_envs), strict=True):
            ids[...] = stored  # a view of the ids of an array
        self._n_used = 0
        self._places.clear()
        self._ids.clear()
        self._which.clear()

    def __reduce__(self) -> tuple[type[Staging], tuple[Store, int]]:
        self.flush()
        return Staging, (self.store, self.n_envs)
