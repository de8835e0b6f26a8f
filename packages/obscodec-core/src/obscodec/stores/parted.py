"""PartedStore: the base class of stores that keep their tensors in two others."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace

import numpy as np

from obscodec.errors import SlotError
from obscodec.runtime import LockOrder, PicklableLock
from obscodec.segments import Ints
from obscodec.state import State, part_of
from obscodec.stats import StoreStats
from obscodec.stores.store import Store


class PartedStore(Store):
    """Tensors in two stores, which nobody else uses; an id tells in which one.

    Safe to use from several threads if both stores are. A subclass has them as two attributes, which are also the names
    of two arguments, and says how errors speak of their ids.
    """

    _NAMES: tuple[str, str]
    _WHERE: tuple[str, str]

    def __init__(self) -> None:
        self._parting = PicklableLock(LockOrder.CODES)
        self._parted: tuple[Ints, Ints] | None = None  # ids in both stores that a call is giving back
        self._give_back(np.empty(0, np.int64))  # loads kernels, for which a failed allocation may leave no memory

    @property
    def _parts(self) -> tuple[Store, Store]:
        first, second = self._NAMES
        return getattr(self, first), getattr(self, second)

    @abstractmethod
    def _part(self, ids: Ints, first: Ints, second: Ints) -> None:
        """Move ids to ``first`` and ``second``, as ids of the two stores, and leave zeros; in one step.

        All are ``i64[n]``, the others of zeros; each id is put at the place that it had in ``ids``.
        """

    def _give_back(self, ids: Ints) -> None:
        with self._parting:
            self._settle()
            try:
                self._parted = first, second = np.zeros_like(ids), np.zeros_like(ids)
                self._part(ids, first, second)
            finally:
                self._settle()

    def _settle(self) -> None:
        """Finish a call that was giving ids back."""
        if self._parted is not None:
            try:
                for which, ids in enumerate(self._parted):
                    with self._among(which):
                        self._parts[which]._give_back(ids)
            except SlotError:  # an id is of no tensor: nobody can give it back
                self._parted = None
                raise
            self._parted = None

    @contextmanager
    def _among(self, which: int) -> Iterator[None]:
        """Say which of the two stores an error is about."""
        try:
            yield
        except SlotError as error:
            raise SlotError(f"{self._WHERE[which]}: {error}") from error

    def _described(self) -> State:
        """The two stores, as arguments."""
        return {
            name: {"kind": type(of).__name__, "arguments": of.arguments()}
            for name, of in zip(self._NAMES, self._parts, strict=True)
        }

    def _state(self) -> State:
        with self._parting:
            self._settle()
            return {name: of.state() for name, of in zip(self._NAMES, self._parts, strict=True)}

    def _restore(self, state: State) -> None:
        for name, of in zip(self._NAMES, self._parts, strict=True):
            of.restore(part_of(state, name, dict))

    def _stats(self) -> StoreStats:
        """See ``Store.stats``; the codec is that of the first store."""
        first, second = (of.stats() for of in self._parts)
        added = [of.name for of in fields(first) if of.name.endswith(("n_tensors", "_bytes"))]
        sums = {name: getattr(first, name) + getattr(second, name) for name in added}
        return replace(first, **{**sums, "raw_bytes": sums["n_tensors"] * self.layout.nbytes})
