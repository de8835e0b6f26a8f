"""Whether a batch of items fits a storage that has items."""

import math
from collections.abc import Mapping

import torch
from obscodec import DTypeError, FieldError, ShapeError

from obscodec_torchrl.compressed_tensor import CompressedTensor
from obscodec_torchrl.leaves import Key

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
