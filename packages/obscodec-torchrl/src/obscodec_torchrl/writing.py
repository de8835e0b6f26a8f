"""Writing items into a storage: all of their leaves, or none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from obscodec import DTypeError, FieldError, ShapeError
from torchrl.data import LazyTensorStorage

from obscodec_torchrl.arrays import append_together
from obscodec_torchrl.compressed_tensor import CompressedTensor, as_index, drawn_together, stored_array
from obscodec_torchrl.leaves import Key, as_key, leaves, stacked, with_leaves

OPTIONAL = ("index",)  # writers add this key to their items; others may leave it out


def check_items(
    given: Mapping[Key, torch.Tensor],
    stored: Mapping[Key, torch.Tensor],
    batch: tuple[int, ...],
    n_axes: int,
    large_nbytes: int | None,
) -> None:
    """Make sure that the leaves of a batch have the keys, shapes and dtypes of the first write.

    Args:
        given: the leaves of the batch, ``[*batch, *shape]``.
        stored: the leaves of the storage, ``[*axes, *shape]``.
        batch: the axes of the batch.
        n_axes: how many axes of a stored leaf come before those of an item.
        large_nbytes: items of so many bytes or more are compressed, so a new leaf with such items is refused; None to
            refuse no new leaf.

    Raises:
        FieldError: a leaf is missing, or a new one has items of ``large_nbytes`` or more.
        ShapeError: a leaf has another shape.
        DTypeError: a leaf that is stored compressed has another dtype, or is neither on the device of the stored one
            nor on the CPU.

    Example:
        >>> obs = {("obs",): torch.zeros(8, 84, 84)}
        >>> check_items(obs, {("obs",): torch.zeros(100, 84, 84)}, (8,), 1, large_nbytes=None)
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
                f"key {key} was not there in the first write: of {nbytes} bytes each, its items would not be compressed"
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
    storage: LazyTensorStorage,
    changed: Mapping[Any, torch.Tensor],
    given: Mapping[Any, torch.Tensor],
    index: Any,
    write_plain: Callable[[], None],
) -> None:
    """Write rows into compressed and plain leaves; if an exception comes in between, all keep their old rows.

    To undo takes no tensor and no memory for one: ids and plain rows are put back.

    Args:
        storage: the storage, whose lock is held.
        changed: the leaves of it that change.
        given: the new rows of compressed leaves.
        index: selects the rows.
        write_plain: writes the rows of plain leaves, and updates the number of items.
    """
    in_time = sorted(changed.items(), key=lambda leaf: as_key(leaf[0]).count("next"))  # before their "next" ones
    arrays = {key: x.array for key, x in in_time if isinstance(x, CompressedTensor)}
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
