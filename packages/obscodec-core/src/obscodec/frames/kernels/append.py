"""Appending frames: a frame that is known is found among the recent ones, a new frame joins the open block.

A full block is still open until it is stored and a new frame begins the next one.

``sequence`` is a row of the table of sequences everywhere, changed, and ``tables`` are those of ``kernels.counts``,
changed.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.delta_rle import (
    MAX_VARINT_NBYTES,
    encode_first,
    encode_patch,
    first_difference,
    write_varint,
)
from obscodec.frames.kernels.counts import (
    BLOCKS,
    COUNTS,
    FRAMES,
    LIVE,
    N_FREE,
    N_USED,
    PREVIOUS,
    TALLIES,
    Table,
    Tables,
    bury,
    take_number,
)
from obscodec.kernels import address, compiled, copy, inlined, load_u8, load_u64, signed, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints

# The columns of the table of sequences. Addresses point into arrays that OpenBlocks holds.
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
STORED: Final = 13  # 1 if the open block is full and stored
RECENT_IDS: Final = 14  # the ids of the recent frames, as many columns as the ring has places, then their fingerprints

# Where new frames go: the table of sequences, ``i64[n_sequences, n_columns]``; the reference frames,
# ``u8[max_references, nbytes]``, the first one zeros; ``i64[2]``, how many these are, and how many blocks became full
# since this was set to 0; how many frames a block has; how many frames come from one observation, so that a
# repeated one is likely to be this far back.
OpenTables = tuple[npt.NDArray[np.int64], Rows, Ints, int, int]
N_FULL: Final = 1


@compiled
def append_frames(
    frames: Rows, first: int, of_sequences: Ints, open_blocks: OpenTables, tables: Tables, ids: Ints
) -> int:
    """Store frames, from ``first`` on, until one needs a sequence or block that is not there; returns that, or ``n``.

    Args:
        frames: ``u8[n, nbytes]``, contiguous.
        first: the frame to begin with.
        of_sequences: ``i64[n]``, the row of each frame in the table of sequences.
        open_blocks: changed.
        tables: see ``kernels.counts``, changed.
        ids: ``i64[n]``, zeros from ``first`` on, filled: each id has one reference.
    """
    sequences, references, n_references, block_frames, stack = open_blocks
    nbytes = frames.shape[1]
    for i in range(first, len(of_sequences)):
        if not 0 <= of_sequences[i] < len(sequences):
            return i
        sequence = sequences[of_sequences[i]]
        frame = address(frames) + i * nbytes
        if first_difference(frame, address(references), 0, nbytes) == nbytes:
            continue  # the frame of zeros, whose id is 0
        begins = i % stack == 0
        place, fingerprint = _find(frame, nbytes, sequence, begins)
        if place < 0:
            is_full = sequence[BLOCK] == 0 or sequence[PLACE] == block_frames
            if is_full and not _begin_block(sequence, tables):
                return i
            _encode(frame, nbytes, sequence, references, n_references)
            before = 0 if begins else ids[i - 1]
            place = _add_new(sequence, frame, nbytes, fingerprint, block_frames, before, tables)
            n_references[N_FULL] += sequence[PLACE] == block_frames
        ids[i] = _give_id(sequence, place, begins, tables[FRAMES][COUNTS])
    return len(of_sequences)


@compiled
def _begin_block(sequence: Ints, tables: Tables) -> bool:
    """Begin an empty block; False if the full one is not stored yet, or there is no number for another one."""
    tallies, live = tables[TALLIES], tables[BLOCKS][LIVE]
    must_be_stored = sequence[BLOCK] != 0 and live[sequence[BLOCK]] > 1 and sequence[STORED] == 0
    if must_be_stored or (tallies[N_FREE] == 0 and tallies[N_USED] >= len(live)):
        return False
    if sequence[BLOCK]:
        bury(sequence[BLOCK], tables)  # an open block counts one more
    sequence[BLOCK] = take_number(tables)
    sequence[PLACE] = sequence[REFERENCE] = sequence[RUNS_NBYTES] = sequence[LITERALS_NBYTES] = sequence[STORED] = 0
    live[sequence[BLOCK]] = 1
    sequence[N_BEGUN] += 1
    return True


@compiled
def write_blocks(which: Ints, sequences: npt.NDArray[np.int64], out: Bytes, lengths: Ints) -> None:
    """Write the open blocks of the sequences ``which``, one behind the other, and fill in the bytes of each."""
    at = address(out)
    for i in range(len(which)):
        lengths[i] = write_block(sequences[which[i]], at)
        at += lengths[i]


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


@inlined
def _ring_size(sequence: Ints) -> int:
    """How many recent frames the ring of a sequence has place for."""
    return int((len(sequence) - RECENT_IDS) // 2)


@compiled
def _is_at(place: int, frame: int, nbytes: int, sequence: Ints) -> bool:
    """Whether the recent frame at ``place`` is equal in every byte."""
    return bool(first_difference(frame, sequence[RECENT] + place * nbytes, 0, nbytes) == nbytes)


@compiled
def _find(frame: int, nbytes: int, sequence: Ints, is_first: bool) -> tuple[int, int]:
    """The place in the ring of a recent frame that is equal in every byte, or -1 and the fingerprint.

    Nearly always an observation begins where the last one did, or one frame later, and goes on from there.
    """
    n, n_ring = sequence[N_RECENT], _ring_size(sequence)
    likely = sequence[BEGIN] if is_first else (sequence[MATCHED] + 1) % n_ring
    for place in (likely, (likely + 1) % n_ring):
        if place < n and (is_first or place == likely) and _is_at(place, frame, nbytes, sequence):
            return place, 0
    fingerprint = _fingerprint(frame, nbytes)
    for place in range(n):
        if sequence[RECENT_IDS + n_ring + place] == fingerprint and _is_at(place, frame, nbytes, sequence):
            return place, fingerprint
    return -1, fingerprint


@compiled
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


@compiled
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


@compiled
def _add_new(
    sequence: Ints, frame: int, nbytes: int, fingerprint: int, block_frames: int, before: int, tables: Tables
) -> int:
    """Give the frame that was encoded last an id, and a place in the ring, instead of the oldest frame; the place.

    ``frame`` is its address, and ``before`` the id of the frame before it in its observation, 0 for none.
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


@compiled
def _give_id(sequence: Ints, place: int, begins: bool, counts: Table) -> int:
    """Count a reference to the recent frame at ``place``; its id. ``begins``: an observation begins with it."""
    sequence[MATCHED] = place
    if begins:
        sequence[BEGIN] = place
    frame_id = sequence[RECENT_IDS + place]
    counts[frame_id] += 2
    return int(frame_id)
