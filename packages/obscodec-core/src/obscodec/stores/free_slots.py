"""FreeSlots: which slots of a store nobody has."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from obscodec.errors import SlotError
from obscodec.segments import Ints


class FreeSlots:
    """Finds slots among ``1..n_slots`` that hold nothing. Not safe to use from several threads: its store locks.

    It only remembers where to look. Which slots are free is for the store to say, so that nothing can be lost here.

    Args:
        n_slots: how many there are.
        holds: tells of slots ``i64[n]`` which hold something, ``bool[n]``.

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
        self._fresh = 1  # from here on, slots were never found
        self._given = np.zeros(n_slots, np.int64)  # a stack of slots that may be free
        self._n_given = 0

    def find(self, n: int) -> Ints:
        """``n`` free slots, those first that were given back last.

        Raises:
            SlotError: there are not so many.
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
        """Remember that slots hold nothing any more."""
        n = min(len(slots), self._n_slots - self._n_given)
        self._given[self._n_given : self._n_given + n] = slots[:n]
        self._n_given += n

    def _search(self, n: int) -> Ints:
        """Look at all slots: some were found for a call that did not use them."""
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
