"""ColumnReader: reads the same items of several columns with one compiled call."""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Final

import numpy as np

from obscodec.columns.coded_array import Numbers
from obscodec.columns.column import Column
from obscodec.columns.items import (
    IN_ROW,
    ITEM_NBYTES,
    ITEMS,
    N_WORDS,
    NBYTES,
    UNKNOWN,
    VALUES,
    extended,
    load_number,
    store_number,
)
from obscodec.kernels import address, compiled, copy, int64s_at, load_u8, signed
from obscodec.segments import Bytes, Ints

_ALIGNMENT: Final = 8
_PLACE = np.dtype(np.int64)


class ColumnReader:
    """Columns ``[n_steps, n_envs, ...]`` of which the same items are read together, with one compiled call.

    They are contiguous; those of a group have one dtype and one shape.
    """

    def __init__(self, *groups: Sequence[Column]) -> None:
        self._groups = groups
        self._words = np.array([array.words.ctypes.data for group in groups for array in group], np.int64)
        self._sizes = np.array([len(group) for group in groups], np.int64)
        self._n_steps, self._n_envs = groups[0][0].shape[:2]
        of = [(group[0].dtype, len(group), group[0].shape[2:]) for group in groups]
        self._parts = [
            (dtype, n_arrays, shape, n_arrays * prod(shape) * dtype.itemsize) for dtype, n_arrays, shape in of
        ]

    def take(self, steps: Ints, envs: Ints) -> list[Numbers]:
        """``[n_arrays, n, ...]`` for each group: ``array[steps, envs]`` of its arrays; ``i64[n]`` both."""
        n, end, parts = len(steps), 0, []
        for dtype, n_arrays, shape, nbytes in self._parts:
            parts.append(((n_arrays, n, *shape), dtype, end))
            end += -(-n * nbytes // _ALIGNMENT) * _ALIGNMENT
        out = np.empty(end, np.uint8)
        of_all = self._words, self._sizes, self._n_steps, self._n_envs
        if steps.dtype == envs.dtype == _PLACE and take_items(*of_all, steps, envs, out):
            return [np.ndarray(shape, dtype, out, at) for shape, dtype, at in parts]
        return [np.stack([array[steps, envs] for array in group]) for group in self._groups]


@partial(compiled, nogil=False)
def take_items(arrays: Ints, sizes: Ints, n_steps: int, n_envs: int, steps: Ints, envs: Ints, out: Bytes) -> bool:
    """Copy the numbers of ``steps`` and ``envs``, ``i64[n]`` both, out of arrays, one array behind the other.

    ``arrays``, ``i64[n_arrays]``, are the addresses of their words, and ``sizes``, ``i64[n_groups]``, says how many
    belong together; in ``out``, the numbers of each group begin at a multiple of 8. Returns whether it could; not if a
    step is out of range, or an array is just about to keep its numbers in another form.
    """
    for i in range(len(steps)):
        if not (0 <= steps[i] < n_steps and 0 <= envs[i] < n_envs):
            return False
    at, group, left = address(out), 0, sizes[0]
    for a in range(len(arrays)):
        if left == 0:
            group += 1
            left = sizes[group]
            at += -(at - address(out)) % _ALIGNMENT
        left -= 1
        words = int64s_at(arrays[a], N_WORDS)
        nbytes, item_nbytes, values = words[NBYTES], words[ITEM_NBYTES], words[VALUES]
        if values == UNKNOWN:
            return False
        each = words[IN_ROW] // n_envs
        for i in range(len(steps)):
            item = words[ITEMS] + (steps[i] * n_envs + envs[i]) * each * item_nbytes
            if values == 0 and item_nbytes == nbytes:
                copy(at, item, each * nbytes)
                at += each * nbytes
                continue
            for _ in range(each):
                if values:
                    copy(at, values + signed(load_u8(item)) * nbytes, nbytes)
                else:
                    store_number(at, extended(load_number(item, item_nbytes), item_nbytes), nbytes)
                at, item = at + nbytes, item + item_nbytes
    return True
