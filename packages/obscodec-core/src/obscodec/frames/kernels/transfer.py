"""Blocks of ``delta-rle`` that go from one store to another: checked, and made patches of the references there.

Both kernels return a status code.
"""

from typing import Final

import numpy as np

from obscodec.codecs.formats.delta_rle import (
    FEW_FRAMES,
    LEFT_OVER,
    NO_PATCHES,
    NO_SUCH_REFERENCE,
    OK,
    OTHER_VERSION,
    apply_patch,
    are_equal,
    check_patch,
    encode_first,
    sections,
    write_varint,
)
from obscodec.kernels import address, compiled, copy, load_u8, store_u8, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints

_NOT_LOOKED_FOR: Final = -2
_NOT_FOUND: Final = -1


@compiled
def count_frames(
    addresses: Ints, lengths: Ints, last: Ints, references: Rows, block_frames: int, n_frames: Ints
) -> int:
    """Count the frames of blocks of version 0. Walks all runs, and decodes nothing.

    Args:
        addresses: ``i64[n]``, where each block begins.
        lengths: ``i64[n]``, the bytes of each block.
        last: ``i64[n]``, a place where each block must have a frame.
        references: ``u8[n_references, nbytes]``, the reference frames of these blocks.
        block_frames: the most frames that a block may have.
        n_frames: ``i64[n]``, filled.
    """
    for b in range(len(addresses)):
        if lengths[b] and load_u8(addresses[b]) != 0:
            return OTHER_VERSION
        runs, runs_end, literals, end, reference = sections(addresses[b] + 1, addresses[b] + lengths[b])
        if runs < 0:
            return -runs
        if reference >= len(references) and reference != NO_PATCHES:
            return NO_SUCH_REFERENCE
        n = 0
        if reference == NO_PATCHES:
            n = (end - literals) // max(1, references.shape[1])
            literals += n * references.shape[1]
        while runs < runs_end:
            runs, literals = check_patch(references.shape[1], runs, runs_end, literals, end)
            if runs < 0:
                return -runs
            n += 1
        if n <= last[b]:
            return FEW_FRAMES
        if n > block_frames or literals != end:
            return LEFT_OVER
        n_frames[b] = n
    return OK


@compiled
def rebase_blocks(
    addresses: Ints,
    lengths: Ints,
    source: Rows,
    references: Rows,
    n_references: Ints,
    frame_room: Bytes,
    runs_room: Bytes,
    literals_room: Bytes,
    out: Bytes,
    out_lengths: Ints,
) -> int:
    """Write blocks of version 0 as patches of other reference frames.

    If the reference frame of a block is among the others, too, only its number changes. Otherwise the first patch is
    made anew, as if the first frame were appended there, and the other patches are copied. A block without patches is
    copied.

    Args:
        addresses: ``i64[n]``, where each block begins; :func:`count_frames` has found nothing wrong in it.
        lengths: ``i64[n]``, the bytes of each block.
        source: ``u8[n_source, nbytes]``, the reference frames of these blocks.
        references: ``u8[max_references, nbytes]``, the others, changed; see ``encode_first``.
        n_references: the first one is how many the others are, changed.
        frame_room: ``frame_room(nbytes)``; this and the other rooms are scratch memory of this call alone.
        runs_room: ``u8[runs_bound(nbytes)]``.
        literals_room: ``u8[nbytes]``.
        out: filled; has room for all blocks, and for each block a head and as much as the last two rooms have.
        out_lengths: ``i64[n]``, filled.
    """
    nbytes, base = references.shape[1], address(source)
    frame, first_runs, first_literals = address(frame_room), address(runs_room), address(literals_room)
    same = np.full(len(source), _NOT_LOOKED_FOR)
    at = address(out)
    for b in range(len(addresses)):
        begin = at
        runs, runs_end, literals, end, old = sections(addresses[b] + 1, addresses[b] + lengths[b])
        if old == NO_PATCHES:
            at = _put(at, addresses[b], lengths[b])
            out_lengths[b] = lengths[b]
            continue
        if same[old] == _NOT_LOOKED_FOR:
            same[old] = _find(base + old * nbytes, references, n_references[0])
        reference, runs_nbytes, n_literals = same[old], 0, 0
        if reference == _NOT_FOUND:
            copy(frame, base + old * nbytes, nbytes)
            runs, literals = apply_patch(frame, nbytes, runs, runs_end, literals, end)
            if runs < 0:
                return -runs
            reference, runs_nbytes, n_literals = encode_first(
                frame, references, n_references, first_runs, first_literals
            )
        store_u8(at, unsigned(0))
        at = write_varint(write_varint(at + 1, reference), runs_nbytes + runs_end - runs)
        at = _put(_put(at, first_runs, runs_nbytes), runs, runs_end - runs)
        at = _put(_put(at, first_literals, n_literals), literals, end - literals)
        out_lengths[b] = at - begin
    return OK


@compiled
def _find(frame: int, references: Rows, n_references: int) -> int:
    """The number of the reference that is equal in every byte, -1 for none."""
    nbytes = references.shape[1]
    for k in range(n_references):
        if are_equal(frame, address(references) + k * nbytes, nbytes):
            return k
    return _NOT_FOUND


@compiled
def _put(at: int, source: int, nbytes: int) -> int:
    """Copy bytes; the address behind the copy."""
    copy(at, source, nbytes)
    return at + nbytes
