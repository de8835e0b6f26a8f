"""Stacks of frames as single integers: see ``obscodec.stack_store``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.kernels.compiled import compiled
from obscodec.kernels.counts import Table
from obscodec.segments import Ints


@compiled
def link(frames: npt.NDArray[np.int64], previous: Table, ids: Ints) -> int:
    """Name stacks by their newest frames, as far as the frames before that are those in the table ``previous``.

    A stack may also end in its newest frame several times: ``again`` times more, before what the table tells.

    Args:
        frames: ``i64[n, depth]``, the ids of the frames of each stack, oldest first.
        previous: the frame before each frame, by id.
        ids: ``i64[n]``, filled with ``newest * depth + again``, or -1 for a stack that does not follow from that.

    Returns:
        How many stacks do not.
    """
    n_unlinked = 0
    depth = frames.shape[1]
    for i in range(len(frames)):
        newest = frames[i, depth - 1]
        again = 0
        follows = _follows(frames[i], depth - 1, previous)
        if not follows:
            while again < depth - 1 and frames[i, depth - 2 - again] == newest:
                again += 1
            follows = again > 0 and _follows(frames[i], depth - 1 - again, previous)
        if follows:
            ids[i] = newest * depth + again
        else:
            ids[i] = -1
            n_unlinked += 1
    return n_unlinked


@compiled
def _follows(stack: Ints, last: int, previous: Table) -> bool:
    """Whether the frames before place ``last`` are those that came before the frame there."""
    follows = True
    for k in range(last, 0, -1):
        follows &= previous[stack[k]] == stack[k - 1]
    return follows


@compiled
def expand(ids: Ints, previous: Table, listed: npt.NDArray[np.int32], frames: npt.NDArray[np.int64]) -> int:
    """The inverse of :func:`link`: fill ``frames``, ``i64[n, depth]``.

    ``-1 - id`` of a negative id is the row in ``listed`` where its frames are listed.

    Returns:
        How many stacks are listed there; -1 - i if ``ids[i]`` is out of range, or of an unused row: one of -1.
    """
    depth = frames.shape[1]
    n_listed = 0
    for i in range(len(ids)):
        if ids[i] >= len(previous) * depth or ids[i] < -len(listed) or 0 < ids[i] < depth:
            return -1 - i
        if ids[i] < 0:
            n_listed += 1
            if listed[-1 - ids[i], 0] < 0:
                return -1 - i
            for k in range(depth):
                frames[i, k] = listed[-1 - ids[i], k]
        else:
            frame, again = ids[i] // depth, ids[i] % depth
            for k in range(depth - 1, -1, -1):
                frames[i, k] = frame
                if k < depth - again:
                    frame = previous[frame]
    return n_listed


@compiled
def interleave(frames: npt.NDArray[np.uint8], pixels: npt.NDArray[np.unsignedinteger]) -> None:
    """Put stacks of frames together pixel by pixel, the oldest frame in the lowest byte.

    One pass for each frame, because LLVM makes vector instructions of that.

    Args:
        frames: ``u8[n, depth, size]``, contiguous.
        pixels: ``[n, size]``, integers of ``depth`` bytes, contiguous; filled.
    """
    for i in range(len(frames)):
        row = pixels[i]
        for k in range(frames.shape[1]):
            frame = frames[i, k]
            for p in range(len(row)):
                pixel = row.dtype.type(frame[p]) << row.dtype.type(8 * k)
                row[p] = pixel if k == 0 else row[p] | pixel
