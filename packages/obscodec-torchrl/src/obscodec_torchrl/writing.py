"""Writing into a storage: its arrays, all leaves of items or none, and the ends of episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import torch
from obscodec import DTypeError, FieldError, Layout, ShapeError
from obscodec.buffers import MIN_COMPRESSED_NBYTES, BufferOptions
from obscodec.segments import Ints
from obscodec.stores import Store
from obscodec.torch import CompressedTensor, as_index, drawn_together, stored_array
from torchrl.data import LazyTensorStorage, RoundRobinWriter

from obscodec_torchrl.leaves import Key, in_time, leaves, n_batch_axes, stacked, with_leaves
from obscodec_torchrl.new_tensors import append_together

OPTIONAL = ("index",)  # writers add this key to their items; others may leave it out


def new_stores(
    data: Any, groups: Mapping[Key, Hashable], options: BufferOptions[Key], ndim: int
) -> tuple[dict[Key, Store], dict[Key, torch.Tensor], float]:
    """Stores for the leaves of a row of items that are compressed, of which ``ndim - 1`` axes count items.

    ``groups`` has the leaves that may be compressed. Those of one group share a store if their batches and layouts are
    alike, so that a frame which occurs in several of them is stored once.

    Returns:
        The store of each compressed leaf; ids of zeros for a row of it; how many bytes an item takes in ids and in
        leaves that are not compressed.

    Raises:
        SpecError: a spec names no codec.
        DTypeError: a dtype can't be stored.
    """
    given = leaves(data)
    batches = {path: leaf.shape[: n_batch_axes(data, path, ndim - 1)] for path, leaf in given.items()}
    layouts = {
        path: Layout(tuple(leaf.shape[len(batches[path]) :]), str(leaf.dtype).removeprefix("torch."))
        for path, leaf in given.items()
    }
    fields = options.fields_of(layouts, min_nbytes=MIN_COMPRESSED_NBYTES)
    keys = {path: (batches[path], group, fields[path]) for path, group in groups.items()}
    made = {key: key[-1].new_store() for key in keys.values()}
    stores = {path: store for path, key in keys.items() if (store := made[key]) is not None}
    ids = {path: torch.zeros(batches[path], dtype=torch.int32) for path in stores}
    n_items = math.prod(next(iter(given.values())).shape[: ndim - 1]) if given else 1
    return stores, ids, sum(ids.get(path, leaf).nbytes for path, leaf in given.items()) / n_items


def check_items(
    given: Mapping[Key, torch.Tensor],  # [*batch, *shape]
    stored: Mapping[Key, torch.Tensor],  # [*axes, *shape], of the storage
    batch: tuple[int, ...],
    n_axes: int,  # of a stored leaf before those of an item
    large_nbytes: int | None,
) -> None:
    """Make sure that the leaves of a batch have the keys, shapes and dtypes of the first write.

    Raises:
        FieldError: a leaf is missing; or a new one, which is not compressed, has items of ``large_nbytes`` or more.
        ShapeError: a leaf has another shape.
        DTypeError: a leaf that is stored compressed has another dtype, or is neither on the device of the stored one
            nor on the CPU.
    """
    for key, leaf in stored.items():
        if key not in given:
            if key == OPTIONAL:
                continue
            raise FieldError(f"key {key} is missing, there are {', '.join(map(str, given))}")
        shape, found = (*batch, *leaf.shape[n_axes:]), tuple(given[key].shape)
        if found != shape:
            raise ShapeError(f"key {key}: expected shape {shape}, got {found}")
        elsewhere = str(given[key].device) not in (str(leaf.device), "cpu")
        if isinstance(leaf, CompressedTensor) and (given[key].dtype != leaf.dtype or elsewhere):
            kinds = [f"{x.dtype} on {x.device}" for x in (leaf, given[key])]
            raise DTypeError(f"key {key}: items are {kinds[0]}, got {kinds[1]}")
    for key in [key for key in given if key not in stored]:
        nbytes = math.prod(given[key].shape[len(batch) :]) * given[key].dtype.itemsize
        if large_nbytes is not None and nbytes >= large_nbytes:
            raise FieldError(
                f"key {key} was not in the first write, and its items of {nbytes} bytes would not be compressed: write "
                "it from the first write on, or make the storage with codec=None"
            )


def of_one_moment(data: Any) -> tuple[Any, dict[Key, Any]]:
    """``data`` with its compressed leaves as they are at one moment, stacked if it is a lazy stack; and its leaves."""
    data = stacked(data)
    given = leaves(data)
    compressed = {path: leaf for path, leaf in given.items() if isinstance(leaf, CompressedTensor)}
    if compressed:
        drawn = drawn_together(compressed)
        return with_leaves(data, drawn), given | drawn
    return data, given


def write(
    storage: LazyTensorStorage,  # whose lock is held
    changed: Mapping[Any, torch.Tensor],  # leaves of it
    given: Mapping[Any, torch.Tensor],  # the new rows of those that are compressed
    index: Any,  # of the rows
    write_plain: Callable[[], None],  # writes the rows of plain leaves, and updates the number of items
) -> None:
    """Write rows into compressed and plain leaves; if an exception comes in between, all keep their old rows.

    To undo takes no tensor and no memory for one: ids and plain rows are put back.
    """
    arrays = {key: x.array for key in in_time(changed) if isinstance(x := changed[key], CompressedTensor)}
    plain = {key: x[index].clone() for key, x in changed.items() if key not in arrays}
    length, last = len(storage), storage._last_cursor_index
    new = append_together({key: stored_array(given[key]) for key in arrays if key in given}, arrays, as_index(index))
    try:
        write_plain()
        for tensors in new:
            tensors.put()
    except BaseException:
        try:
            for key, rows in plain.items():
                changed[key][index] = rows
            storage._len = length
            storage._set_last_cursor(last)
            for tensors in new:
                tensors.undo()
        finally:
            for tensors in new:
                tensors.close()
        raise


def end_episodes(storage: LazyTensorStorage, row: int, columns: Ints) -> None:
    """Mark the items of a row as the last ones of truncated episodes, for TorchRL's samplers of slices.

    The lock of the storage is held. ``columns`` are places along its other axes, as if these were one.
    """
    if not len(columns):
        return
    at: Any = row
    if storage.ndim > 1:
        at = row, *map(torch.from_numpy, np.unravel_index(columns, storage._total_shape[1:]))
    for path, leaf in leaves(storage._storage).items():
        if path[:1] == ("next",) and path[-1] in ("done", "truncated") and leaf.dtype == torch.bool:
            leaf[at] = True
    storage._bump_mutation_revision()


def end_loaded_episodes(storage: LazyTensorStorage, cursor: Any) -> None:
    """End the episodes that were running when a storage was saved, before the first write after it was loaded.

    The lock of the storage is held. The write is to the rows ``cursor``: a checkpoint of TorchRL does not tell which
    row was written last, so it is the one before these.
    """
    last, n_rows = storage._last_cursor_index, storage._len_along_dim0
    in_time = all(isinstance(buffer._writer, RoundRobinWriter) for buffer in storage.buffers_at_work())
    if n_rows and in_time:
        if last is None:
            last = (int(torch.as_tensor(cursor).reshape(-1)[0]) - 1) % n_rows
        end_episodes(storage, min(last, n_rows - 1), np.arange(storage.n_per_row))
