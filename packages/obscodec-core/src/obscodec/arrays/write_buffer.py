"""WriteBuffer: how rows of compressed arrays come into their store."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, check_kind
from obscodec.arrays.dirty_rows import DirtyRows, note
from obscodec.arrays.indexing import Part
from obscodec.fixed import Fixed
from obscodec.frames import StepWriter
from obscodec.layout import same_values
from obscodec.runtime import says_memory_error
from obscodec.stores import Place, Store

_MAX_NBYTES = 1 << 18  # eight steps of Atari: storing them together takes little longer than storing one
_MANY_ROWS = 16  # of 16 KiB or less: looking for equal rows among so many takes longer than storing them
_MAKE_ANOTHER = "make another write buffer"
_MAX_ROWS = 64  # of small tensors, so that no flush takes long

Ids = npt.NDArray[np.signedinteger]
Tensors = npt.NDArray[np.generic]
_RowOfArray = tuple[int, int]  # the ``id()`` of an array of ids, and a row of it


class WriteBuffer:
    """Rows of tensors on their way into a store.

    A store of frames takes each row at once, as it lies in the caller's memory; the ids that it replaces are given back
    later, many together. For other stores, a row costs little more than nothing if several are stored together. So
    rows wait here, copied but not encoded, until the write buffer is full or somebody reads an array. Arrays of one
    store can share a write buffer, which keeps their rows in order. If few rows may wait, equal neighbours wait as one
    row: the next observation of a step equals the observation of the step after it. Safe to use from several threads.

    A store with ``max_bytes`` should have no write buffer: when the store is full, nobody can read the arrays until
    the waiting rows have room.

    Args:
        store: where the rows go.
        n_envs: how many tensors a row has; tensor ``i`` belongs to sequence ``i``. Where an array has one axis of ids,
            environments take turns in it.
        min_rows: how many rows may wait at least, however large they are; 0 if large ones need no neighbours.
        first: the sequence of tensor 0; the others follow.

    Attributes:
        row_shape: the shape of a row, ``(n_envs, *shape)``.
        waiting: where each waiting row of an array lies in this buffer, in the order of their arrival.
    """

    store: Fixed[Store] = Fixed(_MAKE_ANOTHER)
    n_envs: Fixed[int] = Fixed(_MAKE_ANOTHER)
    min_rows: Fixed[int] = Fixed(_MAKE_ANOTHER)
    first: Fixed[int] = Fixed(_MAKE_ANOTHER)
    row_shape: Fixed[tuple[int, ...]] = Fixed(_MAKE_ANOTHER)
    dtype: Fixed[np.dtype[np.generic]] = Fixed(_MAKE_ANOTHER)

    def __init__(self, store: Store, n_envs: int, min_rows: int = 4, first: int = 0) -> None:
        check_kind("store", store, Store, "a Store, such as FrameStore(layout)")
        n_envs, min_rows = as_count("n_envs", n_envs), as_count("min_rows", min_rows, 0)
        self.store = store
        self.n_envs = n_envs
        self.min_rows = min_rows
        self.first = as_count("first", first, 0)
        self.row_shape = (n_envs, *store.layout.shape)
        self.dtype = store.layout.dtype
        row_nbytes = n_envs * store.layout.nbytes
        self._n_rows = max(min_rows, min(_MAX_NBYTES // max(1, row_nbytes), _MAX_ROWS))
        self._n_places = max(self._n_rows, _MAX_ROWS)
        self._merges = self._n_rows < _MANY_ROWS
        self._allocate(0)
        self._envs = np.arange(n_envs)
        self._sequences = np.tile(self._envs + self.first, max(1, self._n_rows))
        self._writer: StepWriter | None = None  # if the store has one
        self.waiting: dict[_RowOfArray, int] = {}  # the only state of a row, so that an interrupt finds all or nothing
        self._arrays: dict[int, Ids] = {}  # arrays of ids by their ``id()``
        self._watches: dict[int, list[ref[DirtyRows]]] = {}  # of these arrays
        store.write_buffers.add(self)  # last: another thread may call it as soon as the store knows it

    def put(self, ids: Ids, row: int, tensors: Tensors) -> bool:
        """Store ``tensors``, ``[n_envs, *shape]``, in ``ids[row]``, or keep a copy of them until :meth:`flush` does it.

        ``ids``, ``[n_steps, n_envs]``, are those of an array of the store, and ``row`` is from 0 on.

        Returns:
            False if the tensors have another shape or dtype; then they do not wait.

        Raises:
            HeapFull: the tensors do not fit into the store, or the rows that waited before, which go on waiting.
        """
        if tensors.shape != self.row_shape or tensors.dtype != self.dtype:
            return False
        place = id(ids), row
        with self.store.changing:
            writer = self._writer or self._new_writer()
            if writer is not None:
                self.store.settle()
                if self._watches:
                    self._note((row,), ids)
                while not writer.write(row, ids, tensors):
                    self._let_go(writer)
                return True
            if not self._n_rows:
                self._note((row,), ids)
                self.store.exchange([Place(ids, row)], tensors, self._envs, self._sequences)
                return True
            if not len(self._rows):
                self._allocate(self._n_rows)
            new = self._n_used if self.waiting else 0
            if new == self._n_rows or len(self.waiting) == self._n_places:
                self._flush()
                new = 0
            self._rows[new] = tensors  # the row stays free until it is in ``waiting``
            before = self.waiting.get(place)
            if before is not None:  # one array has the observations and the next ones, each step is assigned twice
                if self._are_same(before, new):
                    return True
                self._flush()
                new = 0
                self._rows[new] = tensors
            if new and self._merges and self._are_same(new - 1, new):
                new -= 1
            self._arrays[id(ids)] = ids
            self.waiting[place] = new
        return True

    def put_some(self, ids: Ids, index: Any, tensors: Any) -> bool:
        """:meth:`put` for ``m`` of the tensors, ``[m, *shape]``: ``index`` has their rows and columns, ``i64[m]``.

        For ``ids`` of one axis, in which environments take turns, ``index`` is a slice.

        Returns:
            False if index or tensors have another form, or the store can't take them at once; nothing is done then.
        """
        places = index if isinstance(index, tuple) else (index,)
        n = len(tensors) if type(tensors) is np.ndarray and tensors.ndim else 0
        if not 0 < n <= self.n_envs or len(places) != ids.ndim:
            return False
        if tensors.shape[1:] != self.row_shape[1:] or tensors.dtype != self.dtype:
            return False
        if ids.ndim == 2:
            rows, columns = places
        elif type(places[0]) is slice and len(selected := range(len(ids))[places[0]]) == n:
            places = (np.array(selected, np.int64),)
            rows, columns = divmod(places[0], self.n_envs)
        else:
            return False
        n_rows = -(-ids.size // self.n_envs)
        for axis, n_there in ((rows, n_rows), (columns, self.n_envs)):
            if type(axis) is not np.ndarray or axis.shape != (n,) or axis.dtype != np.int64:
                return False
            if not 0 <= axis.min() <= axis.max() < n_there:
                return False
        with self.store.changing:
            if (writer := self._writer or self._new_writer()) is None:
                return False
            self.store.settle()
            self._note(places, ids)
            while not writer.write_some(rows, columns, ids, tensors):
                self._let_go(writer)
        return True

    @property
    def writer(self) -> StepWriter | None:
        """What stores steps at once; None if they wait."""
        with self.store.changing:
            return self._writer or self._new_writer()

    def put_both(self, row: int, ids: tuple[Ids, Ids], tensors: Tensors, more_tensors: Tensors) -> None:
        """:meth:`put` for two arrays together, if the write buffer has a :attr:`writer`: all is stored, or nothing.

        The rows of columns that are bound to its state change in the same step. :meth:`forget` undoes the last call.
        """
        with self.store.changing:
            writer = self._writer
            assert writer is not None
            self.store.settle()
            if self._watches:
                self._note((row,), *ids)
            while not writer.write_both(row, ids, tensors, more_tensors):
                self._let_go(writer)

    def watch(self, ids: Ids, watches: list[ref[DirtyRows]]) -> None:
        """Tell the watches in a list, which may change, when rows of ``ids`` are stored."""
        with self.store.changing:
            self._watches[id(ids)] = watches

    def flush(self) -> None:
        """Store all rows that wait, and give all replaced ids back.

        Raises:
            HeapFull: the rows do not fit into the store; they go on waiting.
        """
        with self.store.changing:
            # Where rows go at once by now, none will wait: their memory goes.
            writer = self._writer or (self._new_writer() if len(self._rows) else None)
            self._flush()
            if writer is not None and writer.state.has_replaced:
                self._let_go(writer)

    def reserve(self, row: int, n: int) -> None:
        """Make room for a row of each of ``n`` arrays, so that the next :meth:`put` for each of them cannot fail.

        No row of this number waits afterwards. If the rows that wait do not fit into their store, they go on waiting,
        and :class:`HeapFull` is raised.
        """
        if self._writer is not None:
            with self.store.changing:
                if not self._writer.state.begin(n):
                    self._let_go(self._writer)
                    self._writer.state.begin(n)
        elif self.waiting:
            with self.store.changing:
                many = self._n_used + n > self._n_rows or len(self.waiting) + n > self._n_places
                if many or any((array, row) in self.waiting for array in self._arrays):
                    self._flush()

    def forget(self, row: int) -> None:
        """Undo the last assignment to the row of this number of every array, since :meth:`reserve`."""
        with self.store.changing:
            if self._writer is not None:
                self._writer.state.undo(row)
            self.waiting = {place: at for place, at in self.waiting.items() if place[1] != row}

    def drop(self, ids: Ids) -> None:
        """Forget the rows that wait for an array of ids that is gone."""
        with self.store.changing:
            self.waiting = {place: at for place, at in self.waiting.items() if place[0] != id(ids)}
            self._arrays.pop(id(ids), None)
            self._watches.pop(id(ids), None)
            if self._writer is not None:
                self._writer.state.drop(ids)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the memory for waiting rows, or for replaced ids; 0 until the first row comes."""
        return self._bytes.nbytes + (self._writer.state.nbytes if self._writer else 0)

    def _note(self, index: tuple[Part, ...], *arrays: Ids) -> None:
        """Tell the watches of arrays that the rows of an index change."""
        for ids in arrays:
            note(self._watches.get(id(ids), []), index)

    @says_memory_error
    def _let_go(self, writer: StepWriter) -> None:
        """Give the ids back that steps have replaced."""
        self.store.settle(writer.state.replaced())
        writer.state.forget_replaced()

    def _new_writer(self) -> StepWriter | None:
        writer = self.store.step_writer(self.n_envs)
        if writer is not None:
            self._flush()
            self._allocate(0)
            writer.state.first = self.first
            self.store.own(self, writer.state.replaced_rows)
            self._writer = writer
        return writer

    def _allocate(self, n_rows: int) -> None:
        layout = self.store.layout
        self._bytes = np.empty((n_rows, self.n_envs * layout.nbytes), np.uint8)
        self._tensors = layout.tensors(self._bytes.reshape(n_rows * self.n_envs, layout.nbytes))
        self._rows = self._tensors.reshape(n_rows, *self.row_shape)  # last: an interrupt leaves no rows, or all

    def _are_same(self, a: int, b: int) -> bool:
        """Whether two rows are equal in every byte; by numpy, so that the first steps compile nothing."""
        rows: Tensors = self._bytes
        if rows.shape[1] % 8 == 0:
            rows = rows.view(np.uint64)
        return same_values(rows[a], rows[b])

    @property
    def _n_used(self) -> int:
        """How many rows of the memory are in use."""
        return next(reversed(self.waiting.values())) + 1

    def _flush(self) -> None:
        if not self.waiting:  # another thread was here first
            return
        self.store.settle()
        if not self.waiting:  # for no array that is still there
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
        """Where the ids of the waiting rows go, in their order; neighbours of one array are one place."""
        places = []
        for array, waiting in groupby(self.waiting, key=itemgetter(0)):
            rows = [row for _, row in waiting]
            index = rows[0] if len(rows) == 1 else np.array(rows)
            self._note((index,), self._arrays[array])
            places.append(Place(self._arrays[array], index))
        return places

    def __reduce__(self) -> tuple[type[WriteBuffer], tuple[Store, int, int, int]]:
        self.flush()
        return WriteBuffer, (self.store, self.n_envs, self.min_rows, self.first)
