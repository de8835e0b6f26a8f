"""Seams: where episodes end though no field says so, and which steps are not drawn."""

from typing import NamedTuple, Self

import numpy as np

from obscodec.buffers.drawing.counts import Counts, of_envs
from obscodec.segments import Bools, Ints
from obscodec.state import State, array_of, check_range

_NONE = np.empty(0, np.int64)


class Seams(NamedTuple):
    """What no field says of the episodes of a ring, by the indices of steps, rising. A change makes another object.

    Episodes end with the steps ``ends``, ``i64[n]``. The steps ``gone`` are not drawn: they were taken out, or are
    there for stacks alone. Stacks reach into them, up to one of ``ends``.
    """

    ends: Ints = _NONE
    gone: Ints = _NONE

    def without(self, indices: Ints) -> Self:
        """The same, and the last steps of an environment that were taken out, rising: nothing reaches into them."""
        return self._replace(gone=np.union1d(self.gone, indices), ends=np.union1d(self.ends, indices[-1:]))

    def since(self, first: Counts, n_envs: int) -> Self:
        """The same of the steps from the ``first`` of each environment on."""
        ends, gone = (of[of // n_envs >= of_envs(first, of % n_envs)] for of in self)
        return self._replace(ends=ends, gone=gone)

    def are_ends(self, indices: Ints) -> Bools:
        """``bool[...]``: whether an episode ends with a step ``i64[...]``."""
        return _are_among(indices, self.ends)

    def are_gone(self, indices: Ints) -> Bools:
        """``bool[...]``: whether a step ``i64[...]`` is not drawn."""
        return _are_among(indices, self.gone)

    def state(self) -> State:
        """See ``obscodec.state``."""
        return {"ends": self.ends, "gone": self.gone}

    @classmethod
    def from_state(cls, state: State, n_indices: int) -> Self:
        """Those of a ring to which steps with ``n_indices`` indices were appended."""
        arrays = [array_of(state, name, np.int64, (None,)) for name in cls._fields]
        for name, array in zip(cls._fields, arrays, strict=True):
            check_range(name, array, 0, n_indices - 1)
            check_range(f"a step of {name}", np.diff(array), 1, n_indices)
        return cls(*arrays)


def _are_among(numbers: Ints, rising: Ints) -> Bools:
    if not len(rising):
        return np.zeros(numbers.shape, np.bool_)
    at = np.minimum(np.searchsorted(rising, numbers), len(rising) - 1)
    return np.asarray(rising[at] == numbers)
