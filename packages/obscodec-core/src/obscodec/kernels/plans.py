"""Frames in the memory of a device: what to do with each, found from their fingerprints, and taking them in encoded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.frame_encoder import FrameKind, Patches
from obscodec.kernels.compiled import compiled
from obscodec.kernels.counts import Table, release_last
from obscodec.kernels.frame_streams import (
    BLOCK,
    LITERALS,
    LITERALS_NBYTES,
    N_RECENT,
    NEWEST,
    PLACE,
    RECENT_IDS,
    REFERENCE,
    RUNS,
    RUNS_NBYTES,
    add_new,
    give_id,
    needs_block,
    next_place,
    ring_size,
)
from obscodec.kernels.memory import address, copy
from obscodec.layout import Rows
from obscodec.segments import Ints

_ZEROS, _KNOWN, _PATCH, _FIRST = (int(kind) for kind in FrameKind)


@compiled
def plan_frames(
    marks: Ints,
    of_streams: Ints,
    streams: npt.NDArray[np.int64],
    block_frames: int,
    kinds: npt.NDArray[np.uint8],
    sources: Ints,
    recent: npt.NDArray[np.int64],
) -> None:
    """Find what :func:`append_encoded` will do with each frame of a batch.

    Frames are taken for equal if their marks are; whoever has the frames makes sure of that.

    Args:
        marks: ``i64[n]``, 0 for the frame of zeros, else a fingerprint of the frame that is not 0.
        of_streams: ``i64[n]``, the row in ``streams`` of each frame.
        streams: a copy of the table of frame streams, changed; with marks for fingerprints.
        block_frames: how many frames a block has.
        kinds: ``u8[n]``, filled, see ``FramePlan``.
        sources: ``i64[n]``, filled for kinds that have one, likewise.
        recent: ``i64[n_streams, n_recent]``, filled for each slot with the frame that is there at the end: its number
            in the batch, or ``-1 - slot`` if that is none of the batch.
    """
    n_ring = ring_size(streams)
    for k in range(len(streams)):
        for place in range(n_ring):
            recent[k, place] = -1 - (k * n_ring + place)
    for i in range(len(marks)):
        k = of_streams[i]
        stream = streams[k]
        if marks[i] == 0:
            kinds[i] = _ZEROS
            continue
        place = _find_mark(stream, n_ring, marks[i])
        if place >= 0:
            kinds[i], sources[i] = _KNOWN, recent[k, place]
            continue
        if needs_block(stream, block_frames):
            stream[BLOCK], stream[PLACE] = 1, 0
        if stream[PLACE] == 0:
            kinds[i] = _FIRST
        else:
            kinds[i], sources[i] = _PATCH, recent[k, stream[NEWEST]]
        stream[PLACE] += 1
        place = next_place(stream, n_ring)
        stream[N_RECENT] = min(stream[N_RECENT] + 1, n_ring)
        stream[NEWEST] = place
        stream[RECENT_IDS + n_ring + place] = marks[i]
        recent[k, place] = i


@compiled
def append_encoded(
    marks: Ints,
    patches: Patches,
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
    """Take frames in that were encoded elsewhere, from ``first`` on, until one needs a new block.

    Args:
        marks: see :func:`plan_frames`; the table of streams has marks for fingerprints too.
        patches: of the frames from ``first`` on, or from one before it.
        first: here and below as in ``kernels.frames.append_frames``.
        of_streams: it ends where to stop.
        streams: as there.
        block_frames: as there.
        stack: as there.
        references: as there.
        n_references: as there.
        counts: as there.
        live: as there.
        previous: as there.
        ids: as there.
        dead: as there.

    Returns:
        As there.
    """
    n_ring = ring_size(streams)
    n_dead = 0
    for i in range(first, len(of_streams)):
        if not 0 <= of_streams[i] < len(streams):
            return i, n_dead
        stream = streams[of_streams[i]]
        if marks[i] == 0:
            ids[i] = 0
            continue
        begins = i % stack == 0
        place = _find_mark(stream, n_ring, marks[i])
        if place < 0:
            if needs_block(stream, block_frames):
                return i, n_dead
            _add_patch(stream, patches, i - patches.begin, references, n_references)
            place = next_place(stream, n_ring)
            before = 0 if begins else ids[i - 1]
            n_dead = add_new(
                stream, place, n_ring, marks[i], block_frames, before, counts, live, previous, dead, n_dead
            )
        ids[i] = give_id(stream, place, begins, counts)
    return len(of_streams), n_dead


@compiled
def replace_encoded(
    old: Ints,
    marks: Ints,
    patches: Patches,
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
    """:func:`append_encoded`, and when all are taken in, the rest of ``kernels.frames.replace_frames``."""
    done, n_dead = append_encoded(
        marks,
        patches,
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
    refused = -1
    if done == len(of_streams):
        n_dead, refused = release_last(old, block_frames, counts, live, dead, n_dead)
    return done, n_dead, refused


@compiled
def _find_mark(stream: Ints, n_ring: int, mark: int) -> int:
    """The place in the ring of a recent frame with this mark, or -1."""
    for place in range(stream[N_RECENT]):
        if stream[RECENT_IDS + n_ring + place] == mark:
            return place
    return -1


@compiled
def _add_patch(stream: Ints, patches: Patches, k: int, references: Rows, n_references: Ints) -> None:
    """Add the frame ``k`` of those that are encoded to the open block; it may have joined the reference frames."""
    runs = address(patches.buffer) + patches.starts[k]
    copy(stream[RUNS] + stream[RUNS_NBYTES], runs, patches.runs_nbytes[k])
    copy(stream[LITERALS] + stream[LITERALS_NBYTES], runs + patches.runs_nbytes[k], patches.literals_nbytes[k])
    stream[RUNS_NBYTES] += patches.runs_nbytes[k]
    stream[LITERALS_NBYTES] += patches.literals_nbytes[k]
    if stream[PLACE] == 0:
        stream[REFERENCE] = patches.references[k]
        if patches.references[k] == n_references[0]:
            references[n_references[0]] = patches.joined[n_references[0] - patches.n_references]
            n_references[0] += 1
