"""Indices of torch as indices of numpy."""

from typing import Any

import numpy as np

from obscodec.arrays import Part, has_arrays, index_parts, is_all, n_axes, split_parts


def steps_of(index: tuple[Any, ...], n_leading: int, ndim: int, *, writing: bool = False) -> list[tuple[Any, ...]]:
    """Split an index of torch into steps: applied by numpy one after the other, they select the same.

    torch applies integers before index arrays; numpy treats integers beside arrays as arrays. Steps that select whole
    items come before steps that select within items. An index with arrays for both stays as it is.

    The index has numpy arrays in the places of tensors, and masks of bools only. ``n_leading`` of ``ndim`` axes come
    before those of the items. If the index is assigned to, all steps but the last select views.

    Raises:
        IndexError: too many axes, several ellipses, or a single True or False beside arrays or when writing.

    Example:
        >>> rows = np.array([4, 2])
        >>> [len(step) for step in steps_of((0, slice(None), rows), 3, 5)]
        [3, 2]
        >>> steps_of((..., rows), 1, 3)
        [(slice(None, None, None), slice(None, None, None), array([4, 2]))]
    """
    if writing and any(_is_truth_value(part) for part in index):
        raise IndexError("a single True or False is not supported in an index of what is assigned to")
    if (len(index) == 1 and index[0] is not Ellipsis) or not any(map(np.ndim, index)):
        return [index]
    parts = index_parts(tuple(_as_part(part) for part in index), ndim)
    leading, of_items, crosses = split_parts(parts, n_leading)
    if crosses or (has_arrays(leading) and has_arrays(of_items)):
        return [tuple(parts)]
    if not has_arrays(leading):
        return _arrays_last(parts)
    steps = _arrays_last(leading)
    if writing:
        return [*steps[:-1], (*steps[-1], *of_items)]
    whole = (slice(None),) * _n_axes_left(steps[-1])
    return steps + [(*whole, *step) for step in _arrays_last(of_items) if any(not is_all(part) for part in step)]


def _as_part(part: Any) -> Part:
    """A part of an index of torch as one of numpy."""
    if _is_truth_value(part):
        raise IndexError("a single True or False beside arrays is not supported in an index: read the items first")
    if isinstance(part, np.ndarray):
        return part if part.ndim else int(part)
    return list(part) if np.ndim(part) else part


def _is_truth_value(part: Any) -> bool:
    return isinstance(part, bool | np.bool_) or (isinstance(part, np.ndarray) and not part.ndim and part.dtype == bool)


def _arrays_last(parts: list[Part]) -> list[tuple[Any, ...]]:
    """A step with the integers, slices and new axes, then a step with the arrays."""
    basic: list[Part] = []
    arrays: list[Part] = []
    for part in parts:
        is_array = isinstance(part, np.ndarray)
        basic += [slice(None)] * n_axes(part) if is_array else [part]
        if is_array or part is None or isinstance(part, slice):
            arrays.append(part if is_array else slice(None))
    steps = [tuple(step) for step in (basic, arrays) if any(not is_all(part) for part in step)]
    return steps or [tuple(basic)]


def _n_axes_left(step: tuple[Part, ...]) -> int:
    """How many axes a selection by slices and arrays has."""
    arrays = [1 if part.dtype == bool else part.ndim for part in step if isinstance(part, np.ndarray)]
    return len([part for part in step if not isinstance(part, np.ndarray)]) + max(arrays)
