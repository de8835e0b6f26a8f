"""Arguments: checks where a caller's values come in, so that a mistake is found there and not later or never."""

import operator
import re
import reprlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError, ShapeError

F = TypeVar("F", bound=Callable[..., Any])

_MOST = 1 << 47  # bytes that a process can address; nothing in memory has more pieces
_NBYTES = re.compile(r"(?P<number>\d[\d_]*(?:\.\d+)?) ?(?P<prefix>[kmgt]?)(?P<binary>i?)b?", re.IGNORECASE)
_UNIT = "unit: convert it to the one that you want, and take its numbers, as in numpy.asarray(x)"
_LOST = {
    "mask": "mask: fill it, as in x.filled(0), or store x.data and x.mask as two arrays",
    "unit": _UNIT,
    "units": _UNIT,
}
_PLAIN = {bool, int, float, np.ndarray}


def warn(text: str) -> None:
    """Warn of a line of the program: the newest caller that is not of this project."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("obscodec"):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


def as_count(what: str, value: object, least: int = 1) -> int:
    """``value`` as an int of at least ``least``: an integer of any library, or a whole float such as ``1e6``.

    ``what`` names the argument in errors.

    Raises:
        DTypeError: ``value`` is no number, or a bool.
        ShapeError: it is not whole, less than ``least``, or more than any memory has room for.

    Example:
        >>> as_count("capacity", 1e6)
        1000000
    """
    return value if type(value) is int and least <= value <= _MOST else _counted(what, value, least, _MOST, "")


def as_option(what: str, value: object, least: int = 1) -> int | None:
    """:func:`as_count` for an argument that may be None."""
    return None if value is None else _counted(what, value, least, _MOST, ", or None")


def as_nbytes(what: str, value: object, least: int = 1) -> int | None:
    """:func:`as_count` for a limit in bytes; None is no limit. The error for a text such as ``"1GB"`` says the number.

    Example:
        >>> as_nbytes("max_bytes", 2e9)
        2000000000
    """
    if value is None:
        return None
    if isinstance(value, str) and (match := _NBYTES.fullmatch(value.strip())):
        base = 1024 if match["binary"] else 1000
        nbytes = round(float(match["number"]) * base ** " kmgt".index(match["prefix"].lower() or " "))
        raise DTypeError(f"{what} must be a number of bytes, or None, got {value!r}: write {nbytes:_}")
    return _counted(what, value, least, sys.maxsize, ", or None")


def _counted(what: str, value: object, least: int, most: int, or_none: str) -> int:
    given = value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value
    is_float = isinstance(given, (float, np.floating))
    try:
        number = int(given) if is_float and float(given).is_integer() else operator.index(given)  # type: ignore[arg-type,call-overload]
    except TypeError:
        number = None
    if number is None or isinstance(given, (bool, np.bool_)):
        error = ShapeError if is_float else DTypeError
        raise error(f"{what} must be a whole number, {least} or more{or_none}, got {reprlib.repr(given)}")
    if not least <= number <= most:
        bound = f"{least} or more" if number < least else f"{most} or less"
        raise ShapeError(f"{what} must be {bound}{or_none}, got {number}")
    return int(number)


def as_number(what: str, value: object, most: float | None = None) -> float:
    """``value`` as a float of 0 to ``most``; None for any finite one. The errors are those of :func:`as_count`."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise DTypeError(f"{what} must be a number of 0 {'or more' if most is None else f'to {most}'}, got {value!r}")
    if not (0 <= value < np.inf if most is None else 0 <= value <= most):
        raise ShapeError(f"{what} must be {'finite and 0 or more' if most is None else f'0 to {most}'}, got {value}")
    return float(value)


def as_integers(what: str, values: object, error: type[Exception] = DTypeError) -> npt.NDArray[np.int64]:
    """``values``, an array of any library or numbers, as ``i64[...]``, maybe not copied; an ``error`` for others."""
    given = np.asarray(values)
    if given.size and given.dtype.kind not in "iu":
        raise error(f"{what} are integers, got {given.dtype}")
    return given.astype(np.int64, copy=False)


def as_flag(what: str, value: object) -> bool:
    """``value`` as a bool: a bool of any library, 0 or 1.

    Raises:
        DTypeError: it is something else, such as ``"False"``, which Python takes for true.
    """
    if value is True or value is False:
        return value
    if not isinstance(value, (np.bool_, int, np.integer)) or value not in (0, 1):
        raise DTypeError(f"{what} must be True or False, got {reprlib.repr(value)}")
    return bool(value)


def as_envs(envs: npt.ArrayLike | None, n_envs: int) -> npt.NDArray[np.int64]:
    """Some of ``n_envs`` environments, ``i64[n]``, rising, each once; all for None.

    Raises:
        DTypeError: they are no integers.
        ShapeError: one is out of range.

    Example:
        >>> as_envs([3, 1, 3], 4).tolist(), as_envs(None, 2).tolist()
        ([1, 3], [0, 1])
    """
    return np.arange(n_envs) if envs is None else np.unique(check_envs(envs, n_envs))


