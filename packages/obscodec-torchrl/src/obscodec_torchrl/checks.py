"""Whether a batch of items can be written to where others are."""

import math
from collections.abc import Mapping

import torch
from obscodec import DTypeError, FieldError, ShapeError

from obscodec_torchrl.compressed_tensor import CompressedTensor
from obscodec_torchrl.leaves import Key

_OPTIONAL = ("index",)  # a writer adds it to what it writes, and nobody else needs to


def check_items(
    given: Mapping[Key, torch.Tensor],
    stored: Mapping[Key, torch.Tensor],
    batch: tuple[int, ...],
    n_axes: int,
    large_nbytes: int | None,
) -> None:
    """Make sure that each leaf of a batch of items is as it was when items were first written.

    Args:
        given: ``[*batch, *shape]`` each.
        stored: the leaves that they are written to. Those that are compressed must be given in the dtype that they
            had, on the device where they were, or on the CPU.
        batch: the axes before those of the items that are written.
        n_axes: how many axes come before those of an item in ``stored``.
        large_nbytes: from how many bytes on an item is to be compressed, so that a leaf that was not there before is
            refused; None if none is.

    Raises:
        FieldError: one is missing, or one that was not there has items of ``large_nbytes`` or more.
        ShapeError: one has another shape.
        DTypeError: one that is compressed has another dtype, or is on another device than before, and not on the CPU.

    Example:
        >>> obs = {("obs",): torch.zeros(8, 84, 84)}
        >>> check_items(obs, {("obs",): torch.zeros(100, 84, 84)}, (8,), 1, large_nbytes=None)
    """
    for key, leaf in stored.items():
        if key not in given:
            if key == _OPTIONAL:
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
