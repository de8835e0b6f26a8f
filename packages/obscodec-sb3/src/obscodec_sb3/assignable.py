"""Whether SB3 can assign a value to a row of one of its arrays."""

import reprlib
from numbers import Number

import numpy as np
import numpy.typing as npt
from obscodec import DTypeError, ShapeError
from obscodec.layout import as_numbers


def check_assignable(what: str, value: npt.ArrayLike, array: npt.NDArray[np.generic]) -> None:
    """Make sure that ``value`` can be assigned to a row of ``array``, which stays as it is.

    Raises:
        ShapeError: it has another shape.
        DTypeError: numpy can't make numbers of the dtype of it; or it has a mask or a unit, which would be lost.

    Example:
        >>> check_assignable("rewards", [[1.0, 2.0]], np.zeros((100, 2)))
    """
    shape = array.shape[1:]
    if type(value) is np.ndarray and value.shape == shape and value.dtype.kind in "biuf":
        return
    numbers = as_numbers(value)
    given = numbers.shape
    spare = max(0, len(given) - len(shape))
    pairs = zip(reversed(given), reversed(shape), strict=False)
    if given[:spare] != (1,) * spare or any(length not in (1, of) for length, of in pairs):
        raise ShapeError(f"expected {what} of shape {shape}, got {given}")
    try:
        if numbers.dtype.kind in "OSU" and not all(isinstance(x, Number) for x in numbers.reshape(-1).tolist()):
            raise TypeError  # numpy would make NaN of None, and 10.0 of "10"
        np.empty(shape, array.dtype)[...] = numbers
    except (TypeError, ValueError, OverflowError):
        raise DTypeError(f"{what} must be numbers that {array.dtype} can hold, got {reprlib.repr(value)}") from None
