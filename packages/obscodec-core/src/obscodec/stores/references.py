"""References: who may still read the tensors of a store, and when what was released goes."""

import os
from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import count
from threading import get_ident
from typing import Any, Generic, TypeVar
from weakref import ref

import numpy as np

from obscodec.segments import Ints
from obscodec.stores.ids import hand_over

T = TypeVar("T")
_FOR_NO_GUARD = -1  # the number of ids that no array ever had, so that no reader can have copied them


class _Ref(ref[Any]):
    """A reference that is an element of a set, and takes itself out when its object goes."""

    __slots__ = ("number", "thread")
    __hash__, __eq__ = object.__hash__, object.__eq__  # those of a reference ask its object, which may be gone
    number: int
    thread: int


class Alive(Generic[T]):
    """Objects, as long as somebody else holds them; other threads may add some meanwhile.

    A ``WeakSet`` runs Python when an object goes, where an interrupt is lost.
    """

    def __init__(self) -> None:
        self._known: set[_Ref] = set()

    def add(self, one: T) -> None:
        """Know an object from now on."""
        self._known.add(_Ref(one, self._known.discard))

    def __iter__(self) -> Iterator[T]:
        return iter([one for known in self._known.copy() if (one := known()) is not None])


class Owned(_Ref):
    """Ids with a reference to each, which an object owns; they are here when the object is gone.

    Attributes:
        ids: of any shape; another array may take its place.
    """

    __slots__ = ("ids",)
    ids: Ints


class Guard:
    """Keeps tensors of a store until ``close()``, or until it is collected; a context closes it at its end.

    The store looks at its guards when it is called next. So a guard takes no lock and calls nobody: it can't fail, and
    the garbage collector may close it in the middle of a call of the store. It has no ``__del__``, in which an
    interrupt would be lost: the weak reference takes itself out of the set.
    """

    def __init__(self, open_guards: set[_Ref], number: int) -> None:
        is_open = _Ref(self, open_guards.discard)
        is_open.number, is_open.thread = number, get_ident()
        self.close = partial(open_guards.discard, is_open)  # a second call does nothing
        open_guards.add(is_open)

    def __enter__(self) -> None:
        """Nothing: the guard is open since it was made."""

    def __exit__(self, *_: object) -> None:
        self.close()


class References:
    """Ids that a store gives back later: that were released while guards were open, and what guards and objects own.

    Guards and releases are numbered in one row. Ids that are released wait for the guards with lower numbers; what a
    guard has owned waits for none. Any thread may make and close guards, and own ids, at any time; the other calls need
    the lock of the store.

    Attributes:
        gone: the ids of objects that are gone, for whoever gives them back.
    """

    def __init__(self) -> None:
        self.gone: deque[Owned] = deque()
        self._of_objects: set[Owned] = set()
        self._numbers = count()
        self._guards: set[_Ref] = set()
        self._owned: dict[int, Ints] = {}  # by the number of the guard
        self._released: list[tuple[int, Ints]] = []  # the numbers of releases, and the ids that wait
        _ALL.add(self)

    def forget_other_threads(self) -> None:
        """In a new process: close the guards of threads that it does not have."""
        self._guards -= {guard for guard in self._guards if guard.thread != get_ident()}

    def guard(self, owned: Ints | None = None) -> Guard:
        """See ``IdExchange.guard``."""
        guard = Guard(self._guards, number := next(self._numbers))
        try:
            if owned is not None:
                self._owned[number] = owned
            return guard
        except BaseException:
            guard.close()  # the traceback may keep it
            raise

    def own(self, by: object, ids: Ints) -> Owned:
        """See ``IdExchange.own``. When the object goes, wherever that is, this takes no lock and calls nobody."""
        owned = Owned(by, self.gone.append)
        owned.ids = ids
        self._of_objects.add(owned)
        return owned

    def release_gone(self) -> None:
        """Release the first of :attr:`gone`; an interrupted call can be repeated."""
        owned = self.gone[0]
        owned.ids = np.array(owned.ids, np.int64).reshape(-1)  # those of an array may be read-only
        self.release(owned.ids, np.zeros_like(owned.ids))
        self._of_objects.discard(owned)
        self.gone.popleft()

    @property
    def must_wait(self) -> bool:
        """Whether ids that are released now wait."""
        return bool(self._guards or self._released)

    def release(self, ids: Ints, waiting: Ints) -> None:
        """Move ``ids`` with a reference to each to ``waiting``, as long as these; who puts them back takes them out."""
        if ids.any():  # else they were moved before an interrupt
            self._released.append((next(self._numbers), waiting))
            hand_over(ids, waiting)

    def first_free(self) -> Ints | None:
        """The oldest released ids, if they wait for no guard any more; None if there are none. See :meth:`done`."""
        if self._owned:  # seldom
            # In this order: another thread may make a guard meanwhile.
            for number in {*self._owned} - {guard.number for guard in self._guards.copy()}:
                self._released.insert(0, (_FOR_NO_GUARD, self._owned[number]))
                del self._owned[number]
        if not self._released:
            return None
        number, ids = self._released[0]
        return ids if all(number < guard.number for guard in self._guards.copy()) else None

    def done(self) -> None:
        """Forget what :meth:`first_free` has returned: it is given back, or nobody can give it back."""
        del self._released[0]

    @property
    def waiting(self) -> Ints:
        """``i64[n]``: the ids that will be given back."""
        return np.concatenate([np.empty(0, np.int64), *(ids for _, ids in self._released), *self._owned.values()])


_ALL = Alive[References]()


def _after_fork() -> None:
    for references in _ALL:
        references.forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
