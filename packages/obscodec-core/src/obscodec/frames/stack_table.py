"""StackTable: the stacks of frames that do not follow from their newest frame."""

from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.devices import ListedChanges
from obscodec.frames.kernels.stacks import N_CHANGED, N_FREE_ROWS, N_ROWS, N_STACKS, STACK_TALLIES, StackTables
from obscodec.runtime import doubled, new_table
from obscodec.segments import Ints

_MIN_ROWS = 1 << 8


class StackTable:
    """A table with the frames of each stack in a row. Not safe to use from several threads: its FrameLog locks.

    Kernels change it, each as a whole; see ``kernels.stacks``.

    Args:
        depth: how many frames a stack has; 1 for single frames, of which none is ever listed.

    Attributes:
        tables: what kernels change.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tables = _new_tables(_MIN_ROWS, depth, np.zeros(4, np.int64))
        self._all_changed = True  # as nobody has looked yet

    @property
    def frames(self) -> npt.NDArray[np.int32]:
        """``i32[n_rows, depth]``, the frames of each stack; -1 at the beginning of a row that is free."""
        frames, *_, tallies = self.tables
        return frames[: tallies[N_ROWS]]

    @property
    def n_stacks(self) -> int:
        """How many references to stacks there are, listed or not, without those to the stack of zeros."""
        return int(self.tables[STACK_TALLIES][N_STACKS])

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that were ever used."""
        return self.frames.nbytes + self.frames[:, 0].nbytes

    def reserve(self, n: int) -> None:
        """Have room to list ``n`` stacks more."""
        if self.depth == 1:
            return
        frames, free, changed, tallies = self.tables
        while tallies[N_ROWS] + n > len(frames):
            frames, free, changed = doubled(frames), doubled(free), doubled(changed)
            self.tables = frames, free, changed, tallies

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`changes` would give any."""
        return self._all_changed or bool(self.tables[STACK_TALLIES][N_CHANGED])

    def changes(self) -> ListedChanges:
        """What has changed since the last call; all at the first one, and after :meth:`forget`."""
        frames, _, changed, tallies = self.tables
        n_rows = int(tallies[N_ROWS])
        rows = np.arange(n_rows) if self._all_changed else np.flatnonzero(changed[:n_rows])
        changes = ListedChanges(len(frames), rows, frames[rows])
        changed[rows] = False
        tallies[N_CHANGED] = 0
        self._all_changed = False
        return changes

    def forget(self) -> None:
        """Have :meth:`changes` give all next time."""
        self._all_changed = True

    def __getstate__(self) -> dict[str, object]:
        _, free, _, tallies = self.tables
        return {
            "depth": self.depth,
            "tallies": tallies.copy(),
            "frames": self.frames,
            "free": free[: tallies[N_FREE_ROWS]],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.depth, self._all_changed = state["depth"], True
        frames, free = state["frames"], state["free"]
        n_rows = max(_MIN_ROWS, 1 << (len(frames) - 1).bit_length())
        self.tables = _new_tables(n_rows, self.depth, state["tallies"])
        self.tables[0][: len(frames)], self.tables[1][: len(free)] = frames, free


def _new_tables(n_rows: int, depth: int, tallies: Ints) -> StackTables:
    rows = (n_rows,)
    return new_table((n_rows, depth), np.int32), new_table(rows, np.int32), new_table(rows, np.bool_), tallies
