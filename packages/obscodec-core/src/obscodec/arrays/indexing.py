"""Indices of a TensorArray: the part that selects items, and the part that selects within an item."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from obscodec.segments import Ints

Part = SupportsIndex | slice | EllipsisType | npt.NDArray[np.generic] | list[int] | list[bool] | None
Index = Part | tuple[Part, ...]


def split_index(index: Index, n_leading: int, ndim: int) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Split an index at the border between the leading axes and those of the items.

    Args:
        index: any index of an ndarray with ``ndim`` axes.
        n_leading: how many axes come before those of the items.
        ndim: how many axes there are.

    Returns:
        The index of the leading axes, and that of the axes of each item, empty if it selects whole items.

    Raises:
        IndexError: too many axes, or arrays that numpy would combine across the border.
    """
    if type(index) is int and n_leading:
        return (index,), ()
    if isinstance(index, tuple) and _are_integer_arrays(index[:n_leading], n_leading) and _are_whole(index[n_leading:]):
        return index[:n_leading], ()  # as in most batches
    leading, of_items, crosses = _sides(_without_ellipsis(index, ndim), n_leading)
    while of_items and _is_all(of_items[-1]):
        of_items.pop()
    if crosses or _combine(leading, of_items):
        raise IndexError(
            "an index that combines arrays or integers of the axes before the items with those of the items is not "
            "supported: read the items first, as in array[...][...]"
        )
    return tuple(leading), tuple(of_items)


def steps_of(index: tuple[Any, ...], n_leading: int, ndim: int, *, writing: bool = False) -> list[tuple[Any, ...]]:
    """The indices that select, applied by numpy one after the other, what torch selects with ``index``.

    In torch, integers select before index arrays do; in numpy, they are index arrays themselves. What selects whole
    items comes before what selects within them. An index with arrays on both sides of that border stays as it is.

    Args:
        index: parts of an index of a tensor, with arrays for tensors.
        n_leading: how many axes come before those of the items.
        ndim: how many axes there are.
        writing: whether something is assigned: all steps but the last give views.

    Raises:
        IndexError: too many axes, several ellipses, or a single truth value beside arrays or when writing.

    Example:
        >>> rows = np.array([4, 2])
        >>> [len(step) for step in steps_of((0, slice(None), rows), 3, 5)]
        [3, 2]
        >>> steps_of((..., rows), 1, 3)
        [(slice(None, None, None), slice(None, None, None), array([4, 2]))]
    """
    index = tuple(part.astype(bool) if _is_mask_of_bytes(part) else part for part in index)
    if writing and any(_is_truth_value(part) for part in index):
        raise IndexError("a single True or False is not supported in an index of what is assigned to")
    if (len(index) == 1 and index[0] is not Ellipsis) or not any(map(np.ndim, index)):
        return [index]
    parts = _without_ellipsis(tuple(_as_part(part) for part in index), ndim)
    leading, of_items, crosses = _sides(parts, n_leading)
    if crosses or (_has_arrays(leading) and _has_arrays(of_items)):
        return [tuple(parts)]
    if not _has_arrays(leading):
        return _arrays_last(parts)
    steps = _arrays_last(leading)
    if writing:
        return [*steps[:-1], (*steps[-1], *of_items)]
    whole = (slice(None),) * _n_axes_left(steps[-1])
    return steps + [(*whole, *step) for step in _arrays_last(of_items) if any(not _is_all(part) for part in step)]


def _as_part(part: Any) -> Part:
    """A part of an index of a tensor as one of an ndarray."""
    if _is_truth_value(part):
        raise IndexError("a single True or False beside arrays is not supported in an index: read the items first")
    if isinstance(part, np.ndarray):
        return part if part.ndim else int(part)
    return _as_integers(list(part)) if np.ndim(part) else part


def _is_mask_of_bytes(part: Any) -> bool:
    return isinstance(part, np.ndarray) and part.dtype == np.uint8 and part.ndim > 0  # a mask in torch


def _is_truth_value(part: Any) -> bool:
    return isinstance(part, bool | np.bool_) or (isinstance(part, np.ndarray) and not part.ndim and part.dtype == bool)


