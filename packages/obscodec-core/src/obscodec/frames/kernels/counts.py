"""References to frames: a frame lives while somebody refers to it, a block while one of its frames does.

``counts`` has, by id, 2 for each reference to a frame, and 1 if it is among the recent frames of its sequence. ``live``
has, by number, how many frames of a block are counted, and one more while it is open; -1 for a block that is unused.
A kernel makes all of its changes, or none: no signal handler runs in it.

``ids`` are ``i64[n]`` everywhere, ``0`` among them is the frame of zeros, which is not counted, and ``block_frames`` is
how many frames a block has. ``counts`` and ``tables`` are changed.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.queue import Queue, drop
from obscodec.kernels import compiled, inlined
from obscodec.segments import Ints

Table = npt.NDArray[np.int32]

# The tables of a store, as kernels take them; see ``FrameTables``. Four arrays, not more: numba allocates memory to
# describe the types of five, and crashes if the allocation fails.
Tables = tuple[Table, Table, Table, Ints]
FRAMES: Final = 0
BLOCKS: Final = 1
DEAD: Final = 2
TALLIES: Final = 3

# At so high a count, a frame takes no more references, and an equal frame is stored anew. A call may add as many again.
MOST_COUNT: Final = 1 << 30

# The rows of the table of frames, ``i32[2, n_frames]``.
COUNTS: Final = 0
PREVIOUS: Final = 1

# The rows of the table of blocks, ``i32[3, n_blocks]``.
LIVE: Final = 0
VERSIONS: Final = 1
FREE: Final = 2

# What is counted of the blocks of a store, ``i64[3]``.
N_USED: Final = 0  # numbers that were ever used; 0 is the block of the frame of zeros
N_FREE: Final = 1  # numbers in the row ``FREE``, to be used again
N_DEAD: Final = 2  # numbers in ``dead``, of blocks to look at: if no frame of a block is counted, it becomes free


@inlined
def is_frame(frame_id: int, counts: Table) -> bool:
    """Whether anybody refers to a frame with this id."""
    return 0 < frame_id < len(counts) and bool(counts[frame_id] > 1)


@compiled
def count_known(ids: Ints, counts: Table) -> int:
    """``n`` if each of ``ids`` is 0 or of a frame; otherwise ``i`` for the first ``ids[i]`` that is of no frame."""
    for i in range(len(ids)):
        if ids[i] != 0 and not is_frame(ids[i], counts):
            return i
    return len(ids)


@compiled
def release_frames(ids: Ints, block_frames: int, tables: Tables, only_looks: bool) -> int:
    """Take one reference from each of ``ids``, or only look whether that can be; a block without frames is dead.

    Returns ``n``, or ``i`` if ``ids[i]`` is of no frame, or is named more often than it has references.
    """
    counts = tables[FRAMES][COUNTS]
    for i in range(len(ids)):
        if ids[i] != 0:
            if not is_frame(ids[i], counts):
                _count_more(ids[:i], counts)
                return i
            counts[ids[i]] -= 2
    if only_looks:
        _count_more(ids, counts)
        return len(ids)
    for frame_id in ids:
        if frame_id != 0 and counts[frame_id] == 0:
            counts[frame_id] = -1  # each frame dies once, however often it is named
            bury(frame_id // block_frames, tables)
    for frame_id in ids:
        if counts[frame_id] < 0:
            counts[frame_id] = 0
    return len(ids)


@compiled
def _count_more(ids: Ints, counts: Table) -> None:
    """Add one reference to each of ``ids``."""
    for frame_id in ids:
        counts[frame_id] += 2 * (frame_id != 0)


@compiled
def give_back_frames(held: Ints, block_frames: int, tables: Tables) -> None:
    """Release the frames in ``held``, and set it to zeros."""
    release_frames(held, block_frames, tables, False)
    held[:] = 0


@compiled
def bury(block: int, tables: Tables) -> None:
    """Count one frame of ``block`` less."""
    live = tables[BLOCKS][LIVE]
    live[block] -= 1
    if live[block] == 0:
        tables[DEAD][tables[TALLIES][N_DEAD]] = block
        tables[TALLIES][N_DEAD] += 1


@compiled
def new_number(tables: Tables) -> int:
    """The number of a new block: one that is free, or else the next one, for which the tables must have room."""
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
def reclaim(tables: Tables, queue: Queue, other_queue: Queue) -> None:
    """Let the numbers of dead blocks be used again; queues drop these blocks."""
    _, blocks, dead, tallies = tables
    for k in range(tallies[N_DEAD]):
        block = dead[k]
        if blocks[LIVE, block] == 0:
            drop(block, queue)
            drop(block, other_queue)
            blocks[LIVE, block] = -1
            blocks[VERSIONS, block] = 0
            blocks[FREE, tallies[N_FREE]] = block
            tallies[N_FREE] += 1
    tallies[N_DEAD] = 0
