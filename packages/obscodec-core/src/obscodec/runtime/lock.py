"""PicklableLock: a lock for objects that are copied and sent, and that a forked process finds free."""

import os
import sys
import threading
from _thread import RLock
from collections.abc import Callable, Iterable
from enum import IntEnum, auto
from time import monotonic
from typing import Any, Final, Self, TypeVar
from weakref import ref

_FIRST_WAIT_S: Final = 0.05  # for each lock; few threads hold one for longer, except those that wait for this thread
_MOST_WAIT_S: Final = 1.0  # for all locks, of a thread that others may wait for
T = TypeVar("T")


class LockOrder(IntEnum):
    """The order in which a thread takes locks: one that holds a lock takes only locks of a higher number.

    A store within a store of the same kind, or in another order, is no harm: a fork gives up what it has, and begins
    again.
    """

    OWNER = auto()  # of a buffer that writers of other processes fill
    BUFFER = auto()  # of a RingBuffer, or a buffer of an adapter
    BATCHES = auto()  # of a BatchReader
    CHANGING = auto()  # of arrays of ids
    DECODING = auto()  # of the thread that decodes in the background
    MOVING = auto()  # of the first tensors of an AutoStore
    FIRST_TENSORS = auto()  # of an AutoStore
    CODES = auto()  # of a NarrowStore
    MIRROR = auto()  # of the FrameReader of a device
    FRAMES = auto()
    STREAMS = auto()
    BACKGROUND = auto()  # of the other threads in the background, which take no lock of a store
    LAST = auto()  # of those that are held for a few lines


class PicklableLock(RLock):  # type: ignore[misc]  # CPython allows it
    """A reentrant lock for ``with``. A copy, also in another process, is a new lock that nobody holds.

    It is taken and released in C, so that an exception from a signal handler can't leave it locked: ``with`` either has
    not taken it yet, or releases it.

    A thread that forks the process takes all of these locks first, so that no other thread is in the middle of what a
    lock is for, and the new process, which does not have the other threads, finds each lock free.
    """

    order: LockOrder
    is_held: Callable[[], bool] = RLock._is_owned  # type: ignore[attr-defined]  # by this thread

    def __new__(cls, order: LockOrder = LockOrder.LAST) -> Self:
        """Make the attribute here: another thread may fork as soon as the lock is known."""
        made = super().__new__(cls)
        made.order = order
        _locks.add(ref(made, _locks.discard))
        return made

    def refuse_nested(self) -> None:
        """Refuse a change in the middle of another call of this thread, as a signal handler may ask for it."""
        if self.is_held():
            raise RuntimeError(
                "a buffer can't be changed in the middle of another call, as by a signal handler: note what is to be "
                "done, and do it after the call"
            )

    def __reduce__(self) -> tuple[type[Self], tuple[LockOrder]]:
        return type(self), (self.order,)


def holding(locks: Iterable[PicklableLock], do: Callable[[], T]) -> T:
    """Call ``do`` with some locks, each once, which all threads take in one order.

    Not by an ``ExitStack``: an exception of a signal handler could leave a lock in it that nobody releases.
    """
    others = sorted({*locks}, key=id)
    if not others:
        return do()
    with others.pop(0):
        return holding(others, do)


_locks: "set[ref[RLock]]" = set()  # all there are


def free_in_forks(lock: object) -> None:
    """Have a forked process find a lock of another library free, too; nothing happens if it is not reentrant."""
    if isinstance(lock, RLock):
        _locks.add(ref(lock, _locks.discard))


def _known() -> list[Any]:
    """All locks that there are, and the one that a thread holds while it compiles a kernel, once there are kernels."""
    compiling = getattr(sys.modules.get("obscodec.kernels.compiler"), "COMPILING", None)
    found = [known() for known in list(_locks)] + [compiling if isinstance(compiling, RLock) else None]
    return [lock for lock in found if lock is not None]


def _place(lock: RLock) -> tuple[int, int]:
    """Where a lock stands in the order."""
    return getattr(lock, "order", LockOrder.LAST), id(lock)


class _Fork(threading.local):
    """A fork of the process by this thread."""

    def __init__(self) -> None:
        self._own: list[Any] = []  # locks that a call has which is interrupted by a fork in this thread
        self._others: list[Any] = []

    def acquire_all(self) -> None:
        """Acquire all locks; none as long as this thread waits for one that it can't have.

        So whatever the others hold, they go on after a moment. A thread that had a lock of its own before, as in a
        signal handler, gives up after a second: somebody else may wait for this lock.
        """
        known = sorted(_known(), key=_place)
        self._own = [lock for lock in known if lock._is_owned()]
        self._others = [lock for lock in known if not lock._is_owned()]
        wait_s, end = _FIRST_WAIT_S, monotonic() + _MOST_WAIT_S
        while not all(lock.acquire(timeout=wait_s) for lock in self._others):
            if self._own and monotonic() > end:
                return
            self.release_all()
            wait_s *= 2

    def release_all(self) -> None:
        """Release what :meth:`acquire_all` acquired."""
        for lock in self._others:
            if lock._is_owned():
                lock.release()

    def renew_all(self) -> None:
        """Free all locks in the new process, but those that a call in this thread goes on with."""
        own = {id(lock) for lock in self._own}
        for lock in _known():
            if id(lock) not in own:
                lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    _fork: Final = _Fork()
    os.register_at_fork(before=_fork.acquire_all, after_in_parent=_fork.release_all, after_in_child=_fork.renew_all)