def _arrays_last(parts: list[Part]) -> list[tuple[Any, ...]]:
    """What selects by integers, slices and new axes, then what selects by arrays."""
    basic: list[Part] = []
    arrays: list[Part] = []
    for part in parts:
        is_array = isinstance(part, np.ndarray)
        basic += [slice(None)] * n_axes(part) if is_array else [part]
        if is_array or part is None or isinstance(part, slice):
            arrays.append(part if is_array else slice(None))
    steps = [tuple(step) for step in (basic, arrays) if any(not _is_all(part) for part in step)]
    return steps or [tuple(basic)]


def _is_all(part: Part) -> bool:
    return isinstance(part, slice) and part == slice(None)


def _n_axes_left(step: tuple[Part, ...]) -> int:
    """How many axes are left of those that slices and arrays select from."""
    arrays = [1 if part.dtype == bool else part.ndim for part in step if isinstance(part, np.ndarray)]
    return len([part for part in step if not isinstance(part, np.ndarray)]) + max(arrays)


def last_writes(leading: tuple[Part, ...], shape: tuple[int, ...], selected: tuple[int, ...]) -> Ints | None:
    """For each of the elements that an index selects, in C order, which of them stays when all are assigned.

    An index array can name an element twice; then the last one stays. ``leading`` indexes an array of ``shape`` and
    selects an array of the shape ``selected``. None if each element stays: without index arrays.
    """
    if not _has_arrays(leading):
        return None
    order = np.arange(int(np.prod(selected, dtype=np.int64)))
    scratch = np.empty(shape, np.int64)  # only the pages that are indexed become resident
    scratch[leading] = order.reshape(selected)
    return scratch[leading].reshape(-1)


def _sides(parts: list[Part], n_leading: int) -> tuple[list[Part], list[Part], bool]:
    """The parts for the leading axes, those for the axes of items, and whether a mask crosses the border."""
    at, n = 0, 0
    while at < len(parts) and (n < n_leading or parts[at] is None):
        n, at = n + n_axes(parts[at]), at + 1
    return parts[:at], parts[at:], n > n_leading


def _has_arrays(parts: Sequence[Part]) -> bool:
    return any(isinstance(part, np.ndarray) for part in parts)


def _are_integer_arrays(parts: tuple[Part, ...], n: int) -> bool:
    return len(parts) == n and all(type(part) is np.ndarray and part.dtype.kind in "iu" for part in parts)


def _are_whole(parts: tuple[Part, ...]) -> bool:
    """Whether these parts of an index are nothing, or the ``:`` of one axis."""
    return len(parts) == 0 or (len(parts) == 1 and _is_all(parts[0]))


def _without_ellipsis(index: Index, ndim: int) -> list[Part]:
    parts: list[Part] = list(index) if isinstance(index, tuple) else [index]
    parts = [_as_integers(part) if isinstance(part, list) else part for part in parts]
    n = sum(n_axes(part) for part in parts)
    if n > ndim:
        raise IndexError(f"too many indices: the array has {ndim} axes, {n} are indexed")
    at = [i for i, part in enumerate(parts) if part is Ellipsis]
    if len(at) > 1:
        raise IndexError("an index can have one ellipsis only")
    for i in at:
        parts[i : i + 1] = [slice(None)] * (ndim - n)
    return parts


def _as_integers(part: list[int] | list[bool]) -> npt.NDArray[np.generic]:
    return np.asarray(part) if part else np.empty(0, np.int64)  # an empty list would become floats


def n_axes(part: Part) -> int:
    """How many axes a part of an index is for."""
    if part is None or part is Ellipsis:
        return 0
    return part.ndim if isinstance(part, np.ndarray) and part.dtype == bool else 1


def _combine(leading: list[Part], of_items: list[Part]) -> bool:
    """Whether numpy would treat parts of both sides as one index: arrays, and integers beside arrays."""
    arrays = [_has_arrays(side) for side in (leading, of_items)]
    single = [any(not isinstance(part, slice) and part is not None for part in side) for side in (leading, of_items)]
    return (arrays[0] and single[1]) or (arrays[1] and single[0])
