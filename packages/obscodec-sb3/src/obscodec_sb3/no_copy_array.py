"""NoCopyArray: an array that ``np.array`` returns as it is."""

import numpy as np
import numpy.typing as npt


class NoCopyArray:
    """An array for a function that copies its argument, where a second copy follows anyway.

    SB3's ``add`` copies an observation with ``np.array`` before it assigns it; a compressed array copies what it is
    assigned. The first copy would take as long as the rest of the step, in memory that is never used again.

    Example:
        >>> array = np.zeros(3)
        >>> np.array(NoCopyArray(array)) is array
        True
    """

    __slots__ = ("_array",)

    def __init__(self, array: npt.NDArray[np.generic]) -> None:
        self._array = array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[np.generic]:
        return self._array
