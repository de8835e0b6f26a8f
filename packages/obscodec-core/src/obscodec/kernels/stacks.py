"""Stacks of frames as single integers: see ``obscodec.stack_store``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.kernels.compiled import compiled
from obscodec.kernels.frames import Table
from obscodec.segments import Ints


@compiled
def link(frames: npt.NDArray[np.int64], previous: Table, ids: Ints) -> int:
    """Name stacks by their newest frames, as far as the frames before that are those in the table ``previous``.

    Args:
        frames: ``i64[n, depth]``, the ids of the frames of each stack, oldest first.
        previous: the frame before each frame, by id.
        ids: ``i64[n]``, filled with the newest frame, or -1 for a stack that does not follow from it.

    Returns:
        How many stacks do not.
    """
    n_unlinked = 0
    depth = frames.shape[1]
    for i in range(len(frames)):
        frame = frames[i, depth - 1]
        ids[i] = frame
        for k in range(depth - 2, -1, -1):
            frame = previous[frame]
            if frame != frames[i, k]:
                ids[i] = -1
                n_unlinked += 1
                break
    return n_unlinked


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
        if ids[i] >= len(previous) or ids[i] < -len(listed):
            return -1 - i
        if ids[i] < 0:
            n_listed += 1
            if listed[-1 - ids[i], 0] < 0:
                return -1 - i
            for k in range(depth):
                frames[i, k] = listed[-1 - ids[i], k]
        else:
            frame = ids[i]
            for k in range(depth - 1, -1, -1):
                frames[i, k] = frame
                frame = previous[frame]
    return n_listed