def check_envs(envs: npt.ArrayLike, n_envs: int) -> npt.NDArray[np.int64]:
    """Some of ``n_envs`` environments as they were given, ``i64[...]``; the errors are those of :func:`as_envs`."""
    given = as_integers("environments", envs)
    if given.size and not 0 <= given.min() <= given.max() < n_envs:
        raise ShapeError(f"environments must be 0 to {n_envs - 1}, got {reprlib.repr(envs)}")
    return given


def as_env(env: int | None, n_envs: int) -> int:
    """One of ``n_envs`` environments, None for the only one; the errors are those of :func:`as_envs`."""
    if env is None and n_envs > 1:
        raise ShapeError(f"there are {n_envs} environments: name one, 0 to {n_envs - 1}")
    return int(as_envs([0 if env is None else env], n_envs)[0])


def closest(name: str, known: Iterable[str]) -> str | None:
    """The one of some names that is most like ``name``, for an error; None if none is."""
    return next(iter(get_close_matches(name, known, 1)), None)


def among(found: str, known: Iterable[str], meant: str | None) -> str:
    """The text of an error about an unknown name: what was found, and which names there are."""
    there = ", ".join(known)
    return f"{found}, did you mean {meant!r}? There are {there}" if meant else f"{found}, there are {there}"


def refuse_unknown(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise TypeError, as Python does, if there are any ``names``: arguments that ``what`` does not have."""
    if (name := next(iter(names), None)) is not None:
        raise TypeError(among(f"{what} got an unexpected keyword argument {name!r}", known, closest(name, known)))


def says_arguments(of: F) -> F:
    """Make a function, a method or a class say which of its arguments was meant, where Python says what it got.

    Errors of a constructor name the class that was called, which may be a subclass. Type checkers and ``inspect`` see
    the signature as it is.
    """
    if isinstance(of, type):
        of.__init__ = says_arguments(of.__init__)  # type: ignore[misc]
        return of

    @wraps(of)
    def called(*args: object, **kwargs: object) -> object:
        try:
            return of(*args, **kwargs)
        except TypeError as error:
            say_arguments(of, args, kwargs, error)
            raise

    return cast("F", called)


def say_arguments(of: Callable[..., Any], args: tuple[object, ...], kwargs: Iterable[str], error: TypeError) -> None:
    """Raise a better error than Python's, if ``of`` was called with wrong arguments; see :func:`says_arguments`."""
    name = type(args[0]).__name__ if of.__name__ == "__init__" else of.__qualname__
    parameters = signature(of).parameters.values()
    known = [one.name for one in parameters if one.name != "self"]
    if not any(one.kind is Parameter.VAR_KEYWORD for one in parameters):
        refuse_unknown(name, [given for given in kwargs if given not in known], known)
    own = f"{of.__qualname__}()"
    if str(error).startswith(own) and name != of.__qualname__:  # such as for a missing argument
        raise TypeError(str(error).replace(own, f"{name}()", 1)) from None


def kind_of(value: object) -> str:
    """The type of ``value``, for an error."""
    return "None" if value is None else type(value).__name__


def in_parts(value: object) -> str:
    """The end of an error about ``value`` in the place of one array: how to pass what a mapping has; else empty."""
    if not isinstance(value, Mapping):
        return ""
    return f": pass its values one by one, such as x[{next(iter(value), 'name')!r}]"


def as_of(name: str, value: object) -> str:
    """The end of an error about ``value`` in the place of a Layout or a Field: how to make one of an array."""
    return f": write {name}(x.shape, x.dtype)" if isinstance(getattr(value, "dtype", None), np.dtype) else ""


def check_kind(what: str, value: object, kind: type | tuple[type, ...], described: str, remedy: str = "") -> None:
    """Raise DTypeError unless ``value`` is a ``kind``, which the error calls ``described``; it ends in ``remedy``.

    Example:
        >>> check_kind("done", [True, False], list, "a list of truth values")
    """
    if not isinstance(value, kind):
        raise DTypeError(f"{what} must be {described}, got {kind_of(value)}{remedy}")


def check_elements(value: object) -> None:
    """Raise DTypeError if ``value`` is an array with a mask or a unit, or a list that contains one.

    numpy silently drops the mask of a masked array and the unit of a quantity (astropy, pint, unyt). Other classes of
    arrays, such as ``numpy.memmap`` and ``numpy.matrix``, have the same elements as a plain array.

    Example:
        >>> check_elements([np.zeros(3), np.zeros(3)])
    """
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value)) - _PLAIN
        if any(issubclass(kind, (np.ndarray, list, tuple)) for kind in kinds):
            for item in value:
                check_elements(item)
    elif type(value) not in _PLAIN:
        for attribute in _LOST if isinstance(value, np.ndarray) else ("units",):  # of pandas, mask is a method
            if hasattr(value, attribute):
                raise DTypeError(f"a {type(value).__name__} would lose its {_LOST[attribute]}")
