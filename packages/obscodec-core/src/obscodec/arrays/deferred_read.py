"""DeferredRead: what a function reads of compressed arrays, decoded later, together or in the background."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.runtime import says_memory_error
from obscodec.segments import Ints
from obscodec.stores import Store, new_batch

T = TypeVar("T")
_MAX_AHEAD = 2


class Tensors(Protocol):
    """Decoded tensors: an array of numpy, or of another library."""

    def __getitem__(self, part: slice, /) -> Self:
        """Some of the tensors."""

    def reshape(self, shape: tuple[int, ...], /) -> Self:
        """The same in another shape."""


# The deferred read whose function runs in this thread; None if there is none.
OPEN_READ: ContextVar[DeferredRead | None] = ContextVar("OPEN_READ", default=None)


@cache
def _background() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="obscodec")


_DECODING = threading.Lock()  # held by what decodes in the background, so that nobody forks with its locks


def _after_fork() -> None:
    _DECODING.release()
    _background.cache_clear()  # a forked process has the pool, but not its thread


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_DECODING.acquire, after_in_parent=_DECODING.release, after_in_child=_after_fork)


class DeferredRead:
    """What a function reads of compressed arrays, decoded in one call for each store.

    The function is called at once, in this thread. While it runs, indexing a :class:`TensorArray` returns a
    :class:`Selection`, which the function may pass on, but not look inside. So code that was written for ndarrays runs
    as it is, and a frame that two arrays have in common, such as an observation and the next one, is decoded once.

    Args:
        read: gives what it read, also as values of dictionaries, lists, tuples and named tuples.
        new_array: called with a store and a number of its tensors, gives an array ``[n, *shape]`` to decode into; of
            numpy, or for a store on a GPU of any library, in the memory of that.
        convert: called once for all tensors of a store that are a numpy array, makes of that one of another library.
        at_once: stores whose tensors the function looks at; what it reads of them is decoded as it is read.

    Example:
        >>> from obscodec import AutoStore, Layout, TensorArray
        >>> store = AutoStore(Layout((84, 84), np.uint8))
        >>> obs, next_obs = TensorArray.zeros((10, 2), store), TensorArray.zeros((10, 2), store)
        >>> next_obs[3] = np.ones((2, 84, 84), np.uint8)
        >>> deferred = DeferredRead(lambda: {"before": obs[3], "after": next_obs[3:5, 0]})
        >>> deferred.start()
        >>> batch = deferred.result()
        >>> batch["before"].max(), batch["after"].max(axis=(1, 2))
        (np.uint8(0), array([1, 0], dtype=uint8))
    """

    def __init__(
        self,
        read: Callable[[], Any],
        new_array: Callable[[Store, int], Any] = new_batch,
        convert: Callable[[Any], Tensors] | None = None,
        at_once: Collection[Store | None] = (),
    ) -> None:
        self._new_array = new_array
        self._convert = convert
        self._at_once = at_once
        self._ids: dict[Store, list[Ints]] = {}
        self._future: Future[dict[Store, Tensors]] | None = None
        self._process = os.getpid()
        self._read = copy_context().run(self._call, read)  # in a copy, which is gone whatever interrupts it

    def selects(self, store: Store) -> bool:
        """Whether tensors of a store are decoded later."""
        return store not in self._at_once

    def select(self, store: Store, ids: npt.NDArray[np.integer]) -> Selection:
        """The tensors ``ids``, ``[*chosen]``, of a store. Copies the ids, not the tensors: these must stay."""
        chosen = self._ids.setdefault(store, [])
        begin = sum(map(len, chosen))
        chosen.append(ids.reshape(-1).astype(np.int64))
        return Selection(store, begin, ids.shape)

    def start(self) -> None:
        """Decode in the background. What is assigned to an array of these stores waits until that is done.

        On a GPU everything is in the background: if a store is on one, decoding is queued at once, on the current
        stream of this thread, on which :meth:`result` is to be used.
        """
        if any(store.device != "cpu" for store in self._ids):
            self._future = _done(self._decode)
            return
        self._future = _background().submit(self._decode_alone)
        for store in self._ids:
            store.note_reading(self)

    def wait(self) -> None:
        """Wait until all is decoded that was started."""
        if (future := self._pending()) is not None:
            future.exception()

    @says_memory_error
    def result(self) -> Any:
        """What the function gave, with arrays ``[*chosen, *shape]`` in the places of what was selected.

        Those of one store lie one behind the other in an array that nobody else holds. Call it once.
        """
        future = self._pending()
        decoded = self._decode() if future is None else future.result()
        return _filled(self._read, {store: self._converted(array) for store, array in decoded.items()})

    def _converted(self, array: Tensors) -> Tensors:
        return array if self._convert is None or not isinstance(array, np.ndarray) else self._convert(array)

    def _pending(self) -> Future[dict[Store, Tensors]] | None:
        """What decodes in the background; a forked process has nothing of it but the object."""
        return self._future if self._process == os.getpid() else None

    def _call(self, read: Callable[[], Any]) -> Any:
        OPEN_READ.set(self)
        return read()

    def _decode_alone(self) -> dict[Store, Tensors]:
        with _DECODING:
            return self._decode()

    def _decode(self) -> dict[Store, Tensors]:
        decoded: dict[Store, Any] = {}
        for store, parts in self._ids.items():
            ids = np.concatenate(parts)
            decoded[store] = self._new_array(store, len(ids))
            store.read_into(ids, decoded[store])
        return decoded


def _done(function: Callable[[], T]) -> Future[T]:
    """What ``function`` gives or raises, as if it had run in the background."""
    future: Future[T] = Future()
    try:
        future.set_result(function())
    except Exception as error:
        future.set_exception(error)
    return future


class Prefetcher:
    """Decodes batches in the background before they are asked for, one of each of the last two kinds.

    Example:
        >>> from obscodec import AutoStore, Layout, TensorArray
        >>> array = TensorArray.zeros((10,), AutoStore(Layout((84, 84), np.uint8)))
        >>> ahead = Prefetcher()
        >>> ahead.next(32, lambda: DeferredRead(lambda: array[np.zeros(32, int)])).result().shape
        (32, 84, 84)
    """

    def __init__(self) -> None:
        self._started: dict[Hashable, DeferredRead] = {}

    def next(self, kind: Hashable, draw: Callable[[], DeferredRead]) -> DeferredRead:
        """What was drawn at the last call for this kind, drawn now if there was none; starts what comes next."""
        deferred = self._started.pop(kind, None) or draw()
        following = self._started[kind] = draw()
        following.start()
        while len(self._started) > _MAX_AHEAD:
            del self._started[next(iter(self._started))]
        return deferred

    def clear(self) -> None:
        """Forget what was drawn."""
        self._started.clear()

    def __reduce__(self) -> tuple[type[Prefetcher], tuple[()]]:
        return Prefetcher, ()


class Selection(NamedTuple):
    """Tensors that a :class:`DeferredRead` will decode, in the place of the array of them.

    Attributes:
        store: where they are.
        begin: how many were selected of it before.
        shape: the axes before theirs.
    """

    store: Store
    begin: int
    shape: tuple[int, ...]


def _filled(read: Any, decoded: Mapping[Store, Tensors]) -> Any:
    if isinstance(read, Selection):
        tensors = decoded[read.store][read.begin : read.begin + math.prod(read.shape)]
        return tensors.reshape((*read.shape, *read.store.layout.shape))
    if isinstance(read, dict):
        return {key: _filled(value, decoded) for key, value in read.items()}
    if isinstance(read, list):
        return [_filled(part, decoded) for part in read]
    if isinstance(read, tuple):
        parts = [_filled(part, decoded) for part in read]
        return type(read)(*parts) if hasattr(read, "_fields") else tuple(parts)
    return read
