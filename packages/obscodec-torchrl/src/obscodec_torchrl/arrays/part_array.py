"""PartArray: parts of compressed tensors, decoded, in the place of a TensorArray."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt
from obscodec.arrays import Index
from obscodec.layout import ArrayLike, Layout, as_array


class PartArray:
    """Parts of the items of a compressed array, decoded. It is read-only: a write would change nothing but a copy.

    It has the attributes of a :class:`TensorArray`, each number being an item of its own.

    Args:
        numbers: a numpy array, or one with DLPack.

    Example:
        >>> PartArray(np.arange(6).reshape(2, 3))[1]
        array([3, 4, 5])
    """

    def __init__(self, numbers: ArrayLike) -> None:
        self.ids = ids = as_array(numbers)
        self.layout = Layout((), ids.dtype)
        self.shape, self.dtype, self.nbytes = ids.shape, ids.dtype, ids.nbytes

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: Index) -> npt.NDArray[np.generic]:
        return np.array(self.ids[index])

    def __setitem__(self, index: Index, value: npt.ArrayLike) -> NoReturn:
        raise TypeError("a view of parts of compressed items can only be read: assign to them, as in x[3, 0] = value")

    def __repr__(self) -> str:
        return f"PartArray({self.ids!r})"

    def selects_items(self, index: Index) -> bool:
        """True: each number is an item."""
        del index
        return True

    def _view(self, ids: npt.NDArray[np.generic]) -> PartArray:
        return PartArray(ids)
