"""Lent: an array that ``np.array`` hands on as it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Lent:
    """An array for a function that copies what it gets, where one more copy follows anyway.

    Buffers of other libraries copy an observation with ``np.array`` before they assign it; compressed arrays copy what
    they are assigned. The first copy would cost as much time as the rest, and memory that is never used again.

    Example:
        >>> array = np.zeros(3)
        >>> np.array(Lent(array)) is array
        True
    """

    __slots__ = ("_array",)

    def __init__(self, array: npt.NDArray[np.generic]) -> None:
        self._array = array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[np.generic]:
        return self._array
