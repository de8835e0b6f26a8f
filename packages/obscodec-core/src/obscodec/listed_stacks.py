"""ListedStacks: the stacks of frames that do not follow from their newest frame."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.chunk import doubled, new_table
from obscodec.frame_reader import ListedChanges
from obscodec.segments import Ints

_MIN_ROWS = 1 << 8


class ListedStacks:
    """A table with the frames of each stack in a row. Not safe to use from several threads.

    Args:
        depth: how many frames a stack has.
    """

    def __init__(self, depth: int) -> None:
        self._frames = new_table((_MIN_ROWS, depth), np.int32)  # a row that is free begins with -1
        self._n_rows = 0  # no row from here on was ever used
        self._free = new_table((_MIN_ROWS,), np.int32)
        self._n_free = 0
        self._changed: set[int] | None = None  # rows; None while nobody asks

    @property
    def frames(self) -> npt.NDArray[np.int32]:
        """``i32[n_rows, depth]``, the frames of each stack; -1 at the beginning of a row that is free."""
        return self._frames[: self._n_rows]

    @property
    def nbytes(self) -> int:
        """Bytes of the rows that were ever used."""
        return self.frames.nbytes + self._free[: self._n_rows].nbytes

    def add(self, frames: npt.NDArray[np.int64]) -> Ints:
        """List stacks, ``i64[n, depth]``; returns their rows, ``i64[n]``."""
        n_again = min(len(frames), self._n_free)
        n_new = len(frames) - n_again
        while self._n_rows + n_new > len(self._frames):
            self._frames, self._free = doubled(self._frames), doubled(self._free)
        again = self._free[self._n_free - n_again : self._n_free]
        rows = np.concatenate([again, np.arange(self._n_rows, self._n_rows + n_new)])
        self._n_free -= n_again
        self._n_rows += n_new
        self._frames[rows] = frames
        if self._changed is not None:
            self._changed.update(rows.tolist())
        return rows

    def drop(self, rows: Ints) -> None:
        """Free rows."""
        self._frames[rows] = -1
        self._free[self._n_free : self._n_free + len(rows)] = rows
        self._n_free += len(rows)
        if self._changed is not None:
            self._changed.update(rows.tolist())

    @property
    def has_changed(self) -> bool:
        """Whether :meth:`changes` would give any."""
        return self._changed is None or bool(self._changed)

    def changes(self) -> ListedChanges:
        """What has changed since the last call; all at the first one, and after :meth:`forget`."""
        changed = range(self._n_rows) if self._changed is None else sorted(self._changed)
        rows = np.array(changed, np.int64)
        self._changed = set()
        return ListedChanges(len(self._frames), rows, self._frames[rows])

    def forget(self) -> None:
        """Have :meth:`changes` give all next time, and note nothing until then."""
        self._changed = None

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_frames": self.frames, "_free": self._free[: self._n_free], "_changed": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        frames, free = self._frames, self._free
        n_rows = max(_MIN_ROWS, 1 << (self._n_rows - 1).bit_length())
        self._frames = new_table((n_rows, frames.shape[1]), np.int32)
        self._free = new_table((n_rows,), np.int32)
        self._frames[: len(frames)], self._free[: len(free)] = frames, free
