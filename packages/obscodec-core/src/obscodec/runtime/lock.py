"""PicklableLock: a lock for objects that are copied and sent."""

from _thread import RLock
from typing import Self


class PicklableLock(RLock):  # type: ignore[misc]  # CPython allows it
    """A reentrant lock for ``with``. A copy, also in another process, is a new lock that nobody holds.

    It is taken and released in C, so that an exception from a signal handler can't leave it locked: ``with`` either has
    not taken it yet, or releases it.

    Example:
        >>> import pickle
        >>> lock = PicklableLock()
        >>> with lock, lock, pickle.loads(pickle.dumps(lock)):
        ...     pass
    """

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()
