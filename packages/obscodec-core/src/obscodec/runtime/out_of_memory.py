"""One error for a failed allocation, ``MemoryError``, whatever a library raises."""

from collections.abc import Callable
from functools import wraps
from typing import NoReturn, TypeVar, cast

from obscodec.arguments import say_arguments

F = TypeVar("F", bound=Callable[..., object])
_SAID = (
    *("without exception set", "without setting an exception", "with an exception set", "computing overlap"),  # numpy
    *("bad_alloc", "can't allocate", "not enough memory"),  # C++, Python's locks, zstd
    *("Cannot allocate memory", "paging file is too small"),  # Linux and macOS, Windows
    "bad allocation",  # C++ on Windows
)


def says_memory_error(function: F) -> F:
    """Make ``function`` raise ``MemoryError`` where a library reports a failed allocation by another error.

    numpy raises ``SystemError`` about a function without a result, numba and torch ``RuntimeError`` with ``bad_alloc``
    of C++, compressors their own errors.
    """
    return _saying(function, arguments=False)


def says_errors(function: F) -> F:
    """:func:`says_memory_error` and ``says_arguments`` in one call, for what is called often."""
    return _saying(function, arguments=True)


def _saying(function: F, *, arguments: bool) -> F:
    @wraps(function)
    def called(*args: object, **kwargs: object) -> object:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if arguments and isinstance(error, TypeError):
                say_arguments(function, args, kwargs, error)
            raise_memory_error(error)

    return cast("F", called)


def raise_memory_error(error: BaseException) -> NoReturn:
    """Raise ``MemoryError`` for an error that a library raises after a failed allocation, any other error again.

    For an ``except`` clause, where :func:`says_memory_error` would take too long.
    """
    if isinstance(error, MemoryError) or not is_memory_error(error):
        raise error
    raise MemoryError(f"there is not enough memory: {error}") from error


def is_memory_error(error: BaseException) -> bool:
    """Whether an error tells of a failed allocation, whatever a library raises for it."""
    said = isinstance(error, Exception) and any(x in str(error) for x in _SAID)
    return isinstance(error, MemoryError) or said
