"""StackTable: the stacks of frames that do not follow from their newest frame."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.devices import ListedChanges
from obscodec.frames.kernels.stacks import N_CHANGED, N_FREE_ROWS, N_ROWS, N_STACKS, StackTables
from obscodec.runtime import doubled, new_table

_MIN_ROWS = 1 << 8


class StackTable:
    """A table with the frames of each stack in a row. Not safe to use from several threads: its FrameLog locks.

    Kernels change it, each as a whole; see ``kernels.stacks``.

    Args:
        depth: how many frames a stack has; 1 for single frames, of which none is ever listed.

    Attributes:
        depth: that.
        tallies: ``i64[4]``, what is counted.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.tallies = np.zeros(4, np.int64)
        self._frames, self._free, self._changed = _new_tables(_MIN_ROWS, depth)
        self._all_changed = True  # as nobody has looked yet

    @property
    def frames(self) -> npt.NDArray[np.int32]:
        """``i32[n_rows, depth]``, the frames of each stack; -1 at the beginning of a row that is free."""
        return self._frames[: self.tallies[N_ROWS]]

    @property
    def n_stacks(self) -> int:
        """How many references to stacks there are, listed or not, without those to the stack of zeros."""
        return int(self.tallies[N_STACKS])

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that were ever used."""
        return self.frames.nbytes + self._free[: self.tallies[N_ROWS]].nbytes

    @property
    def tables(self) -> StackTables:
        """What kernels change."""
        return self._frames, self._free, self._changed, self.tallies

    def reserve(self, n: int) -> None:
        """Have room to list ``n`` stacks more."""
        if self.depth == 1:
            return
        while self.tallies[N_ROWS] + n > len(self._frames):
            frames, free, changed = doubled(self._frames), doubled(self._free), doubled(self._changed)
            self._frames, self._free, self._changed = frames, free, changed

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`changes` would give any."""
        return self._all_changed or bool(self.tallies[N_CHANGED])

    def changes(self) -> ListedChanges:
        """What has changed since the last call; all at the first one, and after :meth:`forget`."""
        n_rows = int(self.tallies[N_ROWS])
        rows = np.arange(n_rows) if self._all_changed else np.flatnonzero(self._changed[:n_rows])
        changes = ListedChanges(len(self._frames), rows, self._frames[rows])
        self._changed[rows] = False
        self.tallies[N_CHANGED] = 0
        self._all_changed = False
        return changes

    def forget(self) -> None:
        """Have :meth:`changes` give all next time."""
        self._all_changed = True

    def __getstate__(self) -> dict[str, object]:
        tables = {"_frames": self.frames, "_free": self._free[: self.tallies[N_FREE_ROWS]]}
        return {"depth": self.depth, "tallies": self.tallies.copy(), **tables}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _all_changed=True)
        frames, free = self._frames, self._free
        n_rows = max(_MIN_ROWS, 1 << (len(frames) - 1).bit_length())
        self._frames, self._free, self._changed = _new_tables(n_rows, self.depth)
        self._frames[: len(frames)], self._free[: len(free)] = frames, free


def _new_tables(n_rows: int, depth: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Frames, free rows, and which rows have changed."""
    rows = (n_rows,)
    return new_table((n_rows, depth), np.int32), new_table(rows, np.int32), new_table(rows, np.bool_)
