"""References to frames: a frame lives while somebody refers to it, a block while one of its frames does.

``counts`` has, by id, 2 for each reference to a frame, and 1 if it is among the recent frames of its sequence. ``live``
has, by number, how many frames of a block are counted, and one more while it is open; -1 for a block that is unused.
Whoever calls one of these kernels finds all its changes made, or none.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.kernels import compiled, inlined
from obscodec.segments import Ints

Table = npt.NDArray[np.int32]

# What is known of the frames and blocks of a store, as kernels take it; see ``FrameTables``. Of five arrays numba needs
# memory to describe the types, and crashes if there is none.
Tables = tuple[Table, Table, Table, Ints]
FRAMES: Final = 0
BLOCKS: Final = 1
DEAD: Final = 2
TALLIES: Final = 3

# The rows of the table of frames, ``i32[2, n_frames]``.
COUNTS: Final = 0
PREVIOUS: Final = 1

# The rows of the table of blocks, ``i32[3, n_blocks]``.
LIVE: Final = 0
VERSIONS: Final = 1
FREE: Final = 2

# What is counted of the blocks of a store, ``i64[3]``.
N_USED: Final = 0  # numbers that were ever used; 0 is the block of the frame of zeros
N_FREE: Final = 1  # numbers in ``free``, to be used again
N_DEAD: Final = 2  # numbers in ``dead``, of blocks to look at: those without a counted frame become free


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
def retain_frames(ids: Ints, counts: Table, retained: Ints) -> int:
    """Add one reference to each of ``ids``, or to none; 0 among them is left alone.

    Args:
        ids: ``i64[n]``.
        counts: changed.
        retained: ``i64[n]``, filled with ``ids``: they are there when the references are.

    Returns:
        How many there are, or i if ``ids[i]`` is of no frame.
    """
    for i in range(len(ids)):
        if ids[i] != 0 and not is_frame(ids[i], counts):
            return i
    for i in range(len(ids)):
        counts[ids[i]] += 2 * (ids[i] != 0)
        retained[i] = ids[i]
    return len(ids)


@compiled
def release_frames(ids: Ints, block_frames: int, tables: Tables) -> int:
    """Take one reference from each of ``ids``, or from none; 0 among them is left alone.

    Args:
        ids: ``i64[n]``.
        block_frames: how many frames a block has.
        tables: changed; blocks that lose their last frame are dead.

    Returns:
        ``n``, or i if ``ids[i]`` is of no frame or has no reference left.
    """
    counts = tables[FRAMES][COUNTS]
    for i in range(len(ids)):
        if ids[i] != 0:
            if not is_frame(ids[i], counts):
                for k in range(i):
                    counts[ids[k]] += 2 * (ids[k] != 0)
                return i
            counts[ids[i]] -= 2
    for frame_id in ids:
        if frame_id != 0 and counts[frame_id] == 0:
            counts[frame_id] = -1  # each frame dies once, however often it is named
            bury(frame_id // block_frames, tables)
    for frame_id in ids:
        if counts[frame_id] < 0:
            counts[frame_id] = 0
    return len(ids)


@compiled
def give_back_frames(held: Ints, block_frames: int, tables: Tables) -> None:
    """:func:`release_frames` of what somebody holds, who holds nothing afterwards: zeros."""
    release_frames(held, block_frames, tables)
    held[:] = 0


@compiled
def bury(block: int, tables: Tables) -> None:
    """Count a frame of ``block`` less."""
    live = tables[BLOCKS][LIVE]
    live[block] -= 1
    if live[block] == 0:
        tables[DEAD][tables[TALLIES][N_DEAD]] = block
        tables[TALLIES][N_DEAD] += 1


@compiled
def take_number(tables: Tables) -> int:
    """The number of a new block; there must be one that is free, or room in the tables for one more."""
    tallies = tables[TALLIES]
    if tallies[N_FREE]:
        tallies[N_FREE] -= 1
        number = int(tables[BLOCKS][FREE, tallies[N_FREE]])
    else:
        number = int(tallies[N_USED])
        tallies[N_USED] += 1
    tables[BLOCKS][LIVE, number] = 0
    return number


@compiled
def reserve_numbers(numbers: Ints, tables: Tables) -> None:
    """Fill ``numbers`` with those of new blocks; :func:`reclaim` takes back those that get no frames."""
    tallies = tables[TALLIES]
    for i in range(len(numbers)):
        numbers[i] = take_number(tables)
        tables[DEAD][tallies[N_DEAD]] = numbers[i]
        tallies[N_DEAD] += 1


@compiled
def reclaim(tables: Tables) -> None:
    """Let the numbers of dead blocks be used again."""
    _, blocks, dead, tallies = tables
    for k in range(tallies[N_DEAD]):
        block = dead[k]
        if blocks[LIVE, block] == 0:
            blocks[LIVE, block] = -1
            blocks[VERSIONS, block] = 0
            blocks[FREE, tallies[N_FREE]] = block
            tallies[N_FREE] += 1
    tallies[N_DEAD] = 0


@compiled
def take_frames(
    numbers: Ints, starts: Ints, places: Ints, n_each: Ints, block_frames: int, tables: Tables, ids: Ints
) -> None:
    """Refer to frames of blocks that were stored whole.

    Args:
        numbers: ``i64[n_blocks]``.
        starts: ``i64[n_blocks + 1]``: of block ``b``, the frames ``starts[b]`` to ``starts[b + 1]`` are wanted.
        places: ``i64[n]``, the places of these frames in their blocks, different ones in each.
        n_each: ``i64[n]``, how many references to each.
        block_frames: how many frames a block has.
        tables: changed.
        ids: ``i64[n_each.sum()]``, filled with the id of each frame as often as it is referred to.
    """
    at = 0
    for b in range(len(numbers)):
        tables[BLOCKS][LIVE, numbers[b]] = starts[b + 1] - starts[b]
        for k in range(starts[b], starts[b + 1]):
            frame_id = numbers[b] * block_frames + places[k]
            tables[FRAMES][COUNTS, frame_id] = 2 * n_each[k]
            for _ in range(n_each[k]):
                ids[at] = frame_id
                at += 1
