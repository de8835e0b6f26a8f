"""NoCopyArray: an array that ``np.array`` returns as it is."""

import numpy as np
import numpy.typing as npt


class NoCopyArray:
    """Gives its array to ``np.array`` without a copy.

    SB3's ``add`` copies an observation with ``np.array`` before it assigns the copy to an array; a compressed array
    copies it again. The first copy would take as long as the rest of the step.

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
