"""The dtypes that can be stored, and the names by which streams record them."""

import re
import reprlib
from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.errors import DTypeError

_KINDS: Final = "biufcmM"
_WRITTEN: Final = re.compile(r"[|<][biufcmM][1-9][0-9]?(\[([1-9][0-9]{0,9})?[A-Za-z]{1,2}\])?")  # by numpy
# The dtypes of ml_dtypes, each with its type code and its bits in DLPack.
EXTENDED: Final = {
    "bfloat16": (4, 16),
    "float8_e3m4": (7, 8),
    "float8_e4m3": (8, 8),
    "float8_e4m3b11fnuz": (9, 8),
    "float8_e4m3fn": (10, 8),
    "float8_e4m3fnuz": (11, 8),
    "float8_e5m2": (12, 8),
    "float8_e5m2fnuz": (13, 8),
    "float8_e8m0fnu": (14, 8),
}


# What a longdouble is, by the bits of its mantissa that are stored, where it is wider than a double: processors differ.
_LONG_FORMATS: Final = {63: "x87", 105: "double-double", 112: "quad"}
_WRITTEN_LONG: Final = re.compile(r"(<[fc](?:12|16|24|32))\[([a-z0-9-]+)\]")


def _long_format() -> str:
    """The format of a longdouble of this processor."""
    return _LONG_FORMATS.get(np.finfo(np.longdouble).nmant, "unknown")


def extended_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype of an ``ml_dtypes`` name, such as ``bfloat16``."""
    import ml_dtypes  # registers its dtypes with numpy; not loaded before one is used

    dtype: np.dtype[np.generic] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def storable(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    """``dtype`` in little-endian byte order.

    Raises:
        DTypeError: it is no dtype of numbers, booleans or times, or it has fields.

    Example:
        >>> storable(np.dtype(">f4")) == np.dtype("<f4")
        True
    """
    if dtype.name in EXTENDED:
        return dtype
    if dtype.kind in _KINDS and not dtype.hasobject:
        return np.dtype(dtype.newbyteorder("<").str)  # by name: '<i2' and 'int16' differ in repr
    found = "a structured dtype" if dtype.names else f"dtype {dtype.name}"
    hint = "store each field on its own" if dtype.names else "convert the array, or leave it uncompressed"
    raise DTypeError(
        f"{found} can't be stored; allowed are bool, integers, floats, complex, datetime64, timedelta64, "
        f"bfloat16 and float8: {hint}"
    )


def is_common(dtype: np.dtype[np.generic]) -> bool:
    """Whether every GPU library has the dtype: some lack times, bfloat16 and float8."""
    return dtype.kind in "biufc" and (dtype.isbuiltin == 1 or dtype.name not in EXTENDED)  # `name` takes microseconds


def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """The name in streams, configs and files: ``<f4``, ``|u1``, ``<M8[ns]``, ``bfloat16``, ``<f16[x87]``."""
    if dtype.name in EXTENDED:
        return dtype.name
    is_long = dtype.kind in "fc" and dtype.itemsize > 8 * (1 + (dtype.kind == "c"))
    return f"{dtype.str}[{_long_format()}]" if is_long else dtype.str


def storable_of(dtype: npt.DTypeLike) -> np.dtype[np.generic]:
    """The storable dtype that numpy understands by ``dtype``, or of which it is the :func:`dtype_name`.

    Raises:
        DTypeError: there is none; also for None, which numpy takes for float64.
    """
    if isinstance(dtype, str) and dtype in EXTENDED:
        return extended_dtype(dtype)
    if isinstance(dtype, str) and (long := _WRITTEN_LONG.fullmatch(dtype)):
        if long[2] != _long_format():
            raise DTypeError(
                f"numbers of dtype {dtype!r} were written on another processor: a longdouble of this one is "
                f"{_long_format()}, which has other bits; convert them to float64 where they were written"
            )
        dtype = long[1]
    try:
        found = None if dtype is None else np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        found = None
    if found is not None:
        return storable(found)
    if isinstance(dtype, str):
        raise _no_dtype(dtype)
    text = str(dtype)
    hint = f": write {text.removeprefix('torch.')!r}" if text.startswith("torch.") else ""
    raise DTypeError(f"a dtype is one of numpy, or its name, such as 'uint8', got {reprlib.repr(dtype)}{hint}")


def written_dtype(name: object) -> np.dtype[np.generic]:
    """The dtype whose :func:`dtype_name` is ``name``. Any other text is refused before numpy parses it.

    Raises:
        DTypeError: no storable dtype has this name.

    Example:
        >>> written_dtype("<f4")
        dtype('float32')
    """
    if isinstance(name, str) and (name in EXTENDED or _WRITTEN.fullmatch(name) or _WRITTEN_LONG.fullmatch(name)):
        dtype = storable_of(name)
        if dtype_name(dtype) == name:
            return dtype
    raise _no_dtype(name)


def _no_dtype(name: object) -> DTypeError:
    return DTypeError(f"no dtype is named {name!r}; examples are '|u1', '<f4', 'bfloat16'")
