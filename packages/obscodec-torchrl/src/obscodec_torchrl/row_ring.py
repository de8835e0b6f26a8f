"""A storage whose bytes run out before its rows do: it becomes a ring of as many rows as fit.

TorchRL's writer goes around the rows of a storage; samplers, priorities and the ends of episodes go by their numbers. A
storage that reaches its limit closes this ring where it is, as if ``max_size`` had been that small. If newer items take
more bytes than those that they replace, the oldest rows go, which are just behind the cursor, and all rows after them
move down. Near the end of a lap the ring opens again if there are bytes for more rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from obscodec import HeapFull
from obscodec.buffers import LEAST_STEPS, MemoryLimit
from obscodec.fixed import Fixed
from obscodec.runtime import give_back_pages, says_memory_error
from tensordict import is_tensor_collection
from torch.utils._pytree import tree_map
from torchrl.data import LazyTensorStorage, ReplayBuffer, RoundRobinWriter, TensorDictRoundRobinWriter, TensorStorage
from torchrl.data.replay_buffers.samplers import (
    ConsumingSampler,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    Sampler,
    StalenessAwareSampler,
    StreamingSliceSampler,
)

from obscodec_torchrl.arrays import append_together
from obscodec_torchrl.compiling import not_compiled
from obscodec_torchrl.compressed_tensor import CompressedTensor, stored_array
from obscodec_torchrl.leaves import leaves, selected

_MAKE_ANOTHER = "make another storage, and extend its buffer with the items of this one"
_PART = 32  # one drop is this part of the rows: a smaller one would move the others more often
_WAITING_NBYTES = 1 << 21  # of a store may wait to be compressed: they do not fall when rows go
_SPARE = 16  # this part of the bytes must be free before the ring opens
# These remember rows, of which nobody can tell them that they move, or read them past the storage.
_OF_ROWS = ConsumingSampler, PrioritizedSliceSampler, StalenessAwareSampler, StreamingSliceSampler


class Move(NamedTuple):
    """Rows that move down, some at a time.

    Attributes:
        begin: the row to which the first one moves.
        row: the row to which the next one moves; those before it have moved.
        n: by how many rows, and how many go.
        end: of the rows that move.
    """

    begin: int
    row: int
    n: int
    end: int


class RowRing(LazyTensorStorage):  # type: ignore[misc]
    """A storage with compressed leaves that may be a shorter ring of rows than it has room for.

    Attributes:
        capacity: for how many items there is room.
        n_ring_rows: after how many rows the writer begins anew; None for as many as there is room for.
        moving: a move of rows that is under way, or was interrupted.
        futile_bytes: of memory that did not fall when rows went: only more than these have others go.
    """

    ndim: Fixed[int] = Fixed(_MAKE_ANOTHER)
    capacity: int
    n_ring_rows: int | None = None
    moving: Move | None = None
    futile_bytes = 0

    @property
    def max_size(self) -> int:
        """After how many items the writer begins anew: as many as there is room for, or as ``max_bytes`` has left."""
        self._settle()
        if self.n_ring_rows is None:
            return self.capacity
        return cast("int", self.n_ring_rows * super()._total_shape[1:].numel())

    @max_size.setter
    def max_size(self, n: int) -> None:
        if vars(self).get("initialized"):  # until then, TorchRL sets it, to whole rows
            raise AttributeError(f"max_size of a {type(self).__name__} stays {self.max_size}: {_MAKE_ANOTHER}")
        self.capacity = n

    @property
    def n_rows(self) -> int:
        """For how many rows there is room: items, if ``ndim`` is 1."""
        return cast("int", super()._total_shape[0])

    @property
    def _total_shape(self) -> Any:
        shape = super()._total_shape
        return shape if self.n_ring_rows is None else torch.Size([self.n_ring_rows, *shape[1:]])

    @not_compiled
    def __len__(self) -> int:
        self._settle()
        return cast("int", super().__len__())

    def get(self, index: Any) -> Any:
        """The items that ``index`` selects; TorchRL's would select among all rows of a full storage."""
        n_rows = self._len_along_dim0
        if self.n_ring_rows is None:
            return super().get(index)
        return selected(selected(self._storage, slice(n_rows)), index)

    def flatten(self) -> TensorStorage:
        """The items, along one axis."""
        self._settle()
        if self.n_ring_rows is None:
            return super().flatten()
        rows = selected(self._storage, slice(self.n_ring_rows))
        if is_tensor_collection(rows):
            return TensorStorage(rows.flatten(0, self.ndim - 1))
        return TensorStorage(tree_map(lambda x: x.flatten(0, self.ndim - 1), rows))

    def reset_ring(self, n_rows: int | None = None) -> None:
        """Begin with other items: with a ring of ``n_rows``, None for as many as there is room for."""
        self.moving, self.n_ring_rows, self.futile_bytes = None, n_rows, 0

    def _empty(self) -> None:
        self._settle()  # else it would be finished later, and count rows again
        super()._empty()
        self.reset_ring()

    def _settle(self) -> None:
        """Finish a move of rows that was interrupted."""
        if self.moving is not None:
            with self.lock:
                if self.moving is not None:  # else another thread was here first
                    _finish(self, self.moving)


