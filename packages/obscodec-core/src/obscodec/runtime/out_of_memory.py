"""What libraries raise when an allocation fails, as ``MemoryError``."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])
_SAID = (
    *("without exception set", "without setting an exception", "computing overlap"),  # numpy
    *("bad_alloc", "can't allocate", "not enough memory"),  # C++, Python's locks, zstd
)


def says_memory_error(function: F) -> F:
    """``function``, which raises ``MemoryError`` where numpy, numba or torch say something else of a failed allocation.

    numpy raises ``SystemError`` that some function gave nothing and no error, numba and torch ``RuntimeError`` with the
    ``bad_alloc`` of C++, compressors their own errors.

    Example:
        >>> @says_memory_error
        ... def allocate() -> None:
        ...     raise RuntimeError("std::bad_alloc")
        >>> allocate()
        Traceback (most recent call last):
        MemoryError: there is not enough memory: std::bad_alloc
    """

    @wraps(function)
    def called(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, MemoryError) or not any(text in str(error) for text in _SAID):
                raise
            raise MemoryError(f"there is not enough memory: {error}") from error

    return cast("F", called)
