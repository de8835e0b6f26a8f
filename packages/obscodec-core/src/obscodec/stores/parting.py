"""Parting: gives ids back to several stores, whatever interrupts it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from obscodec.errors import SlotError
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints
from obscodec.stores.store import Store


class Parting:
    """Ids on their way back to several stores, which nobody else uses. Safe to use from several threads.

    Attributes:
        lock: held while ids are given back.
    """

    def __init__(self) -> None:
        self.lock = PicklableLock(LockOrder.CODES)
        self._parted: list[tuple[Store, str, Ints]] = []  # ids that a call is giving back

    def give_back(
        self,
        ids: Ints,
        stores: Sequence[tuple[Store, str]],
        part: Callable[[Ints, npt.NDArray[np.int64]], object],
    ) -> None:
        """See ``Store._give_back``.

        Args:
            ids: ``i64[n]``.
            stores: with how errors speak of their ids.
            part: moves ids to the row of their store in ``i64[n_stores, n]``, zeros, at the same place, and leaves
                zeros, in one step.
        """
        with self.lock:
            self.settle()
            try:
                parts = np.zeros((len(stores), len(ids)), np.int64)
                self._parted = [(*of, mine) for of, mine in zip(stores, parts, strict=True)]
                part(ids, parts)
            finally:
                self.settle()

    def settle(self) -> None:
        """Finish a call that was giving ids back."""
        with self.lock:
            try:
                for store, where, ids in self._parted:
                    with among(where):
                        store._give_back(ids)
            except SlotError:  # an id is of no tensor: nobody can give it back
                self._parted = []
                raise
            self._parted = []


@contextmanager
def among(where: str) -> Iterator[None]:
    """Say which ids an error is about."""
    try:
        yield
    except SlotError as error:
        raise SlotError(f"{where}: {error}") from error
