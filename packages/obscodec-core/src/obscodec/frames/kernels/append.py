"""Appending frames: a frame that is known is found among the recent ones, a new frame joins the open block.

A full block joins the queue, and stays open until a new frame begins the next one.

``sequence`` is a row of the table of sequences everywhere, changed, and ``tables`` are those of ``kernels.counts``,
changed.
"""

import logging
from functools import cache

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.counts import (
    BLOCKS,
    COUNTS,
    FRAMES,
    LIVE,
    MOST_COUNT,
    N_FREE,
    N_USED,
    PREVIOUS,
    TALLIES,
    Table,
    Tables,
    bury,
    new_number,
)
from obscodec.frames.kernels.queue import Queue, set_aside
from obscodec.frames.kernels.sequences import (
    BEGIN,
    BLOCK,
    LITERALS,
    LITERALS_NBYTES,
    MATCHED,
    N_BEGUN,
    N_RECENT,
    NEWEST,
    PLACE,
    QUEUED,
    RECENT,
    RECENT_IDS,
    REFERENCE,
    RUNS,
    RUNS_NBYTES,
)
from obscodec.kernels import (
    UNCACHED,
    WARM,
    address,
    compiled,
    copy,
    inlined,
    is_on_disk,
    load_u8,
    load_u64,
    signed,
    unsigned,
)
from obscodec.layout import Rows
from obscodec.segments import Ints
from obscodec.streams import are_equal, encode_first, encode_patch

# Where new frames go: the table of sequences; the reference frames, ``u8[max_references, nbytes]``, the first one
# zeros; ``i64[1]``, how many these are; the queue of full blocks; how many frames a block has, and an observation.
OpenTables = tuple[npt.NDArray[np.int64], Rows, Ints, Queue, int, int]
_log = logging.getLogger("obscodec")


@compiled
def append_frames(
    frames: Rows, first: int, of_sequences: Ints, open_blocks: OpenTables, tables: Tables, ids: Ints
) -> int:
    """Store frames ``u8[n, nbytes]``, from ``first`` on, up to one that needs what :func:`append_frame` says, or ``n``.

    ``of_sequences``, ``i64[n]``, are their rows in the table of sequences. ``ids``, ``i64[n]``, zeros from ``first``
    on, are filled: each id has one reference.
    """
    stack = open_blocks[5]
    for i in range(first, len(of_sequences)):
        begins = i % stack == 0
        before = 0 if begins else ids[i - 1]
        frame_id = append_frame(
            address(frames) + i * frames.shape[1], begins, before, of_sequences[i], open_blocks, tables
        )
        if frame_id < 0:
            return i
        ids[i] = frame_id
    return len(of_sequences)


@compiled
def append_frame(
    frame: int, begins: bool, before: int, of_sequence: int, open_blocks: OpenTables, tables: Tables
) -> int:
    """Store the frame at an address; its id, which has one reference more.

    ``begins``: an observation begins with it. ``before`` is the id of the frame before it in its observation, 0 for
    none; where observations are single frames, it is found here. -1 if there is no such sequence, or it needs a block
    and there is no number, or no room in the queue.
    """
    sequences, references, n_references, queue, block_frames, stack = open_blocks
    nbytes = references.shape[1]
    if not 0 <= of_sequence < len(sequences):
        return -1
    sequence = sequences[of_sequence]
    if are_equal(frame, address(references), nbytes):
        return 0  # the frame of zeros
    place, fingerprint = _find(frame, nbytes, sequence, begins, tables[FRAMES][COUNTS])
    if place < 0:
        is_full = sequence[BLOCK] == 0 or sequence[PLACE] == block_frames
        if is_full and not _begin_block(sequence, queue, tables):
            return -1
        _encode(frame, nbytes, sequence, references, n_references)
        if stack == 1 and sequence[N_RECENT]:
            before = sequence[RECENT_IDS + sequence[NEWEST]]
        place = _add_new(sequence, frame, nbytes, fingerprint, block_frames, before, tables)
        if sequence[PLACE] == block_frames:
            set_aside(sequence, queue)
    return _give_id(sequence, place, begins, tables[FRAMES][COUNTS])


