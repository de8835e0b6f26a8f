"""Succession: a store that takes tensors in place of another one, which keeps those that it has."""

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, check_kind
from obscodec.errors import ShapeError
from obscodec.fixed import Fixed
from obscodec.frames import FrameLog, StepWriter
from obscodec.kernels import compiled
from obscodec.segments import Ints
from obscodec.state import State
from obscodec.stores.frame_store import FrameStore
from obscodec.stores.narrow.narrow_store import NarrowStore
from obscodec.stores.parted import PartedStore
from obscodec.stores.store import MAKE_ANOTHER, Store


class Succession(PartedStore):
    """Two stores of equal tensors: all new ones go to the second, the first one is closed and keeps its own.

    Args:
        after: the store of new tensors. It gives out no id below ``first_id``, but those from ``-1 - first_row`` down.
        before: the other one, which has none of these ids.
        first_id: see there.
        first_row: see there.

    Raises:
        ShapeError: the stores are for different tensors.
    """

    _NAMES = "after", "before"
    _WHERE = "ids since another codec was chosen", "ids from before another codec was chosen"
    after: Fixed[Store] = Fixed(MAKE_ANOTHER)
    before: Fixed[Store] = Fixed(MAKE_ANOTHER)
    first_id: Fixed[int] = Fixed(MAKE_ANOTHER)
    first_row: Fixed[int] = Fixed(MAKE_ANOTHER)

    def __init__(self, after: Store, before: Store, first_id: int, first_row: int) -> None:
        check_kind("after", after, Store, "a Store")
        check_kind("before", before, Store, "a Store")
        if after.layout != before.layout:
            raise ShapeError(f"a store of {after.layout} can't follow one of {before.layout}")
        self.after, self.before = after, before
        self.first_id, self.first_row = as_count("first_id", first_id), as_count("first_row", first_row, 0)
        self.layout, self.device = after.layout, after.device
        super().__init__()

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        self.after.take_in(tensors, which, sequences, ids)

    def step_writer(self, n: int) -> StepWriter | None:
        """See ``Store.step_writer``."""
        return self.after.step_writer(n)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        are_after = (ids >= self.first_id) | (ids < -self.first_row)
        if are_after.all():
            with self._among(0):
                self.after.read_into(ids, out)
            return
        for which, mine in enumerate((are_after, ~are_after)):
            if mine.any():
                with self._among(which):
                    out[mine] = self._parts[which].read(ids[mine])

    def _part(self, ids: Ints, first: Ints, second: Ints) -> None:
        _part_succession(ids, self.first_id, self.first_row, first, second)

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        return {**self._described(), "first_id": self.first_id, "first_row": self.first_row}

    def __repr__(self) -> str:
        return f"Succession({self.after!r}, {self.before!r})"


def n_stores(store: Store) -> int:
    """How many stores succeed each other."""
    return n_stores(store.before) + 1 if isinstance(store, Succession) else 1


def without_empty(store: Store) -> Store:
    """The stores that still have tensors, and the newest one."""
    if not isinstance(store, Succession):
        return store
    before = without_empty(store.before)
    if not before.stats().n_tensors:
        return store.after
    return store if before is store.before else Succession(store.after, before, store.first_id, store.first_row)


def logs_of(store: Store) -> list[FrameLog]:
    """The logs of a FrameStore, or of a NarrowStore, whose first one has the codes; those of new tensors."""
    if isinstance(store, Succession):
        return logs_of(store.after)
    parts = (store.codes, store.wide) if isinstance(store, NarrowStore) else (store,)
    return [part.log for part in parts if isinstance(part, FrameStore)]


@compiled
def _part_succession(ids: Ints, first_id: int, first_row: int, after: Ints, before: Ints) -> None:
    """Move ids ``i64[n]`` to ``after`` and ``before``, and leave zeros; see ``PartedStore``."""
    for i in range(len(ids)):
        if ids[i] >= first_id or ids[i] < -first_row:
            after[i] = ids[i]
        else:
            before[i] = ids[i]
        ids[i] = 0
