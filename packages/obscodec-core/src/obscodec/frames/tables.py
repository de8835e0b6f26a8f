"""FrameTables: what a FrameLog knows of each frame and block."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream
from obscodec.frames.kernels.counts import N_USED, Tables
from obscodec.runtime import doubled, new_table
from obscodec.segments import Ints


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
        free: ``i32[n_blocks]``, numbers to be used again.
        dead: ``i32[2 * n_blocks]``, numbers of blocks to look at.
        tallies: ``i64[3]``, how many there are.
        arrays: all of them, as kernels take them.
    """

    arrays: Tables

    def __init__(self, n_blocks: int, block_frames: int) -> None:
        of_frames, of_blocks = (n_blocks * block_frames,), (n_blocks,)
        shapes = of_frames, of_frames, of_blocks, of_blocks, of_blocks, (2 * n_blocks,)
        counts, previous, live, versions, free, dead = (new_table(shape, np.int32) for shape in shapes)
        self._set((counts, previous, live, versions, free, dead, np.zeros(3, np.int64)))

    def _set(self, arrays: Tables) -> None:
        self.arrays = arrays
        self.counts, self.previous, self.live, self.versions, self.free, self.dead, self.tallies = arrays

    @property
    def n_used(self) -> int:
        """How many numbers of blocks were ever used; 0 is the block of the frame of zeros."""
        return int(self.tallies[N_USED])

    def use(self, n: int) -> None:
        """Have the first ``n`` numbers of blocks be used, by nobody."""
        self.tallies[N_USED] = n

    def grown(self) -> FrameTables:
        """The same with room for twice as many blocks; this one is not to be used any more."""
        grown = FrameTables.__new__(FrameTables)
        counts, previous, live, versions, free, dead = (doubled(table) for table in self.arrays[:-1])
        grown._set((counts, previous, live, versions, free, dead, self.tallies))
        return grown

    def __getstate__(self) -> dict[str, object]:
        """Without the zeros around what is used: of a store with few frames they would be most of a pickle."""
        parts = []
        for table in self.arrays[:-1]:
            used = np.trim_zeros(table, "f")
            parts.append((len(table), len(table) - len(used), np.trim_zeros(used, "b")))
        return {"tallies": self.tallies.copy(), "parts": parts}

    def __setstate__(self, state: dict[str, object]) -> None:
        tables = []
        for n, begin, used in cast("list[tuple[int, int, npt.NDArray[np.int32]]]", state["parts"]):
            tables.append(new_table((n,), np.int32))
            tables[-1][begin : begin + len(used)] = used
        counts, previous, live, versions, free, dead = tables
        if previous.min() < 0 or previous.max() >= len(previous):  # kernels go from frame to frame by it
            raise CorruptStream(
                f"frames follow those of ids 0..{len(previous) - 1}, got {previous.min()}..{previous.max()}"
            )
        self._set((counts, previous, live, versions, free, dead, cast("Ints", state["tallies"])))
