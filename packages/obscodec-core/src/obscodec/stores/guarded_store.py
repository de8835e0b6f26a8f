"""GuardedStore: a store whose readers can finish what they began to read, whatever is released meanwhile."""

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_kind
from obscodec.errors import SlotError
from obscodec.segments import Ints
from obscodec.stats import StoreStats
from obscodec.stores.ids import hand_over
from obscodec.stores.store import Store


class Guard:
    """Keeps tensors of a store, until :meth:`close`, or until it is gone.

    Args:
        let_go: lets the tensors go, called once. It takes no lock: the garbage collector may call it anywhere, in the
            midst of a call of the store, too.
    """

    def __init__(self, let_go: Callable[[], None]) -> None:
        self._let_go = [let_go]

    def close(self) -> None:
        """Let the tensors go. Does nothing the second time."""
        let_go = self._taken()
        if let_go is not None:
            let_go()

    def _taken(self) -> Callable[[], None] | None:
        try:
            return self._let_go.pop()  # of several threads, one gets it
        except (IndexError, AttributeError):  # taken before, or never made
            return None

    def __del__(self) -> None:
        self.close()


class GuardedStore(Store):
    """A store over another one, in which a reader can guard what is there.

    A buffer draws the ids of a batch under its lock, and decodes them without it. A :class:`Guard` from :meth:`guard`
    keeps these ids valid: what is released while a guard is held is dropped when the last guard that was made before
    is closed. Safe to use from several threads.

    Args:
        store: where the tensors are, used by this store alone.

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
        self._n_guards = 0  # that were ever made
        self._guards: set[int] = set()
        self._waiting: list[tuple[int, Ints]] = []  # released ids, and how many guards there were then
        self._closed: deque[int] = deque()  # guards that were closed since the last call
        self._dropped: deque[tuple[int, Ints]] = deque()  # what was given to drop since the last call, as in _waiting
        self._lock = threading.Lock()

    def guard(self) -> Guard:
        """Keep all tensors that are there now, until the guard is closed."""
        with self._lock:
            self._n_guards += 1
            guard = Guard(partial(self._closed.append, self._n_guards))
            self._guards.add(self._n_guards)
            return guard

    def drop(self, ids: Ints) -> None:
        """:meth:`give_back`, at the next call of this store. It takes no lock, for use while garbage is collected."""
        self._dropped.append((self._n_guards, ids))

    def take_in(self, tensors: npt.NDArray[np.generic], which: Ints, sequences: Ints, ids: Ints) -> None:
        """See ``Store.take_in``."""
        self._catch_up()
        self.store.take_in(tensors, which, sequences, ids)

    def transfer_alike(self, other: Store, ids: Ints, out: Ints) -> bool:
        """Take tensors over; see ``Store.transfer``."""
        return self.store.transfer_alike(other.store if isinstance(other, GuardedStore) else other, ids, out)

    def read_into(self, ids: Ints, out: npt.NDArray[np.generic]) -> None:
        """Decode tensors; see ``Store.read``."""
        self.store.read_into(ids, out)

    def resolve(self, ids: Ints) -> tuple[Store, Ints]:
        """See ``Store.resolve``."""
        return self.store.resolve(ids)

    def give_back(self, ids: Ints) -> None:
        """Give back one reference to each of ``ids``, now or when nobody reads them any more; see ``Store.give_back``.

        Raises:
            SlotError: an id is of no tensor; if there is a guard, that comes up only in a call after it is closed.
        """
        waiting = np.zeros_like(ids)
        with self._lock:
            self._waiting.append((self._n_guards, waiting))
            hand_over(ids, waiting)
        self._catch_up()

    def stats(self) -> StoreStats:
        """What the store holds now, with what waits to be dropped."""
        self._catch_up()
        return self.store.stats()

    def _catch_up(self) -> None:
        """Drop what nobody reads any more."""
        with self._lock:
            while self._dropped:
                self._waiting.append(self._dropped[0])
                self._dropped.popleft()
            while self._closed:
                self._guards.discard(self._closed[0])
                self._closed.popleft()
            oldest = min(self._guards, default=self._n_guards + 1)
            while self._waiting and self._waiting[0][0] < oldest:
                try:
                    self.store.give_back(self._waiting[0][1])  # which sets them to 0, so that it can come twice
                except SlotError:
                    del self._waiting[0]
                    raise
                del self._waiting[0]

    def __getstate__(self) -> dict[str, object]:
        super().__getstate__()  # stores the rows that wait
        self._catch_up()
        with self._lock:
            return {"store": self.store, "_waiting": list(self._waiting), "changing": self.changing}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(state["store"])  # type: ignore[misc]
        self.changing = state["changing"]  # type: ignore[assignment]  # which it may have in common with other stores
        for _, released in state["_waiting"]:  # type: ignore[attr-defined]
            self.store.give_back(released)

    def __repr__(self) -> str:
        return f"GuardedStore({self.store!r})"


def guarded(store: Store) -> AbstractContextManager[object]:
    """Keep all tensors of ``store`` while ids of it are used, if it is one that can be guarded."""
    return closing(store.guard()) if isinstance(store, GuardedStore) else nullcontext()
