"""The table of sequences, ``i64[n_sequences, n_fields]``: for each, its open block and its recent frames.

Addresses in it point into arrays that ``OpenBlocks`` holds. ``sequence`` is a row of it everywhere.
"""

from typing import Final

from obscodec.kernels import compiled, copy, inlined
from obscodec.segments import Ints
from obscodec.streams import write_varint
from obscodec.varint import MAX_VARINT_NBYTES

BLOCK: Final = 0  # number of the open block, 0 for none
PLACE: Final = 1  # frames in the open block
REFERENCE: Final = 2  # what the first frame of the open block is a patch of, 0 for zeros
RUNS: Final = 3  # address of the runs of the open block; 0 if its frames are kept as they are
RUNS_NBYTES: Final = 4
LITERALS: Final = 5  # address of the literals of the open block, or of its frames
LITERALS_NBYTES: Final = 6
RECENT: Final = 7  # address of the ring of recent frames
NEWEST: Final = 8  # place of the newest frame in the ring
N_RECENT: Final = 9  # frames in the ring
MATCHED: Final = 10  # place of the frame that was found or added last
BEGIN: Final = 11  # place of the frame that the last observation began with
N_BEGUN: Final = 12  # how many blocks the sequence began: the number of a block may come again
QUEUED: Final = 13  # 1 if the open block is full, and was put into the queue or stored
RECENT_IDS: Final = 14  # the ids of the recent frames, as many fields as the ring has places, then their fingerprints


@inlined
def block_bound(sequence: Ints) -> int:
    """The most bytes that :func:`write_block` writes."""
    return int(3 * MAX_VARINT_NBYTES + sequence[RUNS_NBYTES] + sequence[LITERALS_NBYTES])


@compiled
def write_block(sequence: Ints, at: int) -> int:
    """Write the open block of a sequence to an address, as a block of version 0; how many bytes that takes."""
    behind = write_varint(at, 0)
    if sequence[RUNS]:
        behind = write_varint(write_varint(behind, sequence[REFERENCE]), sequence[RUNS_NBYTES])
        copy(behind, sequence[RUNS], sequence[RUNS_NBYTES])
        behind += sequence[RUNS_NBYTES]
    copy(behind, sequence[LITERALS], sequence[LITERALS_NBYTES])
    return int(behind + sequence[LITERALS_NBYTES] - at)
