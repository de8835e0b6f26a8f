"""Reading frames out of blocks of ``delta-rle``: each block is walked once, up to its last wanted frame."""

from typing import Final

import numpy as np

from obscodec.kernels import (
    LINE_NBYTES,
    address,
    compiled,
    copy,
    copy_line_past_caches,
    fence,
    fill_zeros,
    inlined,
    prefetch,
)
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints
from obscodec.statuses import FEW_FRAMES, LARGE, LEFT_OVER, NO_SUCH_REFERENCE, NO_SUCH_SECTION, OK, OTHER_VERSION
from obscodec.streams.lz4 import decode_lz4
from obscodec.streams.patch import apply_patch
from obscodec.streams.varints import read_varint

NO_PATCHES: Final = 0x7F  # in place of a reference, before frames that are kept as they are
NO_VERSIONS: Final = np.empty((0, 3), np.int64)  # for streams that are no stored blocks
_AHEAD: Final = 2048  # bytes of the next block to prefetch; the processor foresees the rest
_LARGE: Final = 1 << 22  # bytes of a batch that is larger than the caches, and written past them


@compiled
def read_blocks(
    starts: Ints,
    places: Ints,
    targets: Ints,
    rows: Rows,
    addresses: Ints,
    lengths: Ints,
    references: Rows,
    block_frames: int,
    lz4_scratch: Ints,
    scratch: Bytes,
) -> int:
    """Decode the wanted frames of each block; returns a status.

    Entries ``starts[b]`` to ``starts[b + 1]``, of ``i64[n_blocks + 1]``, are the wanted frames of block ``b``: their
    places in it, rising, and the ``rows``, ``u8[m, nbytes]``, that they go to, ``i64[n]`` both, or ``i64[0]`` for all
    frames in order. Streams are at ``addresses``, 0 for a block of zeros, and have ``lengths`` bytes, ``i64[n_blocks]``
    both. Each must hold ``block_frames`` frames, and nothing else; -1 for any number. ``references`` are
    ``u8[n_references, nbytes]``, and ``scratch`` is a ``frame_scratch(nbytes)``, which no other call uses meanwhile.

    Unless ``lz4_scratch``, ``i64[n_versions, 3]``, is :data:`NO_VERSIONS`, each stream is a stored block, which begins
    with its version. If that is not 0, an LZ4 block follows, and this row says where to decode it: the address, the
    bytes of the dictionary before it, and of the scratch behind it; address 0 for no such version.
    """
    nbytes, base = rows.shape[1], address(rows)
    for b in range(len(addresses)):
        if b + 1 < len(addresses):
            _prefetch_stream(addresses[b + 1], lengths[b + 1])
        if addresses[b] == 0:
            for k in range(starts[b], starts[b + 1]):
                fill_zeros(base + (targets[k] if len(targets) else k) * nbytes, nbytes)
            continue
        at, end = addresses[b], addresses[b] + lengths[b]
        if len(lz4_scratch):
            at, end = _plain(at, end, lz4_scratch)
            if at < 0:
                return -at
        first, last = starts[b], starts[b + 1]
        status = _read_block(at, end, first, last, places, targets, rows, references, block_frames, address(scratch))
        if status != OK:
            return status
    fence()
    return OK


@inlined
def _read_block(
    at: int,
    end: int,
    first: int,
    last: int,
    places: Ints,
    targets: Ints,
    rows: Rows,
    references: Rows,
    block_frames: int,
    frame: int,
) -> int:
    """Decode the wanted frames ``first`` to ``last`` of the block of version 0 from ``at`` to ``end``."""
    nbytes, base = rows.shape[1], address(rows)
    runs, runs_end, literals, end, reference = sections(at, end)
    if runs < 0:
        return -runs
    if reference == NO_PATCHES:
        is_whole = block_frames < 0 or end - literals == block_frames * nbytes
        status = _copy_wanted(first, last, places, targets, base, nbytes, literals, end)
        return LEFT_OVER if status == OK and not is_whole else status
    if reference >= len(references):
        return NO_SUCH_REFERENCE
    copy(frame, address(references) + reference * nbytes, nbytes)
    done, past_caches = 0, rows.size >= _LARGE and nbytes >= LINE_NBYTES
    for k in range(first, last):
        place, target = (places[k], targets[k]) if len(places) else (k - first, k)
        while done <= place:
            runs, literals = apply_patch(frame, nbytes, runs, runs_end, literals, end)
            if runs < 0:
                return -runs
            done += 1
        _put(base + target * nbytes, frame, nbytes, past_caches)
    is_whole = block_frames < 0 or (done == block_frames and runs == runs_end and literals == end)
    return OK if is_whole else LEFT_OVER


