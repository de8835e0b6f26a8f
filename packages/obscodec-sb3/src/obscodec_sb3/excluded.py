"""Transitions of single environments that are not sampled any more, and how SB3's own code samples the others."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from obscodec import SlotError
from obscodec.segments import Ints

from obscodec_sb3.base import each

Buffer = TypeVar("Buffer")


class Excluded(NamedTuple):
    """Which transitions are not sampled. A change makes another object; there is none for no transitions."""

    cells: Ints  # i64[n], rising: row * n_envs + env
    n_envs: int

    @classmethod
    def of(cls, cells: Ints, n_envs: int) -> Excluded | None:
        """Those in some cells, in any order."""
        return cls(np.unique(cells), n_envs) if len(cells) else None

    def without_row(self, row: int) -> Excluded | None:
        """Those of other rows."""
        begin, end = np.searchsorted(self.cells, (row * self.n_envs, (row + 1) * self.n_envs))
        if begin == end:
            return self
        return Excluded.of(np.delete(self.cells, slice(begin, end)), self.n_envs)

    def are_in(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """``bool[n, n_envs]``: which transitions of ``n`` rows are excluded."""
        return np.isin(rows[:, None] * self.n_envs + np.arange(self.n_envs), self.cells)

    def draw_others(self, batch_size: int, rows: range, buffer_size: int) -> tuple[Ints, Ints]:
        """Random rows and environments, ``i64[batch_size]`` each, of all others; SlotError if there are none.

        ``rows`` are those of the transitions, the oldest first; they go on at 0 behind row ``buffer_size - 1``.
        """
        of_rows, of_envs = np.divmod(self.cells, self.n_envs)
        begin = np.searchsorted(of_rows, rows.start % buffer_size)
        gone = np.roll((of_rows - rows.start) % buffer_size * self.n_envs + of_envs, -begin)  # counted from the oldest
        gone = gone[gone < len(rows) * self.n_envs]
        n_left = len(rows) * self.n_envs - len(gone)
        if not n_left:
            raise SlotError("no transition is left: add one before you sample")
        drawn = np.random.randint(n_left, size=batch_size)
        drawn += np.searchsorted(gone - np.arange(len(gone)), drawn, "right")
        steps, envs = np.divmod(drawn, self.n_envs)
        return (rows.start + steps) % buffer_size, envs


class _AtEnvs:
    """An array ``[buffer_size, n_envs, ...]``; an index of rows and environments finds others instead of these."""

    def __init__(self, array: Any, envs: Ints) -> None:
        self._array, self._envs = array, envs

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, tuple):
            rows, envs, *others = index
            index = (rows, self._envs.reshape(np.shape(envs)), *others)
        return self._array[index]

    def __setitem__(self, index: Any, value: npt.ArrayLike) -> None:
        self._array[index] = value  # of whole rows, by NStepReplayBuffer


def at_envs(buffer: Buffer, envs: Ints, names: tuple[str, ...]) -> Buffer:
    """A replay buffer with the arrays of some names, which reads transition ``k`` of a batch from ``envs[k]``.

    SB3 draws environments inside of ``_get_samples``; this one seems to have a single one, so that it draws zeros.
    """
    made = object.__new__(type(buffer))
    found = {name: each(lambda _, array: _AtEnvs(array, envs), vars(buffer)[name]) for name in names}
    vars(made).update(vars(buffer), n_envs=1, **found)
    return made
