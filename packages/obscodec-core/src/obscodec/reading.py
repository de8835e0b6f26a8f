"""Reading: what a function reads of compressed arrays, decoded later, together or in the background."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from obscodec.batch_memory import BATCH_MEMORY
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.store import Store

Array = npt.NDArray[np.generic]


class Tensors(Protocol):
    """What decoded tensors are converted to: an array of some library."""

    def __getitem__(self, part: slice, /) -> Self:
        """Some of the tensors."""

    def reshape(self, shape: tuple[int, ...], /) -> Self:
        """The same in another shape."""


_OPEN: ContextVar[Reading | None] = ContextVar("_OPEN", default=None)


def open_reading() -> Reading | None:
    """The reading that is open in this thread."""
    return _OPEN.get()


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="obscodec")


if hasattr(os, "register_at_fork"):  # a forked process has the pool, but not its thread
    os.register_at_fork(after_in_child=_background.cache_clear)


class Reading:
    """What a function reads of compressed arrays, decoded in one call for each store.

    The function is called at once, in this thread, with :class:`Selected` in place of what it reads of a
    :class:`TensorArray`: it must only hand that on. So code that was written for ndarrays can be let run as it is, and
    frames that two of its arrays have in common, such as those of an observation and the next one, are decoded once.

    Args:
        read: gives what it read, also as values of dictionaries, tuples and named tuples.
        new_array: called with a number of tensors and their layout, gives an array ``[n, *shape]`` to decode into.
        convert: called once for all tensors of a store, makes of them the array of another library.

    Example:
        >>> from obscodec import AutoStore, Layout, TensorArray
        >>> store = AutoStore(Layout((84, 84), np.uint8))
        >>> obs, next_obs = TensorArray.zeros((10, 2), store), TensorArray.zeros((10, 2), store)
        >>> next_obs[3] = np.ones((2, 84, 84), np.uint8)
        >>> reading = Reading(lambda: {"before": obs[3], "after": next_obs[3:5, 0]})
        >>> reading.start()
        >>> batch = reading.result()
        >>> batch["before"].max(), batch["after"].max(axis=(1, 2))
        (np.uint8(0), array([1, 0], dtype=uint8))
    """

    def __init__(
        self,
        read: Callable[[], Any],
        new_array: Callable[[int, Layout], Array] = BATCH_MEMORY.array,
        convert: Callable[[Array], Tensors] = np.asarray,
    ) -> None:
        self._new_array = new_array
        self._convert = convert
        self._ids: dict[Store, list[Ints]] = {}
        self._future: Future[dict[Store, Array]] | None = None
        self._process = os.getpid()
        before = _OPEN.set(self)
        try:
            self._read = read()
        finally:
            _OPEN.reset(before)

    def select(self, store: Store, ids: npt.NDArray[np.integer]) -> Selected:
        """The tensors ``ids``, ``[*chosen]``, of a store. Copies the ids, not the tensors: these must stay."""
        chosen = self._ids.setdefault(store, [])
        begin = sum(map(len, chosen))
        chosen.append(ids.reshape(-1).astype(np.int64))
        return Selected(store, begin, ids.shape)

    def start(self) -> None:
        """Decode in the background. Whoever assigns to what is read must :meth:`wait` before."""
        self._future = _background().submit(self._decode)

    def wait(self) -> None:
        """Wait until all is decoded that was started."""
        if (future := self._pending()) is not None:
            future.exception()

    def result(self) -> Any:
        """What the function gave, with arrays ``[*chosen, *shape]`` in the places of what was selected.

        Those of one store lie one behind the other in an array that nobody else holds. Call it once.
        """
        future = self._pending()
        decoded = self._decode() if future is None else future.result()
        return _filled(self._read, {store: self._convert(array) for store, array in decoded.items()})

    def _pending(self) -> Future[dict[Store, Array]] | None:
        """What decodes in the background; a forked process has nothing of it but the object."""
        return self._future if self._process == os.getpid() else None

    def _decode(self) -> dict[Store, Array]:
        decoded: dict[Store, Array] = {}
        for store, parts in self._ids.items():
            ids = np.concatenate(parts)
            decoded[store] = self._new_array(len(ids), store.layout)
            store.read_into(ids, decoded[store])
        return decoded


class ReadAhead:
    """Readings that are decoded in the background before they are asked for, one of each kind.

    Example:
        >>> from obscodec import AutoStore, Layout, TensorArray
        >>> array = TensorArray.zeros((10,), AutoStore(Layout((84, 84), np.uint8)))
        >>> ahead = ReadAhead()
        >>> ahead.next(32, lambda: Reading(lambda: array[np.zeros(32, int)])).result().shape
        (32, 84, 84)
    """

    def __init__(self) -> None:
        self._started: dict[Hashable, Reading] = {}

    def next(self, kind: Hashable, draw: Callable[[], Reading]) -> Reading:
        """What was drawn at the last call for this kind, drawn now if there was none; starts what comes next."""
        reading = self._started.pop(kind, None) or draw()
        following = self._started[kind] = draw()
        following.start()
        return reading

    def wait(self) -> None:
        """Wait until all is decoded: what it reads may be overwritten then."""
        for reading in self._started.values():
            reading.wait()

    def clear(self) -> None:
        """Forget what was drawn."""
        self._started.clear()

    def __reduce__(self) -> tuple[type[ReadAhead], tuple[()]]:
        return ReadAhead, ()


class Selected(NamedTuple):
    """Tensors that a :class:`Reading` will decode.

    Attributes:
        store: where they are.
        begin: how many were selected of it before.
        shape: the axes before theirs.
    """

    store: Store
    begin: int
    shape: tuple[int, ...]


def _filled(read: Any, decoded: Mapping[Store, Tensors]) -> Any:
    if isinstance(read, Selected):
        tensors = decoded[read.store][read.begin : read.begin + math.prod(read.shape)]
        return tensors.reshape((*read.shape, *read.store.layout.shape))
    if isinstance(read, dict):
        return {key: _filled(value, decoded) for key, value in read.items()}
    if isinstance(read, tuple):
        parts = [_filled(part, decoded) for part in read]
        return type(read)(*parts) if hasattr(read, "_fields") else tuple(parts)
    return read
