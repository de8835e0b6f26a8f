"""Reading: tensors that are chosen now, and decoded now or in the background."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import numpy as np
import numpy.typing as npt

from obscodec.batch_memory import BATCH_MEMORY
from obscodec.indexing import Index
from obscodec.layout import Layout
from obscodec.tensor_array import TensorArray

Array = npt.NDArray[np.generic]


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="obscodec")


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but not its thread
    os.register_at_fork(after_in_child=_background.cache_clear)


class Reading:
    """What ``arrays`` hold at one index, as they are when it is made.

    Args:
        arrays: under each name some arrays of one layout, compressed in one store or not at all. They are read in one
            call, so that frames that they share are decoded once.
        at: an index of their leading axes.
        new_array: called with a number of tensors and their layout, gives an array ``[n, *shape]`` to decode into.

    Example:
        >>> from obscodec import AutoStore, Layout, TensorArray
        >>> store = AutoStore(Layout((84, 84), np.uint8))
        >>> obs, next_obs = TensorArray.zeros((10, 2), store), TensorArray.zeros((10, 2), store)
        >>> next_obs[3] = np.ones((2, 84, 84), np.uint8)
        >>> reading = Reading({"obs": [obs, next_obs]}, (np.array([3, 3, 4]), np.array([0, 1, 0])))
        >>> reading.start()
        >>> reading.result()["obs"].max(axis=(2, 3))
        array([[0, 0, 0],
               [1, 1, 0]], dtype=uint8)
    """

    def __init__(
        self,
        arrays: Mapping[str, Sequence[Array | TensorArray]],
        at: Index,
        new_array: Callable[[int, Layout], Array] = BATCH_MEMORY.array,
    ) -> None:
        self._stores = {name: same[0].store for name, same in arrays.items() if isinstance(same[0], TensorArray)}
        self._chosen = {name: np.stack([_items(array)[at] for array in same]) for name, same in arrays.items()}
        self._new_array = new_array
        self._future: Future[dict[str, Array]] | None = None
        self._process = os.getpid()

    def start(self) -> None:
        """Decode in the background. Whoever assigns to what is read must :meth:`wait` before."""
        self._future = _background().submit(self._decode)

    def wait(self) -> None:
        """Wait until all is decoded that was started."""
        if (future := self._pending()) is not None:
            future.exception()

    def result(self) -> dict[str, Array]:
        """Under each name ``[n_arrays, *chosen, *shape]``: a new array that nobody else holds."""
        future = self._pending()
        return self._decode() if future is None else future.result()

    def _pending(self) -> Future[dict[str, Array]] | None:
        """What decodes in the background; a forked process has nothing of it but the object."""
        return self._future if self._process == os.getpid() else None

    def _decode(self) -> dict[str, Array]:
        return {name: self._decoded(name) if name in self._stores else self._chosen[name] for name in self._chosen}

    def _decoded(self, name: str) -> Array:
        store, ids = self._stores[name], self._chosen[name]
        out = self._new_array(ids.size, store.layout)
        return store.read(ids.reshape(-1), out).reshape(*ids.shape, *store.layout.shape)


def _items(array: Array | TensorArray) -> Array:
    return array.ids if isinstance(array, TensorArray) else array
