"""FrameTables: the tables of frames and blocks that a FrameLog and its kernels share."""

from typing import Self

import numpy as np

from obscodec.errors import CorruptStream
from obscodec.frames.kernels.counts import BLOCKS, FREE, N_FREE, N_USED, Table, Tables
from obscodec.layout import same_values
from obscodec.runtime import new_table
from obscodec.segments import Ints
from obscodec.state import check_range


class FrameTables:
    """Tables of ``n_blocks`` blocks of ``block_frames`` frames; see ``kernels.counts``. An unused row takes no memory.

    Attributes:
        counts: ``i32[n_blocks * block_frames]``, how often each frame is referred to, by id.
        previous: ``i32[n_blocks * block_frames]``, the frame before it in the observation that it first came with,
            or in its sequence if observations are single frames.
        live: ``i32[n_blocks]``, how many frames of each block are counted.
        versions: ``i32[n_blocks]``, the version of each full block, 0 if it is not compressed further.
        dead: ``i32[2 * n_blocks]``, numbers of blocks to look at.
        tallies: ``i64[3]``, how many numbers of blocks are used, free and dead.
        arrays: all tables, as kernels take them.
    """

    counts: Table
    previous: Table
    live: Table
    versions: Table

    def __init__(self, n_blocks: int, block_frames: int) -> None:
        frames, blocks = new_table((2, n_blocks * block_frames), np.int32), new_table((3, n_blocks), np.int32)
        self._set((frames, blocks, new_table((2 * n_blocks,), np.int32), np.zeros(3, np.int64)))

    def _set(self, arrays: Tables) -> None:
        self.arrays = arrays
        (self.counts, self.previous), (self.live, self.versions, _), self.dead, self.tallies = arrays

    @property
    def free(self) -> Table:
        """The numbers of blocks that are used next, the last one first."""
        return self.arrays[BLOCKS][FREE, : self.tallies[N_FREE]]

    def grown(self, n_blocks: int) -> Self:
        """A copy with room for ``n_blocks``, to use in place of this one: they have the same ``tallies``."""
        grown = type(self).__new__(type(self))
        frames, blocks, dead, tallies = self.arrays
        block_frames = frames.shape[1] // blocks.shape[1]
        tables = _grown(frames, n_blocks * block_frames), _grown(blocks, n_blocks), _grown(dead, 2 * n_blocks)
        grown._set((*tables, tallies))
        return grown

    def restore(self, references: Table, previous: Table, free: Table, recent: Ints, opened: Ints) -> None:
        """Fill these tables, which are empty; what follows from the arguments is counted anew.

        Args:
            references: ``i32[n]``, how many references each frame has, by id.
            previous: ``i32[n]``, the frame before it.
            free: the numbers of blocks that are used next, the last one first.
            recent: the ids of all recent frames.
            opened: the numbers of all open blocks.

        Raises:
            CorruptStream: no log has such tables.
        """
        n, block_frames = len(references), len(self.counts) // len(self.live)
        n_blocks = n // block_frames
        check_range("references", references, 0, (1 << 30) - 1)
        check_range("previous", previous, 0, max(n - 1, 0))
        check_range("recent", recent, 1, max(n - 1, 0))
        check_range("opened", opened, 1, n_blocks - 1)
        first, counts = int(self.tallies[N_USED]), 2 * references
        counts[recent] += 1
        of_blocks = np.count_nonzero(counts.reshape(n_blocks, block_frames), axis=1)
        of_blocks[opened] += 1
        if n_blocks < first or of_blocks[:first].any():
            raise CorruptStream(f"blocks have the numbers {first} and more, got {np.flatnonzero(of_blocks)[:1]}")
        if len(np.unique(recent)) < len(recent) or len(np.unique(opened)) < len(opened):
            raise CorruptStream("a frame is recent in two sequences, or a block is open in two")
        if not same_values(np.sort(free), first + np.flatnonzero(of_blocks[first:] == 0)):
            raise CorruptStream("the free blocks are not those without frames")
        self.counts[:n], self.previous[:n] = counts, previous
        unused = free.astype(np.int64)  # numpy may crash if it has no memory to cast
        self.live[:n_blocks] = of_blocks.astype(np.int32)
        self.live[unused], self.arrays[BLOCKS][FREE, : len(free)] = np.int32(-1), free
        self.tallies[:] = n_blocks, len(free), 0


def _grown(table: Table, n: int) -> Table:
    """A copy with room for ``n`` along the last axis."""
    grown = new_table((*table.shape[:-1], n), np.int32)
    grown[..., : table.shape[-1]] = table
    return grown