def check_room(storage: RowRing, limit: MemoryLimit) -> None:
    """Before items are added to a storage that has reached its limit: see whether older ones can go.

    Raises:
        HeapFull: they can't.
    """
    limit.decide(storage.memory_bytes(), storage.stores())
    n_rows, nbytes = storage._len_along_dim0, storage.memory_bytes()
    if nbytes > limit.max_bytes:
        if _buffer_at_work(storage) is None:
            raise HeapFull(
                f"max_bytes is {limit.max_bytes}, and the storage takes {nbytes}. Older items go only if one buffer "
                "with a RoundRobinWriter, in the process of the storage, writes: write through one, or allow more"
            )
        if n_rows <= LEAST_STEPS:
            raise limit.full(n_rows, nbytes)


@says_memory_error
def keep_limit(storage: RowRing, limit: MemoryLimit, cursor: Any) -> None:
    """After items were added at ``cursor``: let the oldest ones go if the limit is exceeded.

    The rows at ``cursor`` stay where they are, since the caller tells its sampler about them: after a write that went
    around the end, this waits for the next one.
    """
    limit.decide(storage.memory_bytes(), storage.stores())
    if (buffer := _buffer_at_work(storage)) is None:
        return
    rows = torch.as_tensor(cursor).reshape(-1)
    at, n_rows = int(rows[-1]) + 1, storage._len_along_dim0
    if at - int(rows[0]) != len(rows):
        return
    if n_rows < storage._total_shape[0]:
        if at == n_rows and storage.memory_bytes() > limit.max_bytes:
            limit.warn(n_rows, storage.n_rows, storage.memory_bytes())
            _close(storage, buffer._writer, n_rows)
        return
    most_waiting = _WAITING_NBYTES * len(storage.stores())
    while (nbytes := storage.memory_bytes()) > limit.max_bytes:
        if nbytes <= min(storage.futile_bytes, limit.max_bytes + most_waiting):
            break
        n = max(LEAST_STEPS, n_rows // _PART, n_rows * (nbytes - limit.max_bytes) // nbytes)
        if (n := min(n, n_rows - at - 1, n_rows - LEAST_STEPS)) <= 0:
            return
        limit.warn(n_rows, storage.n_rows, nbytes)
        storage.moving = Move(at, at, n, n_rows)
        _finish(storage, storage.moving)
        n_rows -= n
        storage.futile_bytes = nbytes if storage.memory_bytes() >= nbytes else 0
    else:
        storage.futile_bytes = 0
    is_spare = storage.memory_bytes() < limit.max_bytes - limit.max_bytes // _SPARE
    if storage.n_ring_rows is not None and at < n_rows <= at + len(rows) and is_spare:
        _open(storage, at, n_rows)


def _finish(storage: RowRing, move: Move) -> None:
    """Go on with a move, which may have been interrupted anywhere: each step can be done twice."""
    begin, row, n, end = move
    per_row = storage._total_shape[1:].numel()
    prioritized = [x for x in _samplers(storage) if isinstance(x, PrioritizedSampler)]
    while row < end - n:
        m = min(n, end - n - row)  # so that no row moves to where another one is moving from
        _copy_rows(storage, row + n, row, m)
        for sampler in prioritized:
            to = torch.arange(row * per_row, (row + m) * per_row, device=sampler.device)
            for tree in (sampler._sum_tree, sampler._min_tree):
                tree[to] = tree[to + n * per_row]
        row += m
        storage.moving = Move(begin, row, n, end)
    storage._len = (end - n) * per_row
    storage.n_ring_rows = end - n
    _release(storage, end - n, end)
    _change_generations(storage, begin, end - n)
    storage.moving = None
    for sampler in _samplers(storage):
        if not isinstance(sampler, PrioritizedSampler):
            sampler.mark_update(torch.arange(begin, end - n), storage=storage)


def _copy_rows(storage: RowRing, of: int, to: int, n: int) -> None:
    """Copy ``n`` rows to others; compressed ones are neither decoded nor encoded."""
    items = selected(storage._storage, slice(of, of + n))
    own, given = storage.compressed(), leaves(items)
    drawn = {path: stored_array(given[path].drawn(...)) for path in own}
    for tensors in append_together(drawn, {path: leaf.array for path, leaf in own.items()}):
        tensors.put(slice(to, to + n))
    if is_tensor_collection(items):
        items = items.exclude(*own)
        if any(isinstance(x._writer, TensorDictRoundRobinWriter) for x in _buffers(storage)) and "index" in items:
            items["index"] = items["index"] - (of - to)  # which the writer has set
    LazyTensorStorage.set(storage, slice(to, to + n), items, set_cursor=False)


def _close(storage: RowRing, writer: RoundRobinWriter, n_rows: int) -> None:
    """Have the writer go on with the first row."""
    storage.n_ring_rows = n_rows
    try:
        writer._cursor = 0
    except BaseException:
        if writer._cursor:
            storage.n_ring_rows = None
        raise


def _open(storage: RowRing, at: int, n_rows: int) -> None:
    """Have the writer go on with rows that were never used. The oldest ones, which it was about to replace, go."""
    storage._len = at * storage._total_shape[1:].numel()
    storage.n_ring_rows = None
    _release(storage, at, n_rows)


def _release(storage: RowRing, begin: int, end: int) -> None:
    """Release what rows had that are not in use any more."""
    per_row = storage._total_shape[1:].numel()
    for leaf in leaves(storage._storage).values():
        rows = leaf[begin:end]
        if isinstance(leaf, CompressedTensor):
            leaf.array.assign_ids(slice(begin, end), np.zeros(rows.array.ids.size, np.int64))
        elif rows.device.type == "cpu" and rows.is_contiguous() and rows.nbytes:
            give_back_pages(rows.view(-1).view(torch.uint8).numpy())
    _change_generations(storage, begin, end)
    for sampler in _samplers(storage):
        if isinstance(sampler, PrioritizedSampler):
            sampler._sum_tree[torch.arange(begin * per_row, end * per_row, device=sampler.device)] = 0.0
            if sampler._max_priority_within_buffer:  # its row may have moved, or be gone
                sampler._recompute_max_priority_from_tree()


def _change_generations(storage: RowRing, begin: int, end: int) -> None:
    """Have whoever has sampled one of these rows find that it has changed."""
    generations = getattr(storage, "_slot_generations", None)
    if generations is not None:
        generations[begin:end] += 1


def _buffers(storage: RowRing) -> list[ReplayBuffer]:
    return [x for x in storage._attached_entities if isinstance(x, ReplayBuffer)]


def _samplers(storage: RowRing) -> list[Sampler]:
    return list({id(x._sampler): x._sampler for x in _buffers(storage)}.values())


def _remembers_rows(sampler: Sampler, storage: RowRing) -> bool:
    """Whether rows must stay where they are: with priorities for more than rows, TorchRL refuses rows that are gone."""
    return isinstance(sampler, _OF_ROWS) or (isinstance(sampler, PrioritizedSampler) and storage.ndim > 1)


def _buffer_at_work(storage: RowRing) -> ReplayBuffer | None:
    """The buffer that is writing, if the rows of the storage are a ring, around which it goes alone."""
    at_work = storage.buffers_at_work()
    others = [x for x in _buffers(storage) if x not in at_work]
    is_ring = (
        len(at_work) == 1
        and isinstance(at_work[0]._writer, RoundRobinWriter)
        and not any(getattr(x._writer, "_write_count", 0) for x in others)
        and not any(_remembers_rows(x, storage) for x in _samplers(storage))
    )
    return at_work[0] if is_ring else None
