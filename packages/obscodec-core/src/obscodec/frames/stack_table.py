"""StackTable: the frames of each stack that does not follow from its newest frame."""

from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.frames.kernels.stacks import N_FREE_ROWS, N_ROWS, N_STACKS, STACK_TALLIES, StackTables
from obscodec.runtime import doubled, new_table
from obscodec.segments import Ints

_MIN_ROWS = 1 << 8


class StackTable:
    """A table with the frames of a stack in each row. Not safe to use from several threads: its FrameLog locks.

    With a depth of 1, for single frames, nothing is ever listed. Kernels change ``tables``; see ``kernels.stacks``.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tables = _new_tables(_MIN_ROWS, depth, np.zeros(3, np.int64))

    @property
    def frames(self) -> npt.NDArray[np.int32]:
        """``i32[n_rows, depth]``, the frames of each stack; the first is -1 in a free row."""
        frames, *_, tallies = self.tables
        return frames[: tallies[N_ROWS]]

    @property
    def n_stacks(self) -> int:
        """How many references to stacks were given out, listed or not; the stack of zeros is not counted."""
        return int(self.tables[STACK_TALLIES][N_STACKS])

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that were ever used."""
        return self.frames.nbytes + self.frames[:, 0].nbytes

    def reserve(self, n: int) -> None:
        """Make room to list ``n`` stacks more."""
        frames, free, changed, tallies = self.tables
        while tallies[N_ROWS] + n > len(frames):
            frames, free, changed = doubled(frames), doubled(free), doubled(changed)
            self.tables = frames, free, changed, tallies

    def note_all(self) -> None:
        """Count all rows as changed."""
        _, _, changed, tallies = self.tables
        changed[: tallies[N_ROWS]] = True

    def changed(self) -> Ints:
        """The rows, rising, that changed since the last call."""
        _, _, changed, tallies = self.tables
        (rows,) = changed[: tallies[N_ROWS]].nonzero()
        changed[rows] = False
        return rows

    def __getstate__(self) -> dict[str, object]:
        """Copies of what is used."""
        _, free, _, tallies = self.tables
        frames, free = self.frames.copy(), free[: tallies[N_FREE_ROWS]].copy()
        return {"depth": self.depth, "tallies": tallies.copy(), "frames": frames, "free": free}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.depth = state["depth"]
        frames, free = state["frames"], state["free"]
        n_rows = max(_MIN_ROWS, 1 << (len(frames) - 1).bit_length())
        self.tables = _new_tables(n_rows, self.depth, state["tallies"])
        self.tables[0][: len(frames)], self.tables[1][: len(free)] = frames, free


def _new_tables(n_rows: int, depth: int, tallies: Ints) -> StackTables:
    rows = (n_rows,)
    return new_table((n_rows, depth), np.int32), new_table(rows, np.int32), new_table(rows, np.bool_), tallies
