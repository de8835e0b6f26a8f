"""A queue of full blocks, which wait until they are compressed together.

It is a table ``i64[1 + most, 6]``. The first row tells where the bytes of the blocks are and how many there are, each
other row which block it is, 0 for one that is not wanted any more, and where its bytes begin. ``BlockQueue`` holds it.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.sequences import BLOCK, QUEUED, block_bound, write_block
from obscodec.kernels import compiled, copy, inlined
from obscodec.segments import Ints

Queue = npt.NDArray[np.int64]

# The first row.
MEMORY: Final = 0  # address of the bytes of all blocks
ROOM_NBYTES: Final = 1
USED_NBYTES: Final = 2
N_BLOCKS: Final = 3
DUE_BLOCKS: Final = 4  # from how many blocks on,
DUE_NBYTES: Final = 5  # or from how many bytes on, they should be compressed

# The other rows.
NUMBER: Final = 0
OFFSET: Final = 1
LENGTH: Final = 2


@compiled
def set_aside(sequence: Ints, queue: Queue) -> bool:
    """Copy the open block of a sequence, which is full, to the end of the queue; False if there is no room."""
    head = queue[0]
    n, used = head[N_BLOCKS], head[USED_NBYTES]
    if n + 1 >= len(queue) or used + block_bound(sequence) > head[ROOM_NBYTES]:
        return False
    row = queue[1 + n]
    row[NUMBER], row[OFFSET], row[LENGTH] = sequence[BLOCK], used, write_block(sequence, head[MEMORY] + used)
    head[USED_NBYTES] += row[LENGTH]
    head[N_BLOCKS] += 1
    sequence[QUEUED] = 1
    return True


@inlined
def is_due(queue: Queue) -> bool:
    """Whether the blocks should be compressed."""
    return bool(queue[0, N_BLOCKS] >= queue[0, DUE_BLOCKS] or queue[0, USED_NBYTES] >= queue[0, DUE_NBYTES])


@compiled
def drop(number: int, queue: Queue) -> None:
    """Note that a block is not wanted any more."""
    for i in range(1, 1 + queue[0, N_BLOCKS]):
        if queue[i, NUMBER] == number:
            queue[i, NUMBER] = 0


@compiled
def write_content(
    number: int, sequences: npt.NDArray[np.int64], queues: tuple[Queue, Queue], at: int, room_nbytes: int
) -> int:
    """Write a block that is open or in a queue to an address, if it fits there; its bytes, -1 if it is neither.

    If these are more than ``room_nbytes``, nothing is written.
    """
    for queue in queues:
        for i in range(1, 1 + queue[0, N_BLOCKS]):
            if queue[i, NUMBER] == number:
                if queue[i, LENGTH] <= room_nbytes:
                    copy(at, queue[0, MEMORY] + queue[i, OFFSET], queue[i, LENGTH])
                return int(queue[i, LENGTH])
    for s in range(len(sequences)):
        if sequences[s, BLOCK] == number:
            most = block_bound(sequences[s])
            return int(write_block(sequences[s], at)) if most <= room_nbytes else most
    return -1
