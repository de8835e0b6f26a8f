"""DeferredRead: a function reads compressed arrays now; the tensors are decoded later, all together."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Hashable, Mapping
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.runtime import Background, Job, LockOrder, says_memory_error
from obscodec.segments import Ints
from obscodec.stores import Guard, Store, new_batch

T = TypeVar("T")
_MAX_AHEAD = 2


class Tensors(Protocol):
    """Decoded tensors: an array of numpy, or of another library."""

    def __getitem__(self, part: slice, /) -> Self:
        """Some of the tensors."""

    def reshape(self, shape: tuple[int, ...], /) -> Self:
        """The same in another shape."""


# The DeferredRead whose function runs in this thread.
OPEN_READ: ContextVar[DeferredRead | None] = ContextVar("OPEN_READ", default=None)


_DECODER = Background(LockOrder.DECODING)


class DeferredRead:
    """A read of compressed arrays whose tensors are decoded with one call for each store.

    The constructor calls a function. While it runs, indexing a :class:`TensorArray` returns a :class:`Selection`; the
    function may pass it on, not look inside. So code for ndarrays runs unchanged, and each frame is decoded once,
    although an observation and its next observation share most of their frames.

    Args:
        read: the function. It returns arrays, or dictionaries, lists, tuples and named tuples with arrays.
        new_array: called with a store and a number ``n``; returns an array ``[n, *shape]`` to decode into, of numpy, or
            in the memory of the GPU of the store.
        convert: called with all tensors of a store, a numpy array; returns an array of another library.
        at_once: stores whose tensors the function looks at; indexing their arrays decodes.

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
        self._guards: list[Guard] = []  # open until the tensors are decoded
        self._job: Job[dict[Store, Tensors]] | None = None
        self._process = os.getpid()
        self._read = copy_context().run(self._call, read)  # in a copy: an interrupt leaves OPEN_READ as it is

    def select(self, store: Store, ids: npt.NDArray[np.integer], guard: Guard) -> Selection | None:
        """A selection of the tensors ``ids``, ``[*chosen]``, which a guard of the store keeps until they are decoded.

        None if the function looks at tensors of this store.
        """
        if store in self._at_once:
            return None
        self._guards.append(guard)
        chosen = self._ids.setdefault(store, [])
        begin = sum(map(len, chosen))
        chosen.append(ids.reshape(-1).astype(np.int64))
        return Selection(store, begin, ids.shape)

    def start(self) -> None:
        """Decode in the background.

        A GPU works in the background anyway: this call queues its kernels on the current stream. Use :meth:`result` on
        the same stream.
        """
        if any(store.device != "cpu" for store in self._ids):
            self._job = Job(self._decode)
            self._job.run()
            return
        self._job = _DECODER.submit(self._decode)

    @says_memory_error
    def result(self) -> Any:
        """What the function returned, with an array ``[*chosen, *shape]`` in place of each selection.

        The arrays of one store are views of one new array. Call this method once.
        """
        job = self._pending()
        decoded = self._decode() if job is None else job.result()
        return _filled(self._read, {store: self._converted(array) for store, array in decoded.items()})

    def _converted(self, array: Tensors) -> Tensors:
        return array if self._convert is None or not isinstance(array, np.ndarray) else self._convert(array)

    def _pending(self) -> Job[dict[Store, Tensors]] | None:
        """The decoding in the background; in a forked process, where its thread does not exist, only if it is done."""
        job = self._job
        return job if job is None or job.is_done or self._process == os.getpid() else None

    def _call(self, read: Callable[[], Any]) -> Any:
        OPEN_READ.set(self)
        return read()

    def _decode(self) -> dict[Store, Tensors]:
        decoded: dict[Store, Any] = {}
        for store, parts in self._ids.items():
            ids = np.concatenate(parts)
            decoded[store] = self._new_array(store, len(ids))
            store.read_into(ids, decoded[store])
        for guard in self._guards:
            guard.close()
        return decoded


class Prefetcher:
    """Decodes the next batch in the background, one for each of the last two kinds of batches.

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
        """The read that the last call for this kind has started, or a new one; starts the read for the next call."""
        deferred = self._started.pop(kind, None) or draw()
        following = self._started[kind] = draw()
        following.start()
        while len(self._started) > _MAX_AHEAD:
            del self._started[next(iter(self._started))]
        return deferred

    def clear(self) -> None:
        """Forget the reads that were started."""
        self._started.clear()

    def __reduce__(self) -> tuple[type[Prefetcher], tuple[()]]:
        return Prefetcher, ()


class Selection(NamedTuple):
    """Stands for an array of tensors that a :class:`DeferredRead` decodes later.

    Attributes:
        store: the store of the tensors.
        begin: how many tensors of this store were selected before.
        shape: the axes before the axes of a tensor.
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
