"""PicklableLock: a lock for objects that are copied and sent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, cast


class PicklableLock:
    """A reentrant lock, for ``with``; a copy of it, in another process too, is a lock of its own that nobody holds.

    Example:
        >>> import pickle
        >>> lock = PicklableLock()
        >>> with lock, lock, pickle.loads(pickle.dumps(lock)):
        ...     pass
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

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
