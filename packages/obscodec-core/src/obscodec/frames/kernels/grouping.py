"""Sorting wanted frames by the blocks that hold them."""

from typing import Final

import numpy as np

from obscodec.kernels import address, compiled, fill_zeros, inlined, signed
from obscodec.segments import Ints

_DIGIT: Final = 11  # bits; one table of counts fits the first-level cache


@compiled
def group(ids: Ints, block_frames: int, order: Ints, places: Ints, blocks: Ints, starts: Ints) -> int:
    """Sort frames, none of them with a negative id, by their blocks, and in each block by their places.

    ``order`` is filled with which of ``ids``, ``i64[n]`` both, comes first, second and so on; ``places`` with the place
    of each frame in its block, in this order; ``blocks`` with the blocks, rising; ``starts`` with where the frames of
    each block begin in this order, and ``n``. The last three have room for ``n + 1`` numbers. Returns how many blocks
    there are.
    """
    greatest = signed(0)  # for a constant 0, numba would compile _sort once more
    for i in range(len(ids)):
        greatest = max(greatest, ids[i])
        order[i] = i
    _sort(ids, greatest, order)
    n_blocks, last = 0, -1
    for i in range(len(ids)):
        frame = ids[order[i]]
        block = frame // block_frames
        if block != last:
            blocks[n_blocks], starts[n_blocks] = block, i
            n_blocks += 1
            last = block
        places[i] = frame - block * block_frames
    starts[n_blocks] = len(ids)
    return n_blocks


@inlined
def _sort(keys: Ints, greatest: int, order: Ints) -> None:
    """Rearrange ``order`` so that ``keys[order]`` rises: a radix sort of numbers from 0 to ``greatest``."""
    begins = np.empty(1 << _DIGIT, np.int64)
    before = np.empty_like(order)
    mask, shift = (1 << _DIGIT) - 1, 0
    while greatest >> shift:
        fill_zeros(address(begins), begins.nbytes)
        for key in keys:
            begins[key >> shift & mask] += 1
        begin = 0
        for digit in range(len(begins)):
            begin, begins[digit] = begin + begins[digit], begin
        for i in range(len(order)):
            before[i] = order[i]
        for i in before:
            digit = keys[i] >> shift & mask
            order[begins[digit]] = i
            begins[digit] += 1
        shift += _DIGIT
