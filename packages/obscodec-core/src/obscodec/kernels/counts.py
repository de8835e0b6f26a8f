"""References to frames: a frame lives while somebody refers to it, a block while one of its frames does.

``counts`` has, by id, 2 for each reference to a frame, and 1 if it is among the recent frames of its stream. ``live``
has, by number, how many frames of a block are counted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.kernels.compiled import compiled, inlined
from obscodec.segments import Ints

Table = npt.NDArray[np.int32]


@inlined
def is_frame(frame_id: int, counts: Table) -> bool:
    """Whether there is a frame with this id, and anybody refers to it."""
    return 0 < frame_id < len(counts) and bool(counts[frame_id] > 1)


@compiled
def count_known(ids: Ints, counts: Table) -> int:
    """How many of ``ids`` there are, if each is 0 or of a frame, or i if ``ids[i]`` is of none."""
    for i in range(len(ids)):
        if ids[i] != 0 and not is_frame(ids[i], counts):
            return i
    return len(ids)


@compiled
def retain_frames(ids: Ints, counts: Table) -> int:
    """Add one reference to each of ``ids``, or to none; 0 among them is left alone.

    Returns:
        How many there are, or i if ``ids[i]`` is of no frame.
    """
    for i in range(len(ids)):
        if ids[i] != 0 and not is_frame(ids[i], counts):
            return i
    for frame_id in ids:
        counts[frame_id] += 2 * (frame_id != 0)
    return len(ids)


@compiled
def release_frames(ids: Ints, block_frames: int, counts: Table, live: Table, dead: Ints) -> int:
    """Take one reference from each of ``ids``, or from none.

    Returns:
        How many blocks, put into ``dead``, lost their last one; or -1 - i if ``ids[i]`` is of no frame or
        has no reference left.
    """
    for i in range(len(ids)):
        if ids[i] != 0:
            if not is_frame(ids[i], counts):
                for k in range(i):
                    counts[ids[k]] += 2 * (ids[k] != 0)
                return -1 - i
            counts[ids[i]] -= 2
    n_dead = 0
    for frame_id in ids:
        if frame_id != 0 and counts[frame_id] == 0:
            counts[frame_id] = -1  # each frame dies once, however often it is named
            n_dead += bury(frame_id // block_frames, live, dead, n_dead)
    for frame_id in ids:
        if counts[frame_id] < 0:
            counts[frame_id] = 0
    return n_dead


@compiled
def release_last(old: Ints, block_frames: int, counts: Table, live: Table, dead: Ints, n_dead: int) -> tuple[int, int]:
    """:func:`release_frames` after ``n_dead`` blocks are dead already; how many these are then, and i or -1."""
    n_more = release_frames(old, block_frames, counts, live, dead[n_dead:])
    return (n_dead, -1 - n_more) if n_more < 0 else (n_dead + n_more, -1)


@compiled
def bury(block: int, live: Table, dead: Ints, n_dead: int) -> int:
    """Count a frame of ``block`` less; 1 if that was its last one, which adds it to ``dead``."""
    live[block] -= 1
    if live[block] > 0:
        return 0
    dead[n_dead] = block
    return 1
