"""FreeSlots: finds empty slots of a store."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from obscodec.errors import SlotError
from obscodec.segments import Ints


class FreeSlots:
    """Finds slots among ``1..n_slots`` that hold nothing. Not safe to use from several threads: its store locks.

    It remembers where to look, and asks ``holds`` which slots are free. So a call that ends early loses no slot.

    Args:
        n_slots: how many slots there are.
        holds: returns for slots ``i64[n]`` which of them hold something, ``bool[n]``.

    Example:
        >>> held = np.zeros(4, bool)
        >>> free = FreeSlots(3, lambda slots: held[slots])
        >>> free.find(2)
        array([1, 2])
        >>> held[[1, 2]] = True
        >>> held[1] = False
        >>> free.given_back(np.array([1]))
        >>> free.find(2)
        array([1, 3])
    """

    def __init__(self, n_slots: int, holds: Callable[[Ints], npt.NDArray[np.bool_]]) -> None:
        self._n_slots = n_slots
        self._holds = holds
        self._fresh = 1  # the first slot that was never found
        self._given = np.zeros(n_slots, np.int64)  # slots that were given back, the last one on top
        self._n_given = 0

    def find(self, n: int) -> Ints:
        """``n`` free slots, first the slots that were given back last.

        Raises:
            SlotError: there are fewer.
        """
        begin = max(0, self._n_given - n)
        again = self._given[begin : self._n_given]
        fresh = np.arange(self._fresh, min(self._fresh + n - len(again), self._n_slots + 1))
        found = np.concatenate([again, fresh])
        if len(found) < n or self._holds(found).any() or len(np.unique(found)) < n:
            return self._search(n)
        self._n_given, self._fresh = begin, self._fresh + len(fresh)
        return found

    def given_back(self, slots: Ints) -> None:
        """Remember slots that were emptied."""
        n = min(len(slots), self._n_slots - self._n_given)
        self._given[self._n_given : self._n_given + n] = slots[:n]
        self._n_given += n

    def begin(self, held: Ints) -> None:
        """Begin with a store that holds something in these slots, rising."""
        self._fresh = int(held[-1]) + 1 if len(held) else 1
        self.given_back(np.setdiff1d(np.arange(1, self._fresh), held))

    def _search(self, n: int) -> Ints:
        """Look at all slots: a call may have found slots that it did not fill."""
        free = 1 + np.flatnonzero(~self._holds(np.arange(1, self._n_slots + 1)))
        if n > len(free):
            raise SlotError(
                f"{n} tensors need {n} free slots, there are {len(free)} of {self._n_slots}: "
                "release some, or make a larger store"
            )
        left = free[n:][::-1]
        self._given[: len(left)] = left
        self._n_given, self._fresh = len(left), self._n_slots + 1
        return free[:n]
