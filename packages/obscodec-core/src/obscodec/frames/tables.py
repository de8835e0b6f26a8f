"""FrameTables: what a FrameLog knows of each frame and block."""

from __future__ import annotations

from typing import Any

import numpy as np

from obscodec.errors import CorruptStream
from obscodec.frames.kernels.counts import N_USED, PREVIOUS, Table, Tables
from obscodec.runtime import new_table


class FrameTables:
    """What is known of each frame and block. What was never used takes no memory.

    Kernels change it, each as a whole; see ``kernels.counts``.

    Args:
        n_blocks: how many blocks there is room for.
        block_frames: how many frames a block has.

    Attributes:
        counts: ``i32[n_blocks * block_frames]``, references to each frame, by id.
        previous: likewise, the frame before it in the observation that it came with first.
        live: ``i32[n_blocks]``, frames that are counted.
        versions: ``i32[n_blocks]``, the version of a full block, 0 if it is not compressed further.
        dead: ``i32[2 * n_blocks]``, numbers of blocks to look at.
        tallies: ``i64[3]``, how many there are.
        arrays: all of them, as kernels take them.
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

    def use(self, n: int) -> None:
        """Have the first ``n`` numbers of blocks be used, by nobody."""
        self.tallies[N_USED] = n

    def grown(self) -> FrameTables:
        """The same with room for twice as many blocks; this one is not to be used any more."""
        grown = FrameTables.__new__(FrameTables)
        frames, blocks, dead, tallies = self.arrays
        grown._set((_doubled(frames), _doubled(blocks), _doubled(dead), tallies))
        return grown

    def __getstate__(self) -> dict[str, object]:
        """Without the zeros around what is used: of a store with few frames they would be most of a pickle."""
        tables = []
        for table in self.arrays[:-1]:
            used = np.flatnonzero(table.reshape(-1, table.shape[-1]).any(axis=0))
            begin, end = (int(used[0]), int(used[-1]) + 1) if len(used) else (0, 0)
            tables.append((table.shape, begin, table[..., begin:end]))
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


def _doubled(table: Table) -> Table:
    """The same with room for twice as many along the last axis."""
    doubled = new_table((*table.shape[:-1], 2 * table.shape[-1]), np.int32)
    doubled[..., : table.shape[-1]] = table
    return doubled
