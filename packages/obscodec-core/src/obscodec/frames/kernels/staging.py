"""What has changed in the blocks of a log, put together for a copy of it elsewhere, such as on a device."""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.counts import Table
from obscodec.frames.kernels.sequences import BLOCK, N_BEGUN, PLACE, block_bound, write_block
from obscodec.kernels import address, compiled, copy, inlined, store_u64, unsigned
from obscodec.segments import Bytes, Ints

ENTRY_NBYTES: Final = 16  # of a row of a table of blocks: the address of a stream, and its bytes, u64 both

# The columns of what a copy knows of the open block of each sequence.
ROOM: Final = 3  # behind the block, its frames and how many blocks were begun: the address of the room for it there,
ROOM_NBYTES: Final = 4  # the bytes of that,
NEEDED: Final = 5  # and the bytes that it needs, if these are too few


@compiled
def stage_blocks(
    sequences: Ints,
    known: Ints,
    numbers: Ints,
    entries: npt.NDArray[np.uint32],
    bases: Ints,
    previous: Table,
    tables: Ints,
    pieces: Ints,
    staged: Bytes,
) -> tuple[int, int, bool]:
    """Put together the rows of the tables of a copy that must change, and the open blocks that have changed.

    ``known``, ``i64[n_sequences, 6]``, is what the copy knows of the open block of each of the ``sequences``, changed.
    ``numbers``, ``i64[n]``, rising, are the blocks whose rows may have changed, besides those of changed open blocks.
    ``entries`` are as in ``find_frames``; ``bases``, ``i64[n_chunks]``, say where the copy of each chunk begins,
    ``tables``, ``i64[2]``, where those of the tables of blocks and of ``previous``, ``i32[n_blocks, block_frames]``.
    ``pieces``, ``i64[most, 2]``, is filled with where the bytes of each piece go, and how many these are, ``staged``
    with the bytes. Returns how many pieces there are, how many bytes, and whether all is there. If not, the pieces or
    bytes are more than fit, or rooms are too small: call it again with more.
    """
    n = size = 0
    fits = True
    for i in range(len(sequences)):
        sequence, block = sequences[i], sequences[i, BLOCK]
        is_known = known[i, 0] == block and known[i, 1] == sequence[PLACE] and known[i, 2] == sequence[N_BEGUN]
        if block == 0 or entries[block, 0] or (is_known and not _is_in(block, numbers)):  # or it is stored already
            continue
        most = block_bound(sequence)
        known[i, NEEDED] = most
        if most > known[i, ROOM_NBYTES]:
            fits = False
            continue
        nbytes = 0
        if n < len(pieces) and size + most <= len(staged):
            nbytes = write_block(sequence, address(staged) + size)
            pieces[n, 0], pieces[n, 1] = known[i, ROOM], nbytes
            size -= most - nbytes
        n, size = n + 1, size + most
        n, size = _stage_rows(block, known[i, ROOM], nbytes, previous, tables, n, size, pieces, staged)
    for number in numbers:
        chunk = entries[number, 0]
        if number and (chunk or not _is_in(number, sequences[:, BLOCK])):
            begin, nbytes = bases[chunk] + entries[number, 1], entries[number, 2]
            n, size = _stage_rows(number, begin, nbytes, previous, tables, n, size, pieces, staged)
    fits &= n <= len(pieces) and size <= len(staged)
    if fits:
        for i in range(len(sequences)):
            known[i, 0], known[i, 1], known[i, 2] = sequences[i, BLOCK], sequences[i, PLACE], sequences[i, N_BEGUN]
    return n, size, fits


@inlined
def _is_in(number: int, numbers: Ints) -> bool:
    """Whether a number is one of some."""
    return bool((numbers == number).any())


@compiled
def _stage_rows(
    block: int, begin: int, nbytes: int, previous: Table, tables: Ints, n: int, size: int, pieces: Ints, staged: Bytes
) -> tuple[int, int]:
    """Add the rows of a block, as far as they fit; how many pieces there are then, and bytes."""
    row_nbytes = previous.shape[1] * previous.itemsize
    if n + 2 <= len(pieces) and size + ENTRY_NBYTES + row_nbytes <= len(staged):
        at = address(staged) + size
        store_u64(at, unsigned(begin))
        store_u64(at + 8, unsigned(nbytes))
        copy(at + ENTRY_NBYTES, address(previous) + block * row_nbytes, row_nbytes)
        pieces[n, 0], pieces[n, 1] = tables[0] + block * ENTRY_NBYTES, ENTRY_NBYTES
        pieces[n + 1, 0], pieces[n + 1, 1] = tables[1] + block * row_nbytes, row_nbytes
    return n + 2, size + ENTRY_NBYTES + row_nbytes
