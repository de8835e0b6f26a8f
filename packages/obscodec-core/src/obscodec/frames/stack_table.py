"""StackTable: the frames of each stack that does not follow from its newest frame."""

from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.devices import ListedChanges
from obscodec.frames.kernels.stacks import N_CHANGED, N_FREE_ROWS, N_ROWS, N_STACKS, STACK_TALLIES, StackTables
from obscodec.runtime import doubled, new_table
from obscodec.segments import Ints

_MIN_ROWS = 1 << 8


class StackTable:
    """A table with the frames of a stack in each row. Not safe to use from several threads: its FrameLog locks.

    With a depth of 1, for single frames, nothing is ever listed. Kernels change ``tables``; see ``kernels.stacks``.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tables = _new_tables(_MIN_ROWS, depth, np.zeros(4, np.int64))
        self._all_changed = True  # nobody has looked yet

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

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`changes` would return any row."""
        return self._all_changed or bool(self.tables[STACK_TALLIES][N_CHANGED])

    def changes(self) -> ListedChanges:
        """The rows that changed since the last call; all rows at the first call, and after :meth:`forget`."""
        frames, _, changed, tallies = self.tables
        n_rows = int(tallies[N_ROWS])
        rows = np.arange(n_rows) if self._all_changed else np.flatnonzero(changed[:n_rows])
        changes = ListedChanges(len(frames), rows, frames[rows])
        changed[rows] = False
        tallies[N_CHANGED] = 0
        self._all_changed = False
        return changes

    def forget(self) -> None:
        """Let the next call of :meth:`changes` return all rows."""
        self._all_changed = True

    def __getstate__(self) -> dict[str, object]:
        """Copies of what is used."""
        _, free, _, tallies = self.tables
        frames, free = self.frames.copy(), free[: tallies[N_FREE_ROWS]].copy()
        return {"depth": self.depth, "tallies": tallies.copy(), "frames": frames, "free": free}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.depth, self._all_changed = state["depth"], True
        frames, free = state["frames"], state["free"]
        n_rows = max(_MIN_ROWS, 1 << (len(frames) - 1).bit_length())
        self.tables = _new_tables(n_rows, self.depth, state["tallies"])
        self.tables[0][: len(frames)], self.tables[1][: len(free)] = frames, free


def _new_tables(n_rows: int, depth: int, tallies: Ints) -> StackTables:
    rows = (n_rows,)
    return new_table((n_rows, depth), np.int32), new_table(rows, np.int32), new_table(rows, np.bool_), tallies
