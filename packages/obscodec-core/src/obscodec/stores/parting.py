"""Parting: gives ids back to several stores, whatever interrupts it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import numpy as np

from obscodec.errors import SlotError
from obscodec.runtime import LockOrder, PicklableLock, assign
from obscodec.segments import Ints


class Refusing(Protocol):
    """A store that can say beforehand which ids it would not take back."""

    def refuse(self, ids: Ints) -> None:
        """Raise the ``SlotError`` of giving back ``ids``, if there is one to raise; nothing is done."""

    def _give_back(self, ids: Ints) -> None: ...


class Parting:
    """Ids on their way back to several stores, which nobody else uses. Safe to use from several threads."""

    def __init__(self) -> None:
        self.lock = PicklableLock(LockOrder.CODES)  # held while ids are given back
        self._parted: list[tuple[Refusing, str, Ints]] = []  # ids that a call is giving back

    def give_back(self, ids: Ints, stores: Sequence[tuple[Refusing, str]], numbers: Ints, inner: Ints) -> None:
        """See ``Store._give_back``. ``stores`` come with how errors speak of their ids.

        ``numbers`` and ``inner``, ``i64[n]``, are the number of the store of each id, and its id there.
        """
        with self.lock:
            self.settle()
            if len(ids) and (numbers != numbers[0]).any():
                refuse(stores, numbers, inner)  # before any store gives back some of them
            try:
                parts = np.zeros((len(stores), len(ids)), np.int64)
                self._parted = [(*of, mine) for of, mine in zip(stores, parts, strict=True)]
                rows = np.where(numbers == np.arange(len(stores))[:, None], inner, 0)
                assign((parts, ..., rows), (ids, ..., np.zeros_like(ids)))
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


def refuse(stores: Sequence[tuple[Refusing, str]], numbers: Ints, inner: Ints) -> None:
    """Raise the ``SlotError`` of giving ids back to several stores, if there is one to raise; nothing is done."""
    for k, (store, where) in enumerate(stores):
        with among(where):
            store.refuse(inner[numbers == k])


@contextmanager
def among(where: str) -> Iterator[None]:
    """Say which ids an error is about."""
    try:
        yield
    except SlotError as error:
        raise SlotError(f"{where}: {error}") from error
