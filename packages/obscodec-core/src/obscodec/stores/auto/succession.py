"""Succession: stores that took tensors one after the other; the newest one takes them now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream
from obscodec.frames import FrameLog
from obscodec.layout import Layout
from obscodec.segments import Ints
from obscodec.state import State, number_of, part_of
from obscodec.stats import StoreStats
from obscodec.stores.auto.options import StoreOptions
from obscodec.stores.auto.plan import StoragePlan
from obscodec.stores.frame_store import FrameStore
from obscodec.stores.ids import FIRST_ID
from obscodec.stores.narrow.narrow_store import NarrowStore
from obscodec.stores.parting import Parting, among
from obscodec.stores.stored_part import StoredPart

MOST_STORES = 8  # with tensors of different times
_MOST_FIRST = 1 << 24  # tables have a row for each id, also of former stores
_ROOM = 1 << 12  # ids, and rows, for what comes while another store is made
_WHERE = "ids of a store whose codec was chosen at another time"


class Member(NamedTuple):
    """A store, how it keeps tensors, and its first ids and row: see ``StoragePlan.new_store``."""

    store: FrameStore | NarrowStore
    plan: StoragePlan
    first_id: int
    first_wide: int
    first_row: int

    @classmethod
    def new(
        cls,
        plan: StoragePlan,
        layout: Layout,
        options: StoreOptions,
        threads: int | None,
        first_id: int,
        first_wide: int,
        first_row: int = 0,
    ) -> Member:
        """With an empty store."""
        store = plan.new_store(layout, options, threads, first_id=first_id, first_wide=first_wide, first_row=first_row)
        return cls(store, plan, first_id, first_wide, first_row)

    def follower(self, plan: StoragePlan, layout: Layout, options: StoreOptions, threads: int | None) -> Member | None:
        """An empty store whose ids come after those of this one; None if they would be too large."""
        depth = plan.frame_stack.depth if plan.frame_stack else 1
        ids, rows = zip(*((log.ends[0] * log.stacks.depth, log.ends[1]) for log in self.logs), strict=True)
        first_id, first_row = (max(ids) + _ROOM) // depth + 1, max(rows) + _ROOM
        if max(depth * first_id, first_row) > _MOST_FIRST:
            return None
        return Member.new(plan, layout, options, threads, first_id, depth * first_id, first_row)

    @property
    def logs(self) -> list[FrameLog]:
        """Of all frames; that of the codes first."""
        store = self.store
        return [part.log for part in ((store.codes, store.wide) if isinstance(store, NarrowStore) else (store,))]

    def close_for(self, follower: Member) -> bool:
        """Take no other tensors; False if so many have come that the follower would have ids of theirs."""
        return all(log.close(follower.first_wide // log.stacks.depth, follower.first_row) for log in self.logs)

    def reopen(self) -> None:
        """Undo :meth:`close_for`."""
        for log in self.logs:
            log.reopen()

    def state(self) -> State:
        """See ``obscodec.state``."""
        numbers = {"first_id": self.first_id, "first_wide": self.first_wide, "first_row": self.first_row}
        return {"plan": self.plan.config(), "store": self.store.state(), **numbers}

    def compress(self) -> None:
        """Compress what waits, now that nobody stores anything."""
        for log in self.logs:
            log.compress()


def restored(
    states: Sequence[State], layout: Layout, options: StoreOptions, threads: int | None, first_id: int
) -> tuple[Member, ...]:
    """Stores from their :meth:`Member.state`, the oldest first; ``first_id`` is that of a store of a former version.

    Raises:
        CorruptStream: no stores follow each other so.
    """
    members: list[Member] = []
    for state in states:
        plan = StoragePlan.from_config(part_of(state, "plan", dict))
        first, wide, row = first_id, first_id, 0
        if "first_id" in state:
            first, wide = (number_of(state, name, 1, 2 * _MOST_FIRST) for name in ("first_id", "first_wide"))
            row = number_of(state, "first_row", 0, 2 * _MOST_FIRST)
        member = Member.new(plan, layout, options, threads, first, wide, row)
        member.store.restore(part_of(state, "store", dict))
        before = members[-1] if members else None
        if before is not None and (before.plan.narrow != plan.narrow or not before.close_for(member)):
            raise CorruptStream("a store has ids of the one that took its place")
        members.append(member)
    return tuple(members)


class Succession:
    """Stores of equal tensors, the oldest first: all but the last one are closed, and keep their tensors.

    An id tells its store: those of a store come after those of all before it. ``parting`` is of the succession before
    this one, which may have to finish what was interrupted.
    """

    def __init__(self, members: Sequence[Member], parting: Parting | None = None) -> None:
        self.members = tuple(members)
        self.newest = self.members[-1].store  # which takes tensors
        self.parting = parting or Parting()
        times = [2 if member.plan.narrow else 1 for member in self.members]  # ids of a NarrowStore are twice as large
        later = list(zip(times, self.members, strict=True))[1:]
        self._first_ids = np.array([FIRST_ID, *(n * member.first_wide for n, member in later)])
        self._first_rows = np.array([0, *(n * member.first_row for n, member in later)])

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        numbers = self._numbers(ids)
        for k in np.unique(numbers):
            mine = numbers == k
            with among(_WHERE):
                if mine.all():
                    self.members[k].store.read_into(ids, out)
                else:
                    out[mine] = self.members[k].store.read(ids[mine])

    def parts(self, ids: Ints) -> list[StoredPart]:
        """See ``Store.parts``."""
        numbers, found = self._numbers(ids), list[StoredPart]()
        for k in np.unique(numbers):
            places = np.flatnonzero(numbers == k)
            found += [of.at(places) for of in self.members[k].store.parts(ids[places])]
        return found

    def _give_back(self, ids: Ints) -> None:
        self.parting.give_back(ids, [(member.store, _WHERE) for member in self.members], self._numbers(ids), ids)

    def _numbers(self, ids: Ints) -> Ints:
        """The number of the store of each id; the last one, too, has tensors of zeros, whose ids are below all others.

        Ids of frames that are known by their rows are negative.
        """
        by_id = np.searchsorted(self._first_ids, ids, side="right") - 1
        by_row = np.searchsorted(self._first_rows, -ids) - 1
        return np.where(ids < 0, by_row, np.where(ids < FIRST_ID, len(self.members) - 1, by_id))

    def stats(self) -> StoreStats:
        """See ``Store.stats``; the codec is that of the newest store."""
        others = [member.store.stats() for member in self.members[:-1]]
        return self.newest.stats().with_others(others, self.newest.layout.nbytes)

    def without_empty(self) -> tuple[Member, ...]:
        """The stores that have tensors, and the newest one."""
        return *(of for of in self.members[:-1] if of.store.stats().n_tensors), self.members[-1]
