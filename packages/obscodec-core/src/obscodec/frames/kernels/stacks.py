"""Stacks of frames as single integers: see ``FrameStore``.

Nearly every stack is a frame and the frames that came before it, which ``previous`` has. Its id is
``newest * depth + again``: it repeats its newest frame ``again`` times, as the first stacks of an episode do. Any other
stack is listed in a row of a table, and its id is ``-1 - row``. A single frame is a stack of depth 1.

``ids`` are ``i64[n]`` everywhere, 0 is the stack of zeros. ``tables`` are those of ``kernels.counts``; they and
``stacks`` are changed.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.counts import COUNTS, FRAMES, PREVIOUS, Table, Tables, release_frames
from obscodec.kernels import address, compiled, fill_zeros, inlined
from obscodec.segments import Ints

# What is counted of the stacks of a store, ``i64[3]``.
N_ROWS: Final = 0  # rows that were ever used
N_FREE_ROWS: Final = 1  # of these, those in ``free_rows``, to be used again
N_STACKS: Final = 2  # stacks with an id that is not 0, each reference counted

# What :func:`release_stacks` finds wrong.
NO_SUCH_STACK: Final = 1
LISTED_TWICE: Final = 2
NO_SUCH_FRAME: Final = 3

Listed = npt.NDArray[np.int32]  # ``[n_rows, depth]``, the frames of listed stacks; the first is -1 in a free row
# The table of listed stacks: frames, free rows ``i32[n_rows]``, which rows changed ``bool[n_rows]``, tallies.
StackTables = tuple[Listed, Table, npt.NDArray[np.bool_], Ints]
LISTED: Final = 0
STACK_TALLIES: Final = 3


@compiled
def name_stacks(held: Ints, which: Ints, tables: Tables, stacks: StackTables, ids: Ints) -> bool:
    """Fill ``ids`` with ids of stacks. The references to the frames go over from ``held`` to the ids, in this one step.

    ``held``, ``i64[m * depth]``, has the frames of each stack, oldest first, with a reference to each; then zeros.
    ``which``, ``i64[n]``, is the stack that each id is for, each of ``0..m-1`` at least once. Returns False if there is
    no room to list ``n`` stacks more; then nothing was done.
    """
    counts, previous = tables[FRAMES][COUNTS], tables[FRAMES][PREVIOUS]
    depth, tallies = stacks[LISTED].shape[1], stacks[STACK_TALLIES]
    if depth > 1 and tallies[N_ROWS] + max(0, len(which) - tallies[N_FREE_ROWS]) > len(stacks[LISTED]):
        return False
    for i in range(len(which)):
        begin = which[i] * depth
        stack = held[begin : begin + depth]
        ids[i] = _name(stack, previous)
        if ids[i] == -1:
            ids[i] = -1 - _list(stack, stacks)
        tallies[N_STACKS] += ids[i] != 0
        if len(which) * depth > len(held):
            for frame in stack:
                counts[frame] += 2 * (frame != 0)
    if len(which) * depth > len(held):  # each id has counted references of its own
        for frame in held:
            counts[frame] -= 2 * (frame != 0)
    fill_zeros(address(held), held.nbytes)
    return True


@inlined
def _name(stack: Ints, previous: Table) -> int:
    """The id of a stack; -1 if it must be listed."""
    depth = len(stack)
    newest = stack[depth - 1]
    again = 0
    follows = _follows(stack, depth - 1, previous)
    if not follows:
        while again < depth - 1 and stack[depth - 2 - again] == newest:
            again += 1
        follows = again > 0 and _follows(stack, depth - 1 - again, previous)
    return int(newest * depth + again) if follows else -1


@inlined
def _list(stack: Ints, stacks: StackTables) -> int:
    """List a stack in a row of its own; the row."""
    listed, free_rows, changed, tallies = stacks
    if tallies[N_FREE_ROWS]:
        tallies[N_FREE_ROWS] -= 1
        row = int(free_rows[tallies[N_FREE_ROWS]])
    else:
        row = int(tallies[N_ROWS])
        tallies[N_ROWS] += 1
    for k in range(len(stack)):
        listed[row, k] = stack[k]
    changed[row] = True
    return row


@compiled
def _follows(stack: Ints, last: int, previous: Table) -> bool:
    """Whether the frames before place ``last`` are the ones that came before the frame at that place."""
    follows = True
    for k in range(last, 0, -1):
        follows &= previous[stack[k]] == stack[k - 1]
    return follows


@compiled
def expand_stacks(ids: Ints, previous: Table, listed: Listed, n_rows: int, frames: npt.NDArray[np.int64]) -> int:
    """Fill ``frames``, ``i64[n, depth]``, with the frames of stacks.

    Returns ``n``, or ``i`` if ``ids[i]`` is out of range, or of a row that is free.
    """
    depth, n_rows = frames.shape[1], min(n_rows, len(listed))  # another thread may have counted rows of a larger table
    for i in range(len(ids)):
        if ids[i] >= len(previous) * depth or ids[i] < -n_rows or 0 < ids[i] < depth:
            return i
        if ids[i] < 0:
            if listed[-1 - ids[i], 0] < 0:
                return i
            for k in range(depth):
                frames[i, k] = listed[-1 - ids[i], k]
        else:
            frame, again = ids[i] // depth, ids[i] % depth
            for k in range(depth - 1, -1, -1):
                frames[i, k] = frame
                if k < depth - again:
                    frame = previous[frame]
    return len(ids)


@compiled
def release_stacks(
    ids: Ints, frames: npt.NDArray[np.int64], block_frames: int, tables: Tables, stacks: StackTables, only_looks: bool
) -> tuple[int, int]:
    """Take one reference from each of ``ids``, and set them to 0; or change nothing, or only look what is wrong.

    ``frames``, ``i64[n, depth]``, is filled with their frames. Returns what is wrong, 0 for nothing; and with which of
    ``ids``, or for ``NO_SUCH_FRAME`` with which of all frames.
    """
    listed, free_rows, changed, tallies = stacks
    known = expand_stacks(ids, tables[FRAMES][PREVIOUS], listed, tallies[N_ROWS], frames)
    if known < len(ids):
        return NO_SUCH_STACK, known
    for i in range(len(ids)):
        if ids[i] < 0:
            if listed[-1 - ids[i], 0] == -1:
                _put_back(ids[:i], frames, listed)
                return LISTED_TWICE, i
            listed[-1 - ids[i], 0] = -1
    flat = frames.reshape(-1)
    known = release_frames(flat, block_frames, tables, only_looks)
    if only_looks or known < len(flat):
        _put_back(ids, frames, listed)
        return (NO_SUCH_FRAME if known < len(flat) else 0), known
    for i in range(len(ids)):
        tallies[N_STACKS] -= ids[i] != 0
        if ids[i] < 0:
            row = -1 - ids[i]
            free_rows[tallies[N_FREE_ROWS]] = row
            tallies[N_FREE_ROWS] += 1
            changed[row] = True
        ids[i] = 0
    return 0, 0


@compiled
def _put_back(ids: Ints, frames: npt.NDArray[np.int64], listed: Listed) -> None:
    """Use rows again that were about to be freed."""
    for i in range(len(ids)):
        if ids[i] < 0:
            listed[-1 - ids[i], 0] = frames[i, 0]
