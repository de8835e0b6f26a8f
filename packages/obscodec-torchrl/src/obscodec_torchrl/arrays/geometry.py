"""The geometry of an array of items as torch describes views: shape, strides and offset, in elements."""

import math
from functools import cache

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided
from obscodec import TensorArray

from obscodec_torchrl.arrays.part_array import PartArray


def strides_of(ids: npt.NDArray[np.generic], item: tuple[int, ...]) -> tuple[int, ...]:
    """The strides, in elements, of an ndarray that has an item of the shape ``item`` for each id.

    Example:
        >>> strides_of(np.zeros((100, 2), int), (84, 84))
        (14112, 7056, 84, 1)
    """
    n = math.prod(item)
    return *(stride // ids.itemsize * n for stride in ids.strides), *_contiguous(item)


def strided_view(
    array: TensorArray | PartArray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> TensorArray | PartArray | None:
    """A view of ``array`` that writes through; None if its items would not be whole.

    Args:
        array: whose own strides are those of :func:`strides_of`.
        shape: of the view.
        strides: of the view, in elements, 0 or more.
        offset: the element of ``array`` that the view begins with.
    """
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
