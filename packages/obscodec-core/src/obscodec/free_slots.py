"""FreeSlots: which slots of a store nobody has."""

from __future__ import annotations

import numpy as np

from obscodec.errors import SlotError
from obscodec.picklable_lock import PicklableLock
from obscodec.segments import Ints


class FreeSlots:
    """The slots ``1..n_slots``, to be taken and given back. Safe to use from several threads.

    Args:
        n_slots: how many there are.

    Example:
        >>> free = FreeSlots(3)
        >>> free.take(2)
        array([1, 2])
        >>> free.give(np.array([1]))
        >>> free.take(2)
        array([1, 3])
    """

    def __init__(self, n_slots: int) -> None:
        self._n_slots = n_slots
        self._fresh = 1  # no slot from here on was ever taken
        self._given = np.zeros(n_slots, np.int64)  # a stack
        self._n_given = 0
        self._lock = PicklableLock()

    def take(self, n: int) -> Ints:
        """``n`` free slots, those first that were given back last.

        Raises:
            SlotError: there are not so many.
        """
        with self._lock:
            n_free = self._n_given + self._n_slots + 1 - self._fresh
            if n > n_free:
                raise SlotError(
                    f"{n} tensors need {n} free slots, there are {n_free} of {self._n_slots}: "
                    "release some, or make a larger store"
                )
            n_again = min(n, self._n_given)
            self._n_given -= n_again
            again = self._given[self._n_given : self._n_given + n_again]
            fresh = np.arange(self._fresh, self._fresh + n - n_again)
            self._fresh += n - n_again
            return np.concatenate([again, fresh])

    def give(self, slots: Ints) -> None:
        """Let slots be taken again."""
        with self._lock:
            self._given[self._n_given : self._n_given + len(slots)] = slots
            self._n_given += len(slots)
