"""Streams of frames: the open block of each, its recent frames, and the bookkeeping of those that join it."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.counts import Table, bury, take_number
from obscodec.kernels import compiled, inlined
from obscodec.segments import Ints

# The columns of the table of frame streams, one row for each environment. Addresses point into arrays that the
# FrameStore holds.
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
def ring_size(streams: npt.NDArray[np.int64]) -> int:
    """How many recent frames each stream has place for."""
    return int((streams.shape[1] - RECENT_IDS) // 2)


@inlined
def needs_block(stream: Ints, block_frames: int) -> bool:
    """Whether a stream has no open block, or a full one."""
    return bool(stream[BLOCK] == 0 or stream[PLACE] == block_frames)


@compiled
def next_place(stream: Ints, n_ring: int) -> int:
    """The place in the ring of the next new frame."""
    return int((stream[NEWEST] + 1) % n_ring) if stream[N_RECENT] else 0


@compiled
def begin_block(stream: Ints, n_begun: Ints, which: int, live: Table, free: Table, dead: Table, tallies: Ints) -> None:
    """Begin an empty block in place of the open one of a stream, which is stored, or without a frame that counts.

    Args:
        stream: the row of the stream, changed.
        n_begun: ``i64[n_streams]``, how many blocks each stream has begun, changed.
        which: the number of the stream.
        live: see ``kernels.counts``, changed, as the rest.
        free: likewise.
        dead: likewise.
        tallies: likewise.
    """
    if stream[BLOCK]:
        bury(stream[BLOCK], live, dead, tallies)  # it is not open any more
    stream[BLOCK] = take_number(live, free, tallies)
    stream[PLACE] = stream[REFERENCE] = stream[RUNS_NBYTES] = stream[LITERALS_NBYTES] = 0
    live[stream[BLOCK]] = 1
    n_begun[which] += 1


@compiled
def add_new(
    stream: Ints,
    place: int,
    n_ring: int,
    fingerprint: int,
    block_frames: int,
    before: int,
    counts: Table,
    live: Table,
    previous: Table,
    dead: Table,
    tallies: Ints,
) -> None:
    """Give the frame that was encoded last its id, and a place in the ring, instead of the oldest one there.

    Args:
        stream: the row of the stream, changed.
        place: where in the ring, see :func:`next_place`.
        n_ring: see :func:`ring_size`.
        fingerprint: of the frame.
        block_frames: how many frames a block has.
        before: the id of the frame before it in its observation, 0 for none.
        counts: see ``kernels.counts``, changed.
        live: likewise.
        previous: for each frame, by id, the one before it in the observation that it came with first, changed.
        dead: see ``kernels.counts``, changed.
        tallies: likewise.
    """
    if stream[N_RECENT] == n_ring:
        forgotten = stream[RECENT_IDS + place]
        counts[forgotten] -= 1
        if counts[forgotten] == 0:
            bury(forgotten // block_frames, live, dead, tallies)
    else:
        stream[N_RECENT] += 1
    frame_id = stream[BLOCK] * block_frames + stream[PLACE]
    stream[PLACE] += 1
    stream[RECENT_IDS + place] = frame_id
    stream[RECENT_IDS + n_ring + place] = fingerprint
    stream[NEWEST] = place
    counts[frame_id] = 1
    previous[frame_id] = before
    live[stream[BLOCK]] += 1


@compiled
def give_id(stream: Ints, place: int, begins: bool, counts: Table) -> int:
    """Count a reference to the recent frame at ``place``, which an observation may begin with; its id."""
    stream[MATCHED] = place
    if begins:
        stream[BEGIN] = place
    frame_id = stream[RECENT_IDS + place]
    counts[frame_id] += 2
    return int(frame_id)