@inlined
def _begin_block(sequence: Ints, queue: Queue, tables: Tables) -> bool:
    """Begin an empty block; False if the queue has no room for the full one, or there is no number for another one."""
    tallies, live = tables[TALLIES], tables[BLOCKS][LIVE]
    if tallies[N_FREE] == 0 and tallies[N_USED] >= len(live):
        return False
    is_wanted = sequence[BLOCK] != 0 and live[sequence[BLOCK]] > 1 and sequence[QUEUED] == 0
    if is_wanted and not set_aside(sequence, queue):
        return False
    if sequence[BLOCK]:
        bury(sequence[BLOCK], tables)  # an open block counts one more
    sequence[BLOCK] = new_number(tables)
    sequence[PLACE] = sequence[REFERENCE] = sequence[RUNS_NBYTES] = sequence[LITERALS_NBYTES] = sequence[QUEUED] = 0
    live[sequence[BLOCK]] = 1
    sequence[N_BEGUN] += 1
    return True


@inlined
def _ring_size(sequence: Ints) -> int:
    """How many recent frames the ring of a sequence has place for."""
    return int((len(sequence) - RECENT_IDS) // 2)


@compiled
def _is_at(place: int, frame: int, nbytes: int, sequence: Ints, counts: Table) -> bool:
    """Whether the recent frame at ``place`` is equal in every byte, and can have another reference."""
    has_room = counts[sequence[RECENT_IDS + place]] < MOST_COUNT
    return has_room and are_equal(frame, sequence[RECENT] + place * nbytes, nbytes)


@compiled
def _find(frame: int, nbytes: int, sequence: Ints, is_first: bool, counts: Table) -> tuple[int, int]:
    """The place in the ring of a recent frame that is equal in every byte, or -1 and the fingerprint.

    Nearly always an observation begins where the last one did, or one frame later, and goes on from there.
    """
    n, n_ring = sequence[N_RECENT], _ring_size(sequence)
    likely = sequence[BEGIN] if is_first else (sequence[MATCHED] + 1) % n_ring
    for place in (likely, (likely + 1) % n_ring):
        if place < n and (is_first or place == likely) and _is_at(place, frame, nbytes, sequence, counts):
            return place, 0
    fingerprint = _fingerprint(frame, nbytes)
    for place in range(n):
        is_alike = sequence[RECENT_IDS + n_ring + place] == fingerprint
        if is_alike and _is_at(place, frame, nbytes, sequence, counts):
            return place, fingerprint
    return -1, fingerprint


@inlined
def _fingerprint(frame: int, nbytes: int) -> int:
    """A number that tells most frames apart: its words, rotated and xored in four lanes for the processor."""
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


@inlined
def _encode(frame: int, nbytes: int, sequence: npt.NDArray[np.int64], references: Rows, n_references: Ints) -> None:
    """Add a frame to the open block."""
    if sequence[RUNS] == 0:
        copy(sequence[LITERALS] + sequence[LITERALS_NBYTES], frame, nbytes)
        sequence[LITERALS_NBYTES] += nbytes
        return
    runs = sequence[RUNS] + sequence[RUNS_NBYTES]
    literals = sequence[LITERALS] + sequence[LITERALS_NBYTES]
    if sequence[PLACE] > 0:
        old = sequence[RECENT] + sequence[NEWEST] * nbytes
        runs_nbytes, n_literals = encode_patch(old, frame, nbytes, runs, literals)
    else:
        reference, runs_nbytes, n_literals = encode_first(frame, references, n_references, runs, literals)
        sequence[REFERENCE] = reference
    sequence[RUNS_NBYTES] += runs_nbytes
    sequence[LITERALS_NBYTES] += n_literals


@inlined
def _add_new(
    sequence: Ints, frame: int, nbytes: int, fingerprint: int, block_frames: int, before: int, tables: Tables
) -> int:
    """Give the frame that was encoded last an id, and a place in the ring, instead of the oldest frame; the place.

    ``frame`` is its address, and ``before`` the id of the frame before it, 0 for none.
    """
    n_ring, counts = _ring_size(sequence), tables[FRAMES][COUNTS]
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


@inlined
def _give_id(sequence: Ints, place: int, begins: bool, counts: Table) -> int:
    """Count a reference to the recent frame at ``place``; its id. ``begins``: an observation begins with it."""
    sequence[MATCHED] = place
    if begins:
        sequence[BEGIN] = place
    frame_id = sequence[RECENT_IDS + place]
    counts[frame_id] += 2
    return int(frame_id)


@cache
def announce() -> None:
    """Warn, once in a process, if kernels are not in numba's cache and are about to be compiled."""
    if append_frames.signatures:
        return
    if append_frames.stats.cache_path is None:
        _log.warning(f"obscodec is compiling its kernels: {UNCACHED}")
    elif not is_on_disk("obscodec.frames", append_frames.py_func.__name__):
        _log.warning(
            f"obscodec is compiling its kernels for this machine: half a minute or more, the first time only; {WARM}"
        )
