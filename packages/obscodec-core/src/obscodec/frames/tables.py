"""FrameTables: the tables of frames and blocks that a FrameLog and its kernels share."""

from typing import Any, Self

import numpy as np

from obscodec.errors import CorruptStream
from obscodec.frames.kernels.counts import PREVIOUS, Table, Tables
from obscodec.runtime import new_table


class FrameTables:
    """Tables of ``n_blocks`` blocks of ``block_frames`` frames; see ``kernels.counts``. An unused row takes no memory.

    Attributes:
        counts: ``i32[n_blocks * block_frames]``, how often each frame is referred to, by id.
        previous: ``i32[n_blocks * block_frames]``, the frame before it in the observation that it first came with.
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

    def grown(self, n_blocks: int) -> Self:
        """A copy with room for ``n_blocks``, to use in place of this one: they have the same ``tallies``."""
        grown = type(self).__new__(type(self))
        frames, blocks, dead, tallies = self.arrays
        block_frames = frames.shape[1] // blocks.shape[1]
        tables = _grown(frames, n_blocks * block_frames), _grown(blocks, n_blocks), _grown(dead, 2 * n_blocks)
        grown._set((*tables, tallies))
        return grown

    def __getstate__(self) -> dict[str, object]:
        """Copies without the zeros around what is used, which would be most of a pickle of a store with few frames."""
        tables = []
        for table in self.arrays[:-1]:
            used = np.flatnonzero(table.reshape(-1, table.shape[-1]).any(axis=0))
            begin, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
            tables.append((table.shape, begin, table[..., begin:end].copy()))
        return {"tallies": self.tallies.copy(), "tables": tables}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tables = []
        for shape, begin, used in state["tables"]:
            tables.append(new_table(shape, np.int32))
            tables[-1][..., begin : begin + used.shape[-1]] = used
        frames, blocks, dead = tables
        before, n = frames[PREVIOUS], frames.shape[1]
        if before.min() < 0 or before.max() >= n:  # kernels go from frame to frame by it
            raise CorruptStream(f"frames follow those of ids 0..{n - 1}, got {before.min()}..{before.max()}")
        self._set((frames, blocks, dead, state["tallies"]))


def _grown(table: Table, n: int) -> Table:
    """A copy with room for ``n`` along the last axis."""
    grown = new_table((*table.shape[:-1], n), np.int32)
    grown[..., : table.shape[-1]] = table
    return grown