@inlined
def _plain(at: int, end: int, lz4_scratch: Ints) -> tuple[int, int]:
    """Where the patches of a stored block begin and end, decoded if need be; minus a status first if it is bad."""
    version, at = read_varint(at, end)
    if at < 0 or version == 0:
        return at, end
    if version >= len(lz4_scratch) or lz4_scratch[version, 0] == 0:
        return -OTHER_VERSION, 0
    row = lz4_scratch[version]
    scratch, dictionary_nbytes, scratch_nbytes = row[0], row[1], row[2]
    nbytes, at = read_varint(at, end)
    if at < 0:
        return at, 0
    if nbytes > scratch_nbytes:
        return -LARGE, 0
    status = decode_lz4(at, end, scratch, nbytes, dictionary_nbytes)
    return (scratch, scratch + nbytes) if status == OK else (-status, 0)


@compiled
def _copy_wanted(first: int, last: int, places: Ints, targets: Ints, base: int, nbytes: int, at: int, end: int) -> int:
    """Copy the wanted frames ``first`` to ``last`` out of a block whose frames lie at ``at``; returns a status."""
    for k in range(first, last):
        place, target = (places[k], targets[k]) if len(places) else (k - first, k)
        if (place + 1) * nbytes > end - at:
            return FEW_FRAMES
        copy(base + target * nbytes, at + place * nbytes, nbytes)
    return OK


@compiled
def _put(target: int, frame: int, nbytes: int, past_caches: bool) -> None:
    """Copy a frame to its row."""
    if not past_caches:
        copy(target, frame, nbytes)
        return
    at = -target & LINE_NBYTES - 1
    copy(target, frame, at)
    while at + LINE_NBYTES <= nbytes:
        copy_line_past_caches(target + at, frame + at)
        at += LINE_NBYTES
    copy(target + at, frame + at, nbytes - at)


@inlined
def _prefetch_stream(stream: int, nbytes: int) -> None:
    """Have the processor load a stream while it works on another one."""
    for at in range(stream, stream + min(nbytes, _AHEAD), LINE_NBYTES):
        prefetch(at)


@compiled
def sections(at: int, end: int) -> tuple[int, int, int, int, int]:
    """Begin and end of the runs, begin and end of the literals, the reference; minus a status first if it is bad.

    If the reference is :data:`NO_PATCHES`, the frames are in the place of the literals, and there are no runs.
    """
    reference, at = read_varint(at, end)
    if at < 0:
        return at, 0, 0, 0, 0
    if reference == NO_PATCHES:
        return at, at, at, end, reference
    runs_nbytes, at = read_varint(at, end)
    if at < 0:
        return at, 0, 0, 0, 0
    if runs_nbytes > end - at:
        return -NO_SUCH_SECTION, 0, 0, 0, 0
    return at, at + runs_nbytes, at + runs_nbytes, end, reference


@compiled
def read_versions(addresses: Ints, lengths: Ints, versions: Ints, starts: Ints) -> int:
    """The version at the head of each stored block and the bytes of the head; 0 and 0 of an empty block."""
    for i in range(len(addresses)):
        versions[i] = starts[i] = 0
        if lengths[i]:
            versions[i], at = read_varint(addresses[i], addresses[i] + lengths[i])
            if at < 0:
                return -at
            starts[i] = at - addresses[i]
    return OK


@compiled
def copy_frames(starts: Ints, places: Ints, targets: Ints, rows: Rows, addresses: Ints, lengths: Ints) -> int:
    """:func:`read_blocks` for blocks that hold their frames as they are."""
    nbytes, base = rows.shape[1], address(rows)
    for b in range(len(addresses)):
        at, end = addresses[b], addresses[b] + lengths[b]
        if at == 0:
            for k in range(starts[b], starts[b + 1]):
                fill_zeros(base + targets[k] * nbytes, nbytes)
            continue
        status = _copy_wanted(starts[b], starts[b + 1], places, targets, base, nbytes, at, end)
        if status != OK:
            return status
    return OK
