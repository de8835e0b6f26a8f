"""Sequences of frames: the open block of each, its recent frames, and the bookkeeping of those that join it."""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.counts import BLOCKS, COUNTS, FRAMES, LIVE, PREVIOUS, Table, Tables, bury, take_number
from obscodec.kernels import compiled, inlined
from obscodec.segments import Ints

# The columns of the table of sequences, a row for each environment. Addresses point into arrays that OpenBlocks holds.
BLOCK: Final = 0  # number of the open block, 0 for none
PLACE: Final = 1  # frames in the open block
REFERENCE: Final = 2  # what the first frame of the open block is a patch of, 0 for zeros
RUNS: Final = 3  # address of the runs of the open block; 0 if its frames are kept as they are
RUNS_NBYTES: Final = 4
LITERALS: Final = 5  # address of the literals of the open block, or of its frames
LITERALS_NBYTES: Final = 6
RECENT: Final = 7  # address of the ring of recent frames
NEWEST: Final = 8  # place of the newest one in the ring
N_RECENT: Final = 9
MATCHED: Final = 10  # place of the frame that was found or added last
BEGIN: Final = 11  # place of the frame that the last observation began with
RECENT_IDS: Final = 12  # the ids of the recent frames, as many columns as the ring has places, then their fingerprints


@inlined
def ring_size(sequences: npt.NDArray[np.int64]) -> int:
    """How many recent frames each sequence has place for."""
    return int((sequences.shape[1] - RECENT_IDS) // 2)


@inlined
def needs_block(sequence: Ints, block_frames: int) -> bool:
    """Whether a sequence has no open block, or a full one."""
    return bool(sequence[BLOCK] == 0 or sequence[PLACE] == block_frames)


@compiled
def next_place(sequence: Ints, n_ring: int) -> int:
    """The place in the ring of the next new frame."""
    return int((sequence[NEWEST] + 1) % n_ring) if sequence[N_RECENT] else 0


@compiled
def begin_block(sequence: Ints, n_begun: Ints, which: int, tables: Tables) -> None:
    """Begin an empty block in place of the open one of a sequence, which is stored, or without a frame that counts.

    Args:
        sequence: the row of the sequence, changed.
        n_begun: ``i64[n_sequences]``, how many blocks each sequence has begun, changed.
        which: the number of the sequence.
        tables: see ``kernels.counts``, changed.
    """
    if sequence[BLOCK]:
        bury(sequence[BLOCK], tables)  # it is not open any more
    sequence[BLOCK] = take_number(tables)
    sequence[PLACE] = sequence[REFERENCE] = sequence[RUNS_NBYTES] = sequence[LITERALS_NBYTES] = 0
    tables[BLOCKS][LIVE, sequence[BLOCK]] = 1
    n_begun[which] += 1


@compiled
def add_new(
    sequence: Ints, place: int, n_ring: int, fingerprint: int, block_frames: int, before: int, tables: Tables
) -> None:
    """Give the frame that was encoded last its id, and a place in the ring, instead of the oldest one there.

    Args:
        sequence: the row of the sequence, changed.
        place: where in the ring, see :func:`next_place`.
        n_ring: see :func:`ring_size`.
        fingerprint: of the frame.
        block_frames: how many frames a block has.
        before: the id of the frame before it in its observation, 0 for none.
        tables: see ``kernels.counts``, changed.
    """
    counts = tables[FRAMES][COUNTS]
    if sequence[N_RECENT] == n_ring:
        forgotten = sequence[RECENT_IDS + place]
        counts[forgotten] -= 1
        if counts[forgotten] == 0:
            bury(forgotten // block_frames, tables)
    else:
        sequence[N_RECENT] += 1
    frame_id = sequence[BLOCK] * block_frames + sequence[PLACE]
    sequence[PLACE] += 1
    sequence[RECENT_IDS + place] = frame_id
    sequence[RECENT_IDS + n_ring + place] = fingerprint
    sequence[NEWEST] = place
    counts[frame_id] = 1
    tables[FRAMES][PREVIOUS, frame_id] = before
    tables[BLOCKS][LIVE, sequence[BLOCK]] += 1


@compiled
def give_id(sequence: Ints, place: int, begins: bool, counts: Table) -> int:
    """Count a reference to the recent frame at ``place``, which an observation may begin with; its id."""
    sequence[MATCHED] = place
    if begins:
        sequence[BEGIN] = place
    frame_id = sequence[RECENT_IDS + place]
    counts[frame_id] += 2
    return int(frame_id)
