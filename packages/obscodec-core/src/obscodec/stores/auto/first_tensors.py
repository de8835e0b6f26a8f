"""FirstTensors: the tensors of an AutoStore until they move to the store that it chooses, and their ids afterwards."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream, SlotError
from obscodec.layout import Layout
from obscodec.runtime import assign, new_chunk
from obscodec.segments import Ints
from obscodec.state import State, array_of, check_range, number_of
from obscodec.stores.auto.shown import Shown, Tensors
from obscodec.stores.ids import FIRST_ID, NO_TENSOR

_CHUNK_NBYTES, _PART_NBYTES = 1 << 20, 1 << 18
_MOST_OF_CHUNK = 1 << 12
_MORE = 1 << 8, 1 << 12  # tensors that may come while others move: small ones move fast
_MOST_SEQUENCES = 1 << 16


class Part(NamedTuple):
    """Some first tensors that are next to be moved: from number ``begin`` on, before ``end``; those with references.

    ``kept`` are their numbers, ``i64[n]``, ``tensors`` ``[n, *shape]`` and ``sequences`` ``i64[n]``.
    """

    begin: int
    end: int
    kept: Ints
    tensors: Tensors
    sequences: Ints


class FirstTensors:
    """Tensors by their numbers, in the order of their arrival: the oldest move to another store, the others wait here.

    The tensor of number ``i`` has the id ``FIRST_ID + i`` as long as it has a reference. Not safe to use from several
    threads: its AutoStore locks. An exception at any line leaves it as it was, or as it is afterwards.

    Args:
        most: how many tensors may ever come; ids from ``FIRST_ID + most`` on are of the other store.
        most_waiting: how many may wait, without those whose memory is free.
        shown: looks at them until they show how to keep all.

    Attributes:
        n: how many have come.
        n_moved: how many of them, the oldest, are in the other store.
        n_left: how many of these have a reference.
        dead: ids in the other store of tensors that were released while they moved, to be given back in the end.
    """

    def __init__(self, layout: Layout, most: int, most_waiting: int, shown: Shown) -> None:
        self.most, self._most_waiting = most, most_waiting
        self._shown = shown
        self.n = self.n_moved = self.n_left = 0
        self.dead = np.zeros(0, np.int64)
        self._layout = layout
        self._of_part = max(1, _PART_NBYTES // max(1, layout.nbytes))  # tensors
        self._of_chunk = int(np.clip(_CHUNK_NBYTES // max(1, layout.nbytes), 1, _MOST_OF_CHUNK))  # tensors
        self._chunks: list[Tensors | None] = []  # None: all of its tensors have moved, or are gone
        self._free = frozenset[int]()  # chunks of tensors that are gone and have not moved
        self._sequences = np.zeros(0, np.int64)
        self._gone = np.ones(0, bool)  # which have no reference
        self._moved = np.zeros(0, np.int64)  # the ids in the other store

    @property
    def nbytes(self) -> int:
        """Bytes of the tensors that wait, and of those that are gone and whose memory is not free."""
        return self._n_in_memory * self._layout.nbytes

    @property
    def _n_in_memory(self) -> int:
        at, n_moved_of_chunk = divmod(self.n_moved, self._of_chunk)
        n_free = len(self._free) * self._of_chunk - n_moved_of_chunk * (at in self._free)
        return self.n - self.n_moved - n_free

    @property
    def n_more(self) -> int:
        """How many tensors may come now."""
        return max(0, min(self.most - self.n, self._most_waiting - self._n_in_memory))

    @property
    def n_waiting(self) -> int:
        """How many tensors with references wait."""
        return int(np.count_nonzero(~self._gone[self.n_moved : self.n]))

    def take(self, tensors: Tensors, which: Ints, sequences: Ints, ids: Ints) -> None:
        """Keep copies of tensors; see ``Store.take_in``."""
        begin, end = self.n, self.n + len(ids)
        while len(self._chunks) * self._of_chunk < end:
            self._chunks.append(self._new_tensors(self._of_chunk))
        if len(self._gone) < end:
            self._grow(max(2 * len(self._gone), end))
        at = 0
        for chunk, rows in self._rows(begin, end):
            n = rows.stop - rows.start
            np.take(tensors, which[at : at + n], axis=0, out=chunk[rows], mode="clip")  # without another copy
            if not self.n_moved:
                self._shown.look(begin + at, chunk[rows])
            at += n
        self._sequences[begin:end] = sequences[which]
        self.n = end
        assign((self._gone, slice(begin, end), False), (ids, ..., np.arange(begin, end) + FIRST_ID))

    def copies(self, which: Ints) -> tuple[Tensors, Ints]:
        """Copies of tensors by their numbers, and their sequences. Needs no lock, as long as none has moved."""
        tensors = self._new_tensors(len(which))
        for k, number in enumerate(which.tolist()):
            tensors[k] = self._at(number)
        return tensors, self._sequences[which]

    def are_here(self, ids: Ints) -> npt.NDArray[np.bool_]:
        """``bool[n]``, which of some ids are of tensors that wait, or of the tensor of zeros; the others have moved.

        Raises:
            SlotError: an id is of no tensor.
        """
        self.inner(ids)  # refuses those of no tensor
        first = self._are_first(ids)
        here = np.equal(ids, NO_TENSOR)
        here[first] = ids[first] >= FIRST_ID + self.n_moved
        return here

    def read(self, ids: Ints, at: Ints, out: Tensors) -> None:
        """Copy tensors that wait to the places ``at`` of ``out``, ``[n, *shape]``."""
        for i, k in zip(ids.tolist(), at.tolist(), strict=True):
            out[k] = 0 if i == NO_TENSOR else self._at(i - FIRST_ID)

    def inner(self, ids: Ints) -> Ints:
        """Ids in the other store of first tensors, 0 of those that wait; other ids stay the same.

        Raises:
            SlotError: an id is of a tensor that is gone.
        """
        if not self.n_left and self.n_moved == self.n:
            return ids
        from_first = np.subtract(ids, FIRST_ID, dtype=np.int64)
        (first,) = (from_first.view(np.uint64) < self.n).nonzero()  # a negative one has become a large one
        if not len(first):
            return ids  # as of most batches
        found, numbers = ids.copy(), from_first[first]
        if np.count_nonzero(gone := self._gone[numbers]):  # takes less than ``any``
            raise SlotError(f"id {int(numbers[gone][0]) + FIRST_ID} is of no tensor in this store")
        found[first] = self._moved[numbers]
        return found

    def leave(self, ids: Ints) -> None:
        """Release first tensors: ids of those that have moved become ids in the other store, those that wait 0.

        Raises:
            SlotError: a tensor is gone, or named twice; nothing was done.
        """
        inner, numbers = self.inner(ids), ids[self._are_first(ids)] - FIRST_ID
        different, n_times = np.unique(numbers, return_counts=True)
        if len(different) < len(numbers):
            twice = int(different[n_times > 1][0]) + FIRST_ID
            raise SlotError(f"id {twice} is released twice, it stands for one tensor")
        assign((self._gone, numbers, True), (ids, ..., inner))

    def stay(self, ids: Ints, before: Ints) -> None:
        """Undo :meth:`leave`: ``ids`` become what they were before."""
        assign((self._gone, before[self._are_first(before)] - FIRST_ID, False), (ids, ..., before))

    def free_gone(self, ids: Ints) -> None:
        """Free the memory of chunks all of whose tensors are gone, if one of some ids, which were released, is in them.

        What is yet to be looked at stays.
        """
        for k in set(((ids[self._are_first(ids)] - FIRST_ID) // self._of_chunk).tolist()):
            begin, end = k * self._of_chunk, (k + 1) * self._of_chunk
            if max(self.n_moved, self._shown.n_needed) <= begin and end <= self.n and self._gone[begin:end].all():
                self._free |= {k}
                self._chunks[k] = None

    def count_left(self) -> None:
        """Count the tensors that have moved and have references anew."""
        self.n_left = int(np.count_nonzero(~self._gone[: self.n_moved]))

    def limit(self) -> None:
        """Leave room for some more tensors only: the other store is about to be made, with a table for all ids."""
        self.most = min(self.most, 2 * self.n + int(np.clip(self._layout.nbytes // 4, *_MORE)))

    def next_part(self) -> Part | None:
        """Some of the oldest tensors that wait; None if none do."""
        begin = self.n_moved
        end = min(begin + self._of_part, self.n, (begin // self._of_chunk + 1) * self._of_chunk)
        if begin == end:
            return None
        if self._chunks[begin // self._of_chunk] is None:  # all are gone
            none = np.empty(0, np.int64)
            end = (begin // self._of_chunk + 1) * self._of_chunk
            return Part(begin, end, none, np.empty((0, *self._layout.shape), self._layout.dtype), none)
        ((chunk, rows),) = self._rows(begin, end)
        kept = np.flatnonzero(~self._gone[begin:end])
        some = slice(None) if len(kept) == end - begin else kept  # a slice: no copy
        return Part(begin, end, begin + kept, chunk[rows][some], self._sequences[begin:end][some])

    def move(self, part: Part, ids: Ints) -> None:
        """Note that a part has moved, and its tensors have ``ids`` in the other store."""
        is_gone = self._gone[part.kept]
        moved, dead = self._moved.copy(), np.append(self.dead, ids[is_gone])
        moved[part.kept] = np.where(is_gone, NO_TENSOR, ids)
        n_left, done = self.n_left + np.count_nonzero(~is_gone), part.end // self._of_chunk
        chunks: list[Tensors | None] = [*[None] * done, *self._chunks[done:]]
        free = frozenset(k for k in self._free if k >= done)
        # All in one step.
        vars(self).update(_moved=moved, dead=dead, n_moved=part.end, n_left=int(n_left), _chunks=chunks, _free=free)

    def forget(self) -> None:
        """Free the memory of tensors: all have moved, and none will come."""
        self._chunks, self._sequences = [], self._sequences[:0].copy()
        self._shown.forget()

    def state(self) -> State:
        """The tensors that wait, and the ids of the others: see ``obscodec.state``."""
        begin, end = self.n_moved, self.n
        none = np.empty((0, *self._layout.shape), self._layout.dtype)
        return {
            "n_first": self.most,
            "n_taken": end,
            "first": np.concatenate([none, *(chunk[rows] for chunk, rows in self._rows(begin, end))]),  # zeros if gone
            "sequences": self._sequences[begin:end].copy(),
            "gone": self._gone[:end].copy(),
            "moved": self._moved[:end].copy(),
        }

    def restore(self, state: State) -> None:
        """Fill this object, which is new, with a :meth:`state`.

        Raises:
            CorruptStream: no object has such a state.
        """
        n = number_of(state, "n_taken", 0, self.most)
        first = array_of(state, "first", self._layout.dtype, (None, *self._layout.shape))
        gone, moved = array_of(state, "gone", np.bool_, (None,)), array_of(state, "moved", np.int64, (None,))
        sequences = array_of(state, "sequences", np.int64, (len(first),))
        check_range("sequences", sequences, 0, _MOST_SEQUENCES)
        self.n = self.n_moved = n - len(first)
        if self.n < 0 or len(gone) < n:
            raise CorruptStream(f"{len(first)} first tensors wait of {n}, and {len(gone)} are known")
        self._chunks = [None] * (self.n // self._of_chunk)
        self.take(first, np.arange(len(first)), sequences, np.zeros(len(first), np.int64))
        self._gone[:n], self._moved[:n] = gone[:n], moved[:n]
        self.free_gone(np.flatnonzero(gone[:n]) + FIRST_ID)
        self.count_left()

    def _at(self, number: int) -> Tensors:
        chunk = self._chunks[number // self._of_chunk]
        assert chunk is not None
        row: Tensors = chunk[number % self._of_chunk]
        return row

    def _rows(self, begin: int, end: int) -> Iterator[tuple[Tensors, slice]]:
        """Where the tensors of numbers ``begin..end`` lie: chunks, and which rows of each."""
        while begin < end:
            k, row = divmod(begin, self._of_chunk)
            n = min(end - begin, self._of_chunk - row)
            chunk = self._chunks[k]
            if chunk is None:
                chunk = np.zeros((self._of_chunk, *self._layout.shape), self._layout.dtype)
            yield chunk, slice(row, row + n)
            begin += n

    def _new_tensors(self, n: int) -> Tensors:
        """``[n, *shape]`` in memory that goes back to the system when it is freed."""
        nbytes = n * self._layout.nbytes
        return self._layout.tensors(new_chunk(max(1, nbytes))[:nbytes].reshape(n, self._layout.nbytes))

    def _grow(self, n: int) -> None:
        more = n - len(self._gone)
        vars(self).update(
            _sequences=np.append(self._sequences, np.zeros(more, np.int64)),
            _gone=np.append(self._gone, np.ones(more, bool)),
            _moved=np.append(self._moved, np.zeros(more, np.int64)),
        )

    def _are_first(self, ids: Ints) -> npt.NDArray[np.bool_]:
        return np.greater_equal(ids, FIRST_ID) & np.less(ids, FIRST_ID + self.n)
