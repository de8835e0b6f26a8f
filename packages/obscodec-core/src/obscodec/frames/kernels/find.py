"""Finding what a read needs: the frames of stacks, sorted by their blocks, and where each block lies."""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.counts import COUNTS, FRAMES, PREVIOUS, Tables, count_known
from obscodec.frames.kernels.grouping import group
from obscodec.frames.kernels.queue import Queue, write_content
from obscodec.frames.kernels.stacks import LISTED, N_ROWS, STACK_TALLIES, StackTables, expand_stacks
from obscodec.kernels import address, compiled
from obscodec.segments import Bytes, Ints

# What :func:`find_frames` finds wrong.
NO_STACK: Final = -1
NO_FRAME: Final = -2
NO_BLOCK: Final = -3
FEW_BYTES: Final = -4

# The rows of what it fills in, ``i64[9, n_frames + 1]``.
FOUND: Final = 0  # the frames
ORDER: Final = 1  # see ``kernels.grouping``; so are the next three
PLACES: Final = 2
BLOCKS: Final = 3
STARTS: Final = 4
CHUNKS: Final = 5  # of each block: the number of its chunk, 0 for no stream
OFFSETS: Final = 6
LENGTHS: Final = 7
ADDRESSES: Final = 8  # 0 for no stream
N_ROWS_FOUND: Final = 9


@compiled
def find_frames(
    ids: Ints,
    block_frames: int,
    tables: Tables,
    stacks: StackTables,
    entries: npt.NDArray[np.uint32],
    bases: Ints,
    sequences: npt.NDArray[np.int64],
    queue: Queue,
    other_queue: Queue,
    chunk: int,
    content: Bytes,
    found: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Find the frames of stacks ``i64[n]``, and their blocks.

    ``tables``, ``stacks``, ``sequences`` and both queues are those of a log. ``entries``, ``u32[n_blocks, 3]``, has the
    chunk of each block, 0 for none, its offset there, and its bytes; ``bases``, ``i64[:]``, the address of each chunk.
    ``content`` is filled with the blocks that have no chunk, one behind the other, and gets the number ``chunk``;
    ``found``, ``i64[9, n * depth + 1]``, is filled. Returns how many blocks there are, and the bytes of ``content``
    that were written; or what is wrong, and the place in ``ids``, or for ``NO_FRAME`` the frame, or for ``FEW_BYTES``
    the bytes of ``content`` that are needed.
    """
    depth, n_rows = stacks[LISTED].shape[1], stacks[STACK_TALLIES][N_ROWS]
    n_frames = len(ids) * depth
    frames = found[FOUND, :n_frames]
    known = expand_stacks(ids, tables[FRAMES][PREVIOUS], stacks[LISTED], n_rows, frames.reshape((len(ids), depth)))
    if known < len(ids):
        return NO_STACK, known
    known = count_known(frames, tables[FRAMES][COUNTS])
    if known < n_frames:
        return NO_FRAME, frames[known]
    n_blocks = group(frames, block_frames, found[ORDER, :n_frames], found[PLACES], found[BLOCKS], found[STARTS])
    end, queues = 0, (queue, other_queue)
    for b in range(n_blocks):
        block = found[BLOCKS, b]
        for k in range(3):
            found[CHUNKS + k, b] = entries[block, k]
        found[ADDRESSES, b] = bases[found[CHUNKS, b]] + found[OFFSETS, b]
        if block == 0 or entries[block, 0]:
            continue
        found[ADDRESSES, b] = address(content) + end
        nbytes = write_content(block, sequences, queues, found[ADDRESSES, b], len(content) - end)
        if nbytes < 0:
            return NO_BLOCK, block
        found[CHUNKS, b], found[OFFSETS, b], found[LENGTHS, b] = chunk, end, nbytes
        end += nbytes
    return (n_blocks, end) if end <= len(content) else (FEW_BYTES, end)
