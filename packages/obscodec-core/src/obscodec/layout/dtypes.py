"""Which dtypes can be stored, and the names they are written down by."""

import re
import reprlib
from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError

_KINDS: Final = "biufcmM"
_WRITTEN: Final = re.compile(r"[|<][biufcmM][1-9][0-9]?(\[([1-9][0-9]{0,9})?[A-Za-z]{1,2}\])?")  # by numpy
_EXTENDED: Final = frozenset(
    {
        "bfloat16",
        "float8_e3m4",
        "float8_e4m3",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    }
)


def extended_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype of an ``ml_dtypes`` name, such as ``bfloat16``."""
    import ml_dtypes  # registers its dtypes with numpy; loaded only by those who use them

    dtype: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def storable(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """``dtype`` in little-endian byte order.

    Raises:
        DTypeError: the dtype holds references or fields, or is not one of numbers, booleans and times.

    Example:
        >>> storable(np.dtype(">f4")) == np.dtype("<f4")
        True
    """
    if dtype.name in _EXTENDED:
        return dtype
    if dtype.kind in _KINDS and not dtype.hasobject:
        return np.dtype(dtype.newbyteorder("<").str)  # by name, since numpy keeps '<i2' and 'int16' apart in repr
    found = "a structured dtype" if dtype.names else f"dtype {dtype.name}"
    hint = "store each field on its own" if dtype.names else "convert the array, or leave it uncompressed"
    raise DTypeError(
        f"{found} can't be stored; allowed are bool, integers, floats, complex, datetime64, timedelta64, "
        f"bfloat16 and float8: {hint}"
    )


def is_common(dtype: np.dtype[np.generic]) -> bool:
    """Whether libraries for GPUs have the dtype: not times, bfloat16 and float8, which some of them lack."""
    return dtype.kind in "biufc" and dtype.name not in _EXTENDED


def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """The name that a stream, a config or a file records: ``<f4``, ``|u1``, ``<M8[ns]``, ``bfloat16``."""
    return dtype.name if dtype.name in _EXTENDED else dtype.str


def storable_of(dtype: npt.DTypeLike) -> np.dtype[np.generic]:
    """What numpy takes for a dtype, or a name that :func:`dtype_name` wrote, as a storable dtype.

    Raises:
        DTypeError: it is neither, or can't be stored; or None, which numpy takes for float64.
    """
    if isinstance(dtype, str):
        return dtype_from_name(dtype)
    try:
        if dtype is not None:
            return storable(np.dtype(dtype))
    except DTypeError:
        raise
    except (TypeError, ValueError):
        pass
    raise DTypeError(f"a dtype is one of numpy, or its name, such as 'uint8', got {reprlib.repr(dtype)}") from None


def dtype_from_name(name: str) -> np.dtype[np.generic]:
    """The dtype that a caller names, as :func:`dtype_name` does or in another way of numpy's: ``float32``, ``>f4``.

    Raises:
        DTypeError: no storable dtype has that name.
    """
    if name in _EXTENDED:
        return extended_dtype(name)
    try:
        dtype = np.dtype(name)
    except (TypeError, ValueError, SyntaxError):
        raise _no_dtype(name) from None
    return storable(dtype)


def written_dtype(name: object) -> np.dtype[np.generic]:
    """The dtype that :func:`dtype_name` wrote, and by no other name. numpy sees no text that somebody else made up.

    Raises:
        DTypeError: no storable dtype is written so.

    Example:
        >>> written_dtype("<f4")
        dtype('float32')
    """
    if not isinstance(name, str) or not (name in _EXTENDED or _WRITTEN.fullmatch(name)):
        raise _no_dtype(name)
    dtype = dtype_from_name(name)
    if dtype_name(dtype) != name:
        raise _no_dtype(name)
    return dtype


def _no_dtype(name: object) -> DTypeError:
    return DTypeError(f"no dtype is named {name!r}; examples are '|u1', '<f4', 'bfloat16'")
