"""StackTable: the frames of each stack that does not follow from its newest frame."""

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream, HeapFull
from obscodec.frames.kernels.stacks import N_FREE_ROWS, N_ROWS, N_STACKS, STACK_TALLIES, StackTables
from obscodec.layout import same_values
from obscodec.runtime import doubled, new_table
from obscodec.segments import Ints
from obscodec.state import State, array_of, check_range, number_of

_MIN_ROWS = 1 << 8
_MOST_ROWS = 1 << 30  # the id of a stack fits into 32 bits, in a NarrowStore, too


class StackTable:
    """A table with the frames of a stack in each row. Not safe to use from several threads: its FrameLog locks.

    With a depth of 1, for single frames, nothing is ever listed. Kernels change ``tables``; see ``kernels.stacks``.
    Rows before ``first`` are of stacks of zeros, and nobody uses them.
    """

    def __init__(self, depth: int, first: int = 0) -> None:
        self.depth = depth
        self._first = first
        self.tables = _new_tables(_n_rows(first), depth, np.array([first, 0, 0]))

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
        used = self.frames[self._first :]
        return used.nbytes + used[:, 0].nbytes

    def reserve(self, n: int) -> None:
        """Make room to list ``n`` stacks more.

        Raises:
            HeapFull: so many can't be listed.
        """
        frames, free, changed, tallies = self.tables
        n = max(0, n - int(tallies[N_FREE_ROWS]))
        if tallies[N_ROWS] + n > _MOST_ROWS:
            raise HeapFull(f"{tallies[N_ROWS]} stacks do not follow from frames, at most {_MOST_ROWS} can be listed")
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

    def state(self) -> State:
        """The stacks: see ``obscodec.state``."""
        _, free, _, tallies = self.tables
        free = free[: tallies[N_FREE_ROWS]].copy()
        return {"frames": self.frames.copy(), "free": free, "n_stacks": self.n_stacks}

    def count(self, n_stacks: int) -> None:
        """Take over how many references were given out: all there is to restore of stacks of depth 1."""
        self.tables[STACK_TALLIES][N_STACKS] = n_stacks

    def restore(self, state: State, n_ids: int) -> None:
        """Fill this table, which is empty; ``n_ids`` is more than the id of any frame.

        Raises:
            CorruptStream: no table has such a state.
        """
        frames = array_of(state, "frames", np.int32, (None, self.depth))
        free, unused = array_of(state, "free", np.int32, (None,)), np.flatnonzero(frames[:, 0] == -1)
        if not same_values(np.sort(free), unused):
            raise CorruptStream("the free rows of listed stacks are not those without a stack")
        check_range("frames", np.delete(frames, unused, axis=0), 0, n_ids - 1)
        if len(frames) < self._first or frames[: self._first].any():
            raise CorruptStream(f"the first listed stack has the row {self._first}, got others before it")
        tallies = np.array([len(frames), len(unused), number_of(state, "n_stacks")])
        self.tables = _new_tables(_n_rows(len(frames)), self.depth, tallies)
        self.tables[0][: len(frames)], self.tables[1][: len(free)] = frames, free


def _n_rows(n: int) -> int:
    """For how many rows there is room if ``n`` are used."""
    return max(_MIN_ROWS, 1 << (n - 1).bit_length()) if n else _MIN_ROWS


def _new_tables(n_rows: int, depth: int, tallies: Ints) -> StackTables:
    rows = (n_rows,)
    return new_table((n_rows, depth), np.int32), new_table(rows, np.int32), new_table(rows, np.bool_), tallies
