"""The table of sequences of frames: the open block of each, its recent frames, and what a new frame changes.

``sequence`` is a row of this table everywhere, changed, and ``tables`` are those of ``kernels.counts``, changed.
"""

from typing import Final

from obscodec.frames.kernels.counts import BLOCKS, COUNTS, FRAMES, LIVE, PREVIOUS, Table, Tables, bury, take_number
from obscodec.kernels import compiled, copy, inlined
from obscodec.segments import Ints

# The columns of the table. Addresses point into arrays that OpenBlocks holds.
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
RECENT_IDS: Final = 12  # the ids of the recent frames, as many columns as the ring has places, then their fingerprints


@inlined
def ring_size(sequence: Ints) -> int:
    """How many recent frames the ring of a sequence has place for."""
    return int((len(sequence) - RECENT_IDS) // 2)


@compiled
def begin_block(sequence: Ints, n_begun: Ints, which: int, tables: Tables) -> None:
    """Begin an empty block in sequence number ``which``, and count it in ``n_begun``, ``i64[n_sequences]``.

    The block that was open must be stored, or have no frame that is counted.
    """
    if sequence[BLOCK]:
        bury(sequence[BLOCK], tables)  # an open block counts one more
    sequence[BLOCK] = take_number(tables)
    sequence[PLACE] = sequence[REFERENCE] = sequence[RUNS_NBYTES] = sequence[LITERALS_NBYTES] = 0
    tables[BLOCKS][LIVE, sequence[BLOCK]] = 1
    n_begun[which] += 1


@compiled
def add_new(
    sequence: Ints, frame: int, nbytes: int, fingerprint: int, block_frames: int, before: int, tables: Tables
) -> int:
    """Give the frame that was encoded last an id, and a place in the ring, instead of the oldest frame; the place.

    ``frame`` is its address, and ``before`` the id of the frame before it in its observation, 0 for none.
    """
    n_ring, counts = ring_size(sequence), tables[FRAMES][COUNTS]
    place = int((sequence[NEWEST] + 1) % n_ring) if sequence[N_RECENT] else 0
    copy(sequence[RECENT] + place * nbytes, frame, nbytes)
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
    return place


@compiled
def give_id(sequence: Ints, place: int, begins: bool, counts: Table) -> int:
    """Count a reference to the recent frame at ``place``; its id. ``begins``: an observation begins with it."""
    sequence[MATCHED] = place
    if begins:
        sequence[BEGIN] = place
    frame_id = sequence[RECENT_IDS + place]
    counts[frame_id] += 2
    return int(frame_id)
