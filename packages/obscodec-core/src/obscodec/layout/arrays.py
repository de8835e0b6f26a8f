"""Arrays of any library in CPU memory as numpy arrays, without a copy."""

import reprlib
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from obscodec.arguments import check_elements, in_parts, kind_of
from obscodec.errors import DTypeError
from obscodec.layout.dlpack import SupportsDLPack, from_dlpack
from obscodec.layout.dtypes import EXTENDED

ArrayLike = npt.NDArray[np.generic] | np.generic | SupportsDLPack | bytes | bytearray | memoryview

_NUMBERS = (bool, int, float)
_OF_PYTHON = (*_NUMBERS, list, tuple)  # to ask each of these for DLPack takes longer


def as_array(x: ArrayLike) -> npt.NDArray[np.generic]:
    """``x`` as a numpy array that shares its memory.

    Args:
        x: a numpy array or scalar, or an object with ``__dlpack__`` (a torch CPU tensor) or the buffer protocol.

    Raises:
        DTypeError: ``x`` is none of these (a list has no dtype), is in the memory of another device, or has a mask or a
            unit, which would be lost.

    Example:
        >>> as_array(bytearray(b"abc"))
        array([97, 98, 99], dtype=uint8)
    """
    if type(x) is np.ndarray:
        return x
    check_elements(x)
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    if isinstance(x, SupportsDLPack):
        return from_dlpack(x)
    try:
        return np.asarray(memoryview(x))
    except TypeError:
        raise DTypeError(
            f"expected a numpy array, or an object with __dlpack__ or the buffer protocol, got {kind_of(x)}"
            f"{in_parts(x) or ': convert it first, as in numpy.asarray(x, dtype=...)'}"
        ) from None


def as_numbers(x: ArrayLike | npt.ArrayLike) -> npt.NDArray[np.generic]:
    """``x`` as a numpy array: whatever :func:`as_array` takes, or numbers in lists, whose dtype numpy chooses.

    Raises:
        DTypeError: ``x`` is neither, or :func:`as_array` refuses it.

    Example:
        >>> as_numbers([1.5, 2])
        array([1.5, 2. ])
    """
    if type(x) is np.ndarray:
        return x
    # Numpy's own first: asking an object for a protocol takes longer than all else in an ``append``.
    if type(x) not in _OF_PYTHON and isinstance(x, (np.ndarray, np.generic, SupportsDLPack)):
        return as_array(x)
    if type(x) not in _NUMBERS:
        check_elements(x)
        if parts := in_parts(x):
            raise DTypeError(f"expected an array, or numbers in lists, got {kind_of(x)}{parts}")
    try:
        return np.asarray(x)
    except (TypeError, ValueError):
        raise DTypeError(f"expected an array, or numbers in lists of equal lengths, got {reprlib.repr(x)}") from None


def as_writable(out: ArrayLike) -> npt.NDArray[np.generic]:
    """:func:`as_array` of an array that can be written.

    Raises:
        DTypeError: ``out`` is no array, or read-only.
    """
    array = as_array(out)
    if not array.flags.writeable or isinstance(out, np.generic):
        raise DTypeError(f"out is a read-only {type(out).__name__}, pass one that can be written")
    return array


def as_dtype(x: npt.NDArray[np.generic], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """``x`` in another dtype, as if assigned to an ndarray, but without silent changes.

    Only floats may be rounded, to a narrower float; any other change of dtype must keep every value.

    Raises:
        DTypeError: a value would change.

    Example:
        >>> as_dtype(np.array([1.0, 255.0]), np.dtype(np.uint8))
        array([  1, 255], dtype=uint8)
    """
    if x.dtype == dtype:
        return x
    if x.dtype.kind == dtype.kind and dtype.kind in "fc":
        return x.astype(dtype)
    try:
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # complex numbers that lose their imaginary part
            cast = _cast(x, dtype)
            back = _cast(cast, x.dtype)  # 2**53 + 1 equals its float, which equals 2**53
        kept = same_values(cast, x) and same_values(back, x)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a text is no date
        kept = False
    if not kept:
        found = f"values of dtype {x.dtype}{_example(x, dtype)}"
        raise DTypeError(
            f"{found} would be changed by dtype {dtype}: cast them yourself, or use a dtype that can hold them"
        )
    return cast


def _cast(x: npt.NDArray[np.generic], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    if not are_within(x, dtype).all():
        raise OverflowError
    return x.astype(dtype)


def are_within(x: npt.NDArray[np.generic], dtype: np.dtype[np.generic]) -> npt.NDArray[np.bool_]:
    """Which numbers are within the range of a dtype, if it is one of integers and they are not; else all.

    What a processor makes of another float, or of NaN, depends on the processor.

    Example:
        >>> are_within(np.array([-1.0, 2.0**63, 5.5, np.nan]), np.dtype(np.int64))
        array([ True, False,  True, False])
    """
    if dtype.kind not in "iu" or not (x.dtype.kind in "fc" or x.dtype.name in EXTENDED):
        return np.ones(x.shape, np.bool_)
    real: npt.NDArray[Any] = x.real if x.dtype.kind == "c" else x
    exact = real if real.dtype.itemsize > 4 else real.astype(np.float64)  # a half has no number for 2**63
    limits = np.iinfo(dtype.str)
    return np.asarray((exact >= limits.min) & (exact < 2.0 ** (limits.bits - (dtype.kind == "i"))))


def _example(x: npt.NDArray[np.generic], dtype: np.dtype[np.generic]) -> str:
    """The first number that ``dtype`` would change, for an error; nothing if comparing does not find it."""
    if x.dtype.kind not in "iuf" or dtype.kind not in "biuf":
        return ""
    flat = x.reshape(-1)
    changed = flat[~are_within(flat, dtype)]
    if not len(changed):
        with np.errstate(over="ignore"):  # a narrower float
            changed = flat[flat.astype(dtype) != flat]
    return f", such as {changed[0]}," if len(changed) else ""


def same_values(x: npt.NDArray[np.generic], y: npt.NDArray[np.generic]) -> bool:
    """Whether two arrays have the same shape and numbers, where NaN is NaN.

    ``np.array_equal`` catches what a signal handler raises in it, and answers that they differ.
    """
    if x.shape != y.shape:
        return False
    same = x == y
    if y.dtype.kind in "fcmM":
        same |= (x != x) & (y != y)
    return bool(same.all())
