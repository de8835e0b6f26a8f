"""GuardedStore: readers can finish reading tensors that are released meanwhile."""

import threading
from contextlib import AbstractContextManager, closing, nullcontext
from weakref import ref

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_kind
from obscodec.errors import SlotError
from obscodec.frames import StepWriter
from obscodec.segments import Ints
from obscodec.state import State, array_of, part_of
from obscodec.stats import StoreStats
from obscodec.stores.ids import hand_over
from obscodec.stores.store import Store


class Guard:
    """Keeps tensors of a store until :meth:`close`, or until it is deleted.

    The store looks at its guards when it is called next. So a guard calls nobody: it can't fail, and may be closed by
    the garbage collector in the middle of a call of the store.
    """

    def __init__(self) -> None:
        self._is_closed = False

    def close(self) -> None:
        """Let the tensors go; a second call does nothing."""
        self._is_closed = True

    @staticmethod
    def is_open(guard: "ref[Guard]") -> bool:
        """Whether a guard is there, and not closed."""
        found = guard()
        return found is not None and not found._is_closed


class GuardedStore(Store):
    """A store over another one, which delays releases while somebody reads.

    A buffer draws the ids of a batch under its lock, and decodes them without the lock. A :class:`Guard` keeps the ids
    valid: tensors that are released later are dropped when all guards that existed then are closed. Safe to use from
    several threads.

    Args:
        store: has the tensors; used by this store alone.

    Example:
        >>> from obscodec import FrameStore, Layout
        >>> store = GuardedStore(FrameStore(Layout((84, 84), np.uint8)))
        >>> ids = store.append(np.ones((1, 84, 84), np.uint8))
        >>> guard = store.guard()
        >>> store.release(ids)
        >>> store.read(ids).max()
        np.uint8(1)
        >>> guard.close()
        >>> store.stats().n_tensors
        0
    """

    def __init__(self, store: Store) -> None:
        check_kind("store", store, Store, "a Store, such as FrameStore(layout)")
        self.store = store
        self.layout, self.device = store.layout, store.device
        self._n_guards = 0  # made so far
        self._guards: list[tuple[int, ref[Guard]]] = []  # those that were open at the last call, and their numbers
        self._owners: list[tuple[ref[Guard], Ints]] = []  # what :meth:`own` was given
        self._waiting: list[tuple[int, Ints]] = []  # released ids, and the number of the last guard at that time
        self._lock = threading.Lock()

    def guard(self) -> Guard:
        """Keep all tensors of this moment until the guard is closed."""
        guard = Guard()
        with self._lock:
            self._release_owned()
            self._guards.append((self._n_guards + 1, ref(guard)))
            self._n_guards += 1
        return guard

    def own(self, ids: Ints) -> Guard:
        """Have ``ids``, as the array is then, given back at the first call of this store after the guard is closed."""
        guard = Guard()
        with self._lock:
            self._owners.append((ref(guard), ids))
        return guard

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        self._catch_up()
        self.store.take_in(tensors, which, sequences, ids)

    def step_writer(self, n: int) -> StepWriter | None:
        """See ``Store.step_writer``."""
        return self.store.step_writer(n)

    def transfer_alike(self, other: Store, ids: Ints, out: Ints) -> bool:
        """See ``Store.transfer``."""
        return self.store.transfer_alike(other.store if isinstance(other, GuardedStore) else other, ids, out)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """See ``Store.read_into``."""
        self.store.read_into(ids, out)

    def resolve(self, ids: Ints) -> tuple[Store, Ints]:
        """See ``Store.resolve``."""
        return self.store.resolve(ids)

    def give_back(self, ids: Ints) -> None:
        """See ``Store.give_back``. Ids wait until the guards of this moment are closed; a bad id is found then."""
        waiting = np.zeros_like(ids)
        with self._lock:
            self._waiting.append((self._n_guards, waiting))
            hand_over(ids, waiting)
        self._catch_up()

    def stats(self) -> StoreStats:
        """See ``Store.stats``; released tensors count as long as they wait."""
        self._catch_up()
        return self.store.stats()

    @property
    def parts(self) -> tuple[Store, ...]:
        """See ``Store.parts``."""
        return (self.store,)

    def _catch_up(self) -> None:
        """Give back the released ids whose guards are closed."""
        with self._lock:
            self._release_owned()
            self._guards = [(number, guard) for number, guard in self._guards if Guard.is_open(guard)]
            oldest = self._guards[0][0] if self._guards else self._n_guards + 1
            while self._waiting and self._waiting[0][0] < oldest:
                try:
                    self.store.give_back(self._waiting[0][1])  # sets ids to 0, so it can be repeated
                except SlotError:
                    del self._waiting[0]
                    raise
                del self._waiting[0]

    def _release_owned(self) -> None:
        """Have the ids wait whose owners are closed."""
        for at in reversed(range(len(self._owners))):
            guard, ids = self._owners[at]
            if not Guard.is_open(guard):
                if ids.any():  # else all have found a place
                    self._waiting.append((self._n_guards, ids))
                del self._owners[at]

    def arguments(self) -> State:
        """See ``Store.arguments``."""
        return {"store": self.store.description()}

    def _state(self) -> State:
        self._catch_up()
        with self._lock:
            waiting = [ids for _, ids in (*self._waiting, *self._owners)]
            return {"store": self.store.state(), "waiting": np.concatenate([np.empty(0, np.int64), *waiting])}

    def restore(self, state: State) -> None:
        """See ``Store.restore``. What waited for guards, or was theirs, goes."""
        self.store.restore(part_of(state, "store", dict))
        self.store.give_back(array_of(state, "waiting", np.int64, (None,)))

    def __repr__(self) -> str:
        return f"GuardedStore({self.store!r})"


def guarded(store: Store) -> AbstractContextManager[object]:
    """A context that keeps all tensors of a :class:`GuardedStore`; other stores are left alone."""
    return closing(store.guard()) if isinstance(store, GuardedStore) else nullcontext()
