"""Taking frames in: find those that are known, make patches of those that are new, count references."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.kernels.compiled import compiled, inlined
from obscodec.kernels.memory import address, copy, load_u8, load_u64, signed, unsigned
from obscodec.kernels.patch import encode_patch, first_difference
from obscodec.kernels.references import encode_first
from obscodec.layout import Rows
from obscodec.segments import Ints

Table = npt.NDArray[np.int32]

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


@compiled
def append_frames(
    frames: Rows,
    first: int,
    of_streams: Ints,
    streams: npt.NDArray[np.int64],
    block_frames: int,
    stack: int,
    references: Rows,
    n_references: Ints,
    counts: Table,
    live: Table,
    previous: Table,
    ids: Ints,
    dead: Ints,
) -> tuple[int, int]:
    """Take frames in, from ``first`` on, until one needs a new block.

    Args:
        frames: ``u8[n, nbytes]``, contiguous.
        first: the frame to begin with.
        of_streams: ``i64[n]``, the row in ``streams`` of each frame.
        streams: the table of frame streams, changed.
        block_frames: how many frames a block has.
        stack: how many frames come from one observation, so that the first one is likely to be this far back.
        references: ``u8[max_references, nbytes]``, the first one zeros.
        n_references: ``i64[1]``, how many there are, changed.
        counts: by id, 2 for each reference to a frame and 1 if it is in the ring of recent frames, changed.
        live: frames with references in each block, changed.
        previous: for each frame, by id, the one before it in the observation that it came with first, changed.
        ids: ``i64[n]``, filled.
        dead: room for the numbers of blocks that lost their last reference.

    Returns:
        The frame that needs a new block in its stream, or a new stream, or ``n``; how many ``dead`` there are.
    """
    nbytes = frames.shape[1]
    n_ring = (streams.shape[1] - RECENT_IDS) // 2
    n_dead = 0
    for i in range(first, len(of_streams)):
        if not 0 <= of_streams[i] < len(streams):
            return i, n_dead
        stream = streams[of_streams[i]]
        frame = address(frames) + i * nbytes
        if first_difference(frame, address(references), 0, nbytes) == nbytes:
            ids[i] = 0  # the frame of zeros
            continue
        place, fingerprint = _find(frame, nbytes, stream, n_ring, i % stack == 0)
        if place >= 0:
            frame_id = stream[RECENT_IDS + place]
        else:
            if stream[BLOCK] == 0 or stream[PLACE] == block_frames:
                return i, n_dead
            place = (stream[NEWEST] + 1) % n_ring if stream[N_RECENT] else 0
            if stream[N_RECENT] == n_ring:
                forgotten = stream[RECENT_IDS + place]
                counts[forgotten] -= 1
                if counts[forgotten] == 0:
                    n_dead += _bury(forgotten // block_frames, live, dead, n_dead)
            else:
                stream[N_RECENT] += 1
            _encode(frame, nbytes, stream, references, n_references)
            frame_id = stream[BLOCK] * block_frames + stream[PLACE]
            stream[PLACE] += 1
            copy(stream[RECENT] + place * nbytes, frame, nbytes)
            stream[RECENT_IDS + place] = frame_id
            stream[RECENT_IDS + n_ring + place] = fingerprint
            stream[NEWEST] = place
            counts[frame_id] = 1
            previous[frame_id] = ids[i - 1] if i % stack > 0 else 0
            live[stream[BLOCK]] += 1
        stream[MATCHED] = place
        if i % stack == 0:
            stream[BEGIN] = place
        counts[frame_id] += 2
        ids[i] = frame_id
    return len(of_streams), n_dead


@compiled
def replace_frames(
    old: Ints,
    frames: Rows,
    first: int,
    of_streams: Ints,
    streams: npt.NDArray[np.int64],
    block_frames: int,
    stack: int,
    references: Rows,
    n_references: Ints,
    counts: Table,
    live: Table,
    previous: Table,
    ids: Ints,
    dead: Ints,
) -> tuple[int, int, int]:
    """:func:`append_frames`, and when all are taken in, :func:`release_frames` of the ids ``old``.

    Returns:
        What ``append_frames`` gives; and i if all are taken in and ``old[i]`` can't be released, else -1.
    """
    done, n_dead = append_frames(
        frames,
        first,
        of_streams,
        streams,
        block_frames,
        stack,
        references,
        n_references,
        counts,
        live,
        previous,
        ids,
        dead,
    )
    if done == len(of_streams):
        n_released = release_frames(old, block_frames, counts, live, dead[n_dead:])
        if n_released < 0:
            return done, n_dead, -1 - n_released
        n_dead += n_released
    return done, n_dead, -1


@inlined
def is_frame(frame_id: int, counts: Table) -> bool:
    """Whether there is a frame with this id, and anybody refers to it."""
    return 0 < frame_id < len(counts) and bool(counts[frame_id] > 1)


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
            n_dead += _bury(frame_id // block_frames, live, dead, n_dead)
    for frame_id in ids:
        if counts[frame_id] < 0:
            counts[frame_id] = 0
    return n_dead


@compiled
def _bury(block: int, live: Table, dead: Ints, n_dead: int) -> int:
    """Count a frame of ``block`` less; 1 if that was its last one, which adds it to ``dead``."""
    live[block] -= 1
    if live[block] > 0:
        return 0
    dead[n_dead] = block
    return 1


@compiled
def _is_at(place: int, frame: int, nbytes: int, stream: Ints) -> bool:
    """Whether the recent frame at ``place`` is equal in every byte."""
    return bool(first_difference(frame, stream[RECENT] + place * nbytes, 0, nbytes) == nbytes)


@compiled
def _find(frame: int, nbytes: int, stream: Ints, n_ring: int, is_first: bool) -> tuple[int, int]:
    """The place in the ring of a recent frame that is equal in every byte, or -1; and the fingerprint if that is -1.

    Nearly always an observation begins where the last one did, or one frame later, and goes on from there.
    """
    n = stream[N_RECENT]
    likely = stream[BEGIN] if is_first else (stream[MATCHED] + 1) % n_ring
    for place in (likely, (likely + 1) % n_ring):
        if place < n and (is_first or place == likely) and _is_at(place, frame, nbytes, stream):
            return place, 0
    fingerprint = _fingerprint(frame, nbytes)
    for place in range(n):
        if stream[RECENT_IDS + n_ring + place] == fingerprint and _is_at(place, frame, nbytes, stream):
            return place, fingerprint
    return -1, fingerprint


@compiled
def _fingerprint(frame: int, nbytes: int) -> int:
    """A number that tells most frames apart: words that are rotated and xored, in four lanes for the processor."""
    left, right, step = unsigned(7), unsigned(57), 32
    a, b, c, d = unsigned(0), unsigned(0), unsigned(0), unsigned(0)
    at = frame
    for _ in range(nbytes // step):
        a = (a << left | a >> right) ^ load_u64(at)
        b = (b << left | b >> right) ^ load_u64(at + 8)
        c = (c << left | c >> right) ^ load_u64(at + 16)
        d = (d << left | d >> right) ^ load_u64(at + 24)
        at += step
    while at < frame + nbytes:
        a = (a << left | a >> right) ^ load_u8(at)
        at += 1
    return signed(a + unsigned(3) * b + unsigned(5) * c + unsigned(7) * d)


@compiled
def _encode(frame: int, nbytes: int, stream: npt.NDArray[np.int64], references: Rows, n_references: Ints) -> None:
    """Add a frame to the open block."""
    if stream[RUNS] == 0:
        copy(stream[LITERALS] + stream[LITERALS_NBYTES], frame, nbytes)
        stream[LITERALS_NBYTES] += nbytes
        return
    runs = stream[RUNS] + stream[RUNS_NBYTES]
    literals = stream[LITERALS] + stream[LITERALS_NBYTES]
    if stream[PLACE] > 0:
        old = stream[RECENT] + stream[NEWEST] * nbytes
        runs_nbytes, n_literals = encode_patch(old, frame, nbytes, runs, literals)
    else:
        reference, runs_nbytes, n_literals = encode_first(frame, references, n_references, runs, literals)
        stream[REFERENCE] = reference
    stream[RUNS_NBYTES] += runs_nbytes
    stream[LITERALS_NBYTES] += n_literals
