"""Staging: rows of compressed arrays that wait to be stored together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.errors import ShapeError
from obscodec.interrupts import uninterrupted
from obscodec.segments import Ints
from obscodec.store import Store, check_ids

_MAX_NBYTES = 1 << 19  # nine steps of Atari: storing them together takes little longer than storing one
_MAX_ROWS = 64  # of small tensors, so that nobody waits for long


class Staging:
    """Rows of tensors on their way into a store.

    To store the observations of a step takes some 4 microseconds, and to get there 10 more. So they wait here, copied
    but not encoded, until there are some, or somebody wants to read. Arrays that share a store can share a staging,
    which keeps their rows in order. Not safe to use from several threads.

    Args:
        store: where the rows go.
        n_envs: how many tensors a row has; tensor ``i`` belongs to stream ``i``.

    A store with ``max_bytes`` should have none: when it is full, its arrays can't be read until what waits has room.

    Attributes:
        store: where the rows go.
        n_envs: how many tensors a row has.
        row_shape: the shape of a row, ``(n_envs, *shape)``.

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
        n_rows = int(np.clip(_MAX_NBYTES // max(1, n_envs * store.layout.nbytes), 2, _MAX_ROWS))
        self._rows = np.empty((n_rows, *self.row_shape), store.layout.dtype)
        self._streams = np.tile(np.arange(n_envs), n_rows)
        self._waiting: dict[tuple[int, int], int] = {}  # place: which of the rows
        self._ids: list[npt.NDArray[np.signedinteger]] = []

    def put(self, ids: npt.NDArray[np.signedinteger], row: int, tensors: npt.NDArray[np.generic]) -> None:
        """Let ``tensors`` wait, for the ids at ``ids[row]``.

        Args:
            ids: the ids of an array ``[n_steps, n_envs]`` of the store.
            row: which row of it, from 0 on.
            tensors: ``[n_envs, *shape]`` of the dtype of the store; copied.

        Raises:
            ShapeError: the tensors have another shape.
            HeapFull: those that waited do not fit into the store; they go on waiting.
        """
        if tensors.shape != self.row_shape:
            raise ShapeError(f"a row has shape {self.row_shape}, got {tensors.shape}")
        place = id(ids), row
        if len(self._ids) == len(self._rows) or place in self._waiting:
            self.flush()
        self._rows[len(self._ids)] = tensors
        self._waiting[place] = len(self._ids)
        self._ids.append(ids[row])

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
        n = len(self._ids)
        old: Ints = np.concatenate(self._ids, dtype=np.int64)
        tensors = self._rows[:n].reshape(-1, *self.store.layout.shape)
        new = self.store.replace(old, tensors, self._streams[: len(old)])
        check_ids(new, self._ids[0].dtype)
        for ids, stored in zip(self._ids, new.reshape(n, self.n_envs), strict=True):
            ids[...] = stored  # a view of the ids of an array
        self._waiting.clear()
        self._ids.clear()

    def __reduce__(self) -> tuple[type[Staging], tuple[Store, int]]:
        self.flush()
        return Staging, (self.store, self.n_envs)
