"""What SB3's ``add`` would refuse in the middle: found before it stores anything."""

import reprlib
from numbers import Number
from typing import Any

import numpy as np
import numpy.typing as npt
from obscodec import DTypeError, ShapeError
from obscodec.layout import as_numbers


def as_actions(actions: Any, shape: tuple[int, int]) -> npt.NDArray[np.generic]:
    """Actions as an array ``[n_envs, action_dim]``, which is ``shape``.

    Raises ShapeError if there are more or fewer numbers, DTypeError if numpy can't make an array of them.
    """
    numbers = actions if type(actions) is np.ndarray else as_numbers(actions)
    if numbers.size != shape[0] * shape[1]:
        raise ShapeError(f"expected actions of shape {shape} (n_envs={shape[0]}), got {numbers.shape}")
    return numbers.reshape(shape)


def check_infos(infos: Any, n_envs: int) -> None:
    """Raise DTypeError unless ``infos`` is a list of dictionaries, ShapeError unless one for each environment."""
    try:
        n_infos = len([info.get("TimeLimit.truncated") for info in infos])
    except (AttributeError, TypeError):
        found = reprlib.repr(infos)
        raise DTypeError(f"infos must be a list of a dict for each environment, got {found}") from None
    if n_infos != n_envs:
        raise ShapeError(f"expected infos of {n_envs} environments, got {n_infos}")


def check_assignable(what: str, value: npt.ArrayLike, array: npt.NDArray[np.generic]) -> None:
    """Make sure that ``value`` can be assigned to a row of ``array``, which does not change here.

    Raises ShapeError for another shape, DTypeError for what is no number that the array can hold, or has a mask or a
    unit, which would be lost.
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
