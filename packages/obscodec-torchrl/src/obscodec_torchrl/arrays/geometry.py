"""The geometry of an array of items, in elements, as libraries for tensors describe views: shape, strides, offset."""

import math
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided
from obscodec import TensorArray

from obscodec_torchrl.arrays.part_array import PartArray


def strides_of(ids: npt.NDArray[np.generic], item: tuple[int, ...]) -> tuple[int, ...]:
    """How many elements lie between neighbours along each axis of an ndarray with an item of a shape for each id.

    Example:
        >>> strides_of(np.zeros((100, 2), int), (84, 84))
        (14112, 7056, 84, 1)
    """
    n = math.prod(item)
    return *(stride // ids.itemsize * n for stride in ids.strides), *_contiguous(item)


class View(Protocol):
    """How a library for tensors describes a view, such as a torch tensor on the device "meta": in elements."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the view."""

    def stride(self) -> tuple[int, ...]:
        """How far apart neighbours are along each axis, 0 or more."""

    def storage_offset(self) -> int:
        """The element that the view begins with."""


def strided_view(array: TensorArray | PartArray, view: View) -> TensorArray | PartArray | None:
    """A view of ``array``, of any geometry in which items stay whole; it writes through.

    Args:
        array: whose geometry is that of :func:`strides_of`.
        view: of an array of that geometry.

    Returns:
        The view, None if the items are not whole in it.
    """
    shape, strides, offset = tuple(view.shape), view.stride(), int(view.storage_offset())
    item, ids = array.layout.shape, array.ids
    n, k = math.prod(item), len(shape) - len(item)
    if k < 0 or shape[k:] != item or offset % n:
        return None
    steps = zip(shape, strides, [None] * k + [*_contiguous(item)], strict=True)  # None for any multiple of an item
    if any(size > 1 and (stride % n if step is None else stride != step) for size, stride, step in steps):
        return None
    flat = as_strided(ids, (offset // n + 1,), (ids.itemsize,))[-1:]  # which begins where the view does
    return array._view(as_strided(flat, shape[:k], [stride // n * ids.itemsize for stride in strides[:k]]))


@cache
def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
