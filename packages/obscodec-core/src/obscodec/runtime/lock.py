"""PicklableLock: a lock for objects that are copied and sent."""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast


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


F = TypeVar("F", bound=Callable[..., object])


def locked(method: F) -> F:
    """``method``, which holds the ``lock`` of its object."""

    @wraps(method)
    def with_lock(self: Any, *args: object, **kwargs: object) -> object:
        with self.lock:
            return method(self, *args, **kwargs)

    return cast("F", with_lock)
