"""Indices of a TensorArray: one part selects items, the other selects within each item."""

from collections.abc import Sequence
from types import EllipsisType
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from obscodec.segments import Ints

Part = SupportsIndex | slice | EllipsisType | npt.NDArray[np.generic] | list[int] | list[bool] | None
Index = Part | tuple[Part, ...]


def split_index(index: Index, n_leading: int, ndim: int) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Split an index of an array with ``ndim`` axes, of which ``n_leading`` come before the axes of an item.

    Returns:
        The index of the leading axes; the index of the axes of each item, empty if it selects whole items.

    Raises:
        IndexError: the index has too many axes, or numpy would combine arrays of both parts.
    """
    if n_leading and (type(index) is int or index is Ellipsis or isinstance(index, slice)):
        return (index,), ()
    if isinstance(index, tuple) and _are_integer_arrays(index[:n_leading], n_leading) and _are_whole(index[n_leading:]):
        return index[:n_leading], ()  # as in most batches
    leading, of_items, crosses = split_parts(index_parts(index, ndim), n_leading)
    while of_items and is_all(of_items[-1]):
        of_items.pop()
    if crosses or _combine(leading, of_items):
        raise IndexError(
            "an index that combines arrays or integers of the axes before the items with those of the items is not "
            "supported: read the items first, as in array[...][...]"
        )
    return tuple(leading), tuple(of_items)


def is_all(part: Part) -> bool:
    """Whether a part of an index is ``:``."""
    return isinstance(part, slice) and part == slice(None)


def last_writes(leading: tuple[Part, ...], shape: tuple[int, ...], selected: tuple[int, ...]) -> Ints | None:
    """Which value an assignment leaves in each selected element, where an index array names an element twice.

    ``leading`` is an index of an array of ``shape``, which selects elements in the shape ``selected``. The result is
    ``i64[n]``: for each of them, in C order, the position of the last value that is assigned to it; None if no index
    array could name an element twice.
    """
    if not has_arrays(leading):
        return None
    order = np.arange(int(np.prod(selected, dtype=np.int64)))
    scratch = np.empty(shape, np.int64)  # only pages with indexed elements become resident
    scratch[leading] = order.reshape(selected)
    return scratch[leading].reshape(-1)


def split_parts(parts: list[Part], n_leading: int) -> tuple[list[Part], list[Part], bool]:
    """Parts of an index for the first ``n_leading`` axes, the other parts, and whether a mask is for axes of both."""
    at, n = 0, 0
    while at < len(parts) and (n < n_leading or parts[at] is None):
        n, at = n + n_axes(parts[at]), at + 1
    return parts[:at], parts[at:], n > n_leading


def has_arrays(parts: Sequence[Part]) -> bool:
    """Whether there are arrays among the parts of an index."""
    return any(isinstance(part, np.ndarray) for part in parts)


def _are_integer_arrays(parts: tuple[Part, ...], n: int) -> bool:
    return len(parts) == n and all(type(part) is np.ndarray and part.dtype.kind in "iu" for part in parts)


def _are_whole(parts: tuple[Part, ...]) -> bool:
    """Whether the parts for the axes of an item select whole items: there is no part, or one ``:``."""
    return len(parts) == 0 or (len(parts) == 1 and is_all(parts[0]))


def index_parts(index: Index, ndim: int) -> list[Part]:
    """The parts of an index of an array with ``ndim`` axes, with slices in place of an ellipsis and arrays of lists.

    Raises:
        IndexError: the index has too many axes, or several ellipses.
    """
    parts: list[Part] = list(index) if isinstance(index, tuple) else [index]
    empty = np.empty(0, np.int64)  # an empty list would become floats
    parts = [(np.asarray(part) if part else empty) if isinstance(part, list) else part for part in parts]
    n = sum(n_axes(part) for part in parts)
    if n > ndim:
        raise IndexError(f"too many indices: the array has {ndim} axes, {n} are indexed")
    at = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(at) > 1:
        raise IndexError("an index can have one ellipsis only")
    for i in at:
        parts[i : i + 1] = [slice(None)] * (ndim - n)
    return parts


def n_axes(part: Part) -> int:
    """How many axes a part of an index is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def _combine(leading: list[Part], of_items: list[Part]) -> bool:
    """Whether numpy would combine arrays of one side with arrays or integers of the other."""
    arrays = [has_arrays(side) for side in (leading, of_items)]
    single = [any(not isinstance(part, slice) and part is not None for part in side) for side in (leading, of_items)]
    return (arrays[0] and single[1]) or (arrays[1] and single[0])
