"""Which arrays beside the observations are worth another form: action masks, goals and so on, as a class made them."""

from sys import getrefcount
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt
from obscodec.buffers import MIN_COMPRESSED_NBYTES

MOST_ROWS = 1024  # that are written when a form is chosen
_SEEN = 64  # of these
_LEAST_NBYTES = 256  # what is smaller gains little, and each call takes some microseconds
_CHANGED = 0.25  # of the bytes of a row, at most


def is_large(array: object, buffer_size: int) -> TypeGuard[npt.NDArray[Any]]:
    """Whether something is a plain array ``[buffer_size, n, ...]`` of numbers in long rows."""
    return (
        type(array) is np.ndarray
        and array.ndim > 2
        and len(array) == buffer_size
        and array.size > 0
        and array.dtype.kind in "biuf"
        and array.itemsize in (1, 2, 4, 8)
        and array.dtype.isnative
        and is_large_row(array.shape[-1] * array.itemsize)
        and array.flags.owndata
        and array.flags.writeable
    )


def is_large_row(nbytes: int) -> bool:
    """Whether a last axis of so many bytes is worth another form."""
    return nbytes >= _LEAST_NBYTES


def is_shared(arrays: dict[str, Any], name: str) -> bool:
    """Whether something else has an array, too, or a view of it, and would not see what is written to another form."""
    alone = {name: object()}
    return getrefcount(arrays[name]) > getrefcount(alone[name])


def newest(array: npt.NDArray[Any], n_rows: int) -> npt.NDArray[Any]:
    """Some of the rows that were written last."""
    return array[max(0, n_rows - _SEEN) : n_rows]


def repeats(rows: npt.NDArray[Any]) -> bool:
    """Whether a store keeps rows ``[n, n_envs, ...]`` in less memory, and reads them as fast as plain ones.

    Most of their bytes are those of the row before, or zero.
    """
    if rows[0, 0].nbytes < MIN_COMPRESSED_NBYTES or len(rows) < 2:
        return False
    items = np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.uint8)
    changed = min(np.count_nonzero(items[1:] != items[:-1]), np.count_nonzero(items[1:]))
    return bool(changed <= _CHANGED * items[1:].size)
