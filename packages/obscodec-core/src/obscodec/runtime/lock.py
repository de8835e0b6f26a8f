"""PicklableLock: a lock for objects that are copied and sent."""

from __future__ import annotations

from _thread import RLock


class PicklableLock(RLock):  # type: ignore[misc]  # which CPython allows
    """A reentrant lock, for ``with``; a copy of it, in another process too, is a lock of its own that nobody holds.

    Nothing of it is Python: an exception of a signal handler comes before the lock is taken, or when ``with`` knows it.

    Example:
        >>> import pickle
        >>> lock = PicklableLock()
        >>> with lock, lock, pickle.loads(pickle.dumps(lock)):
        ...     pass
    """

    def __reduce__(self) -> tuple[type[PicklableLock], tuple[()]]:
        return PicklableLock, ()
