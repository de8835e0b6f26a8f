"""DeferredRead: a function reads compressed arrays now; the tensors are decoded later, all together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from obscodec.runtime import Background, Job, LockOrder, raise_memory_error
from obscodec.segments import Ints
from obscodec.stores import Guard, Store, new_batch

T = TypeVar("T")
_DECODER = Background(LockOrder.DECODING)

# While the function of a DeferredRead runs in this thread: the stores whose tensors it looks at.
OPEN_READ: ContextVar[Collection[Store | None] | None] = ContextVar("OPEN_READ", default=None)


class Selection(NamedTuple):
    """Stands for an array of tensors that a :class:`DeferredRead` decodes later.

    Attributes:
        store: the store of the tensors.
        ids: ``[*chosen]``, a copy.
        guard: of the store; it keeps the tensors until they are decoded.
        longest: None; or the last axis of the ids is of pages ``[n_rows, *shape]``, and those of an item are joined, as
            many rows as the longest one has: ``[*chosen, longest, *shape]``.
    """

    store: Store
    ids: npt.NDArray[np.integer]
    guard: Guard
    longest: int | None = None


class DeferredRead:
    """A read of compressed arrays that decodes their tensors with one call for each store.

    The constructor calls a function. While it runs, indexing a :class:`TensorArray` returns a :class:`Selection`; the
    function may pass it on, not look inside. So code for ndarrays runs unchanged, and each frame is decoded once,
    although an observation and its next observation share most of their frames.

    Args:
        read: the function, or what one has returned: arrays and selections, or dictionaries, lists, tuples and named
            tuples of these.
        new_array: called with a store and a number ``n``; returns an array ``[n, *shape]`` to decode into, of numpy, or
            in the memory of the GPU of the store.
        convert: called with all tensors of a store, a numpy array; returns an array of another library.
        at_once: stores whose tensors the function looks at; indexing their arrays decodes.
    """

    def __init__(
        self,
        read: Any,
        new_array: Callable[[Store, int], Any] = new_batch,
        convert: Callable[[Any], Any] | None = None,
        at_once: Collection[Store | None] = (),
    ) -> None:
        self._new_array = new_array
        self._convert = convert
        self._job: Job[dict[Store, Any]] | None = None
        if callable(read):
            context = copy_context()  # an interrupt leaves OPEN_READ as it is
            context.run(OPEN_READ.set, at_once)
            read = context.run(read)
        self._read = read
        self._selections: list[Selection] = []  # their guards are open until the tensors are decoded
        _filled(self._read, self._selections.append)

    def start(self) -> None:
        """Decode in the background.

        A GPU works in the background anyway: this call queues its kernels on the current stream. Use :meth:`result` on
        the same stream.
        """
        if any(of.store.device != "cpu" for of in self._selections):
            self._job = Job(self._decode)
            self._job.run()
            return
        self._job = _DECODER.submit(self._decode)

    def result(self) -> Any:
        """What the function returned, with an array ``[*chosen, *shape]`` in place of each selection.

        The arrays of one store are views of one new array. Call this method once.
        """
        if not self._selections:
            return self._read
        try:
            job = self._job
            tensors = job.result() if job and (job.is_done or job.is_here) else self._decode()
            if self._convert is not None:
                tensors = {k: self._convert(x) if isinstance(x, np.ndarray) else x for k, x in tensors.items()}
            begins = dict.fromkeys(tensors, 0)

            def tensors_of(selection: Selection) -> Any:
                begin = begins[selection.store]
                begins[selection.store] += selection.ids.size
                tensors_of_store = tensors[selection.store][begin : begins[selection.store]]
                return filled(tensors_of_store, selection.ids.shape, selection.longest)

            return _filled(self._read, tensors_of)
        except Exception as error:
            raise_memory_error(error)

    def undecoded(self, of_store: Callable[[Store, Ints], T]) -> tuple[Any, list[T]]:
        """What the function returned, and what another one makes of each store, and the ids ``i64[n]`` of all tensors.

        A selection is the dictionary ``{"$store": k, "begin": b, "chosen": [*chosen], "longest": longest}``: its
        tensors are those from ``b`` on of the ``k``-th store. Call this method instead of :meth:`result`.
        """
        ids = self._ids()
        made, places = [of_store(store, of) for store, of in ids.items()], {store: k for k, store in enumerate(ids)}
        begins = dict.fromkeys(ids, 0)

        def place_of(selection: Selection) -> dict[str, Any]:
            begin, chosen = begins[selection.store], [*selection.ids.shape]
            begins[selection.store] += selection.ids.size
            longest = selection.longest
            return {"$store": places[selection.store], "begin": begin, "chosen": chosen, "longest": longest}

        placed = _filled(self._read, place_of)
        self._close()
        return placed, made

    def _ids(self) -> dict[Store, Ints]:
        parts: dict[Store, list[npt.NDArray[np.integer]]] = {}
        for selection in self._selections:
            parts.setdefault(selection.store, []).append(selection.ids.reshape(-1))
        return {store: np.concatenate(of_store, dtype=np.int64) for store, of_store in parts.items()}

    def _decode(self) -> dict[Store, Any]:
        decoded: dict[Store, Any] = {}
        for store, ids in self._ids().items():
            decoded[store] = self._new_array(store, len(ids))
            store.read_into(ids, decoded[store])
        self._close()
        return decoded

    def _close(self) -> None:
        for selection in self._selections:
            selection.guard.close()


def filled(tensors: Any, chosen: Sequence[int], longest: int | None) -> Any:
    """The array that a :class:`Selection` of so many tensors ``[n, *shape]`` stands for."""
    shape = tensors.shape[1:]
    if longest is None:
        return tensors.reshape((*chosen, *shape))
    *axes, n_pages = chosen
    joined = tensors.reshape((*axes, n_pages * shape[0], *shape[1:]))
    return joined[(slice(None),) * len(axes) + (slice(longest),)]


def _filled(read: Any, tensors_of: Callable[[Selection], Any]) -> Any:
    """What was read, with the tensors of each selection in its place."""
    if isinstance(read, Selection):
        return tensors_of(read)
    if isinstance(read, dict):
        filled = dict(read)
        for key, value in read.items():
            if not isinstance(value, np.ndarray):  # most are
                filled[key] = tensors_of(value) if isinstance(value, Selection) else _filled(value, tensors_of)
        return filled
    if isinstance(read, (list, tuple)):
        parts = [_filled(part, tensors_of) for part in read]
        if isinstance(read, list):
            return parts
        return type(read)(*parts) if hasattr(read, "_fields") else tuple(parts)
    return read
