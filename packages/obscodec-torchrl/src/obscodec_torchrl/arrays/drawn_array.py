"""DrawnArray: items that were selected from an array, to be decoded later, whatever is written meanwhile."""

import numpy as np
import numpy.typing as npt
from obscodec import TensorArray
from obscodec.arrays import Index
from obscodec.segments import Ints


class DrawnArray(TensorArray):
    """The items that an index selects, as they are now. Nothing is decoded before it is read.

    A guard keeps these items. If they are overwritten, the store drops them when this array and all its views are gone.

    Args:
        array: the array.
        index: of the axes before the items.

    Raises:
        IndexError: the index is out of range.

    Example:
        >>> from obscodec import FrameStore, Layout
        >>> frames = TensorArray.zeros((100,), FrameStore(Layout((84, 84), np.uint8)))
        >>> drawn = DrawnArray(frames, [3, 5])
        >>> frames[5] = np.ones((84, 84), np.uint8)
        >>> int(drawn[...].max()), int(frames[5].max())
        (0, 1)
    """

    def __init__(self, array: TensorArray, index: Index) -> None:
        # Before the ids are copied, or another thread could release them in between.
        self._guard = array.store.guard()
        super().__init__(np.array(array.ids[index]), array.store)

    def __setitem__(self, index: Index, value: npt.ArrayLike) -> None:
        raise TypeError("what was drawn from an array can't be assigned to: read it, and change the copy")

    def assign_ids(self, index: Index, ids: Ints) -> None:
        """Raise ``TypeError``: the references belong to another array."""
        self[index] = ids

    def _view(self, ids: npt.NDArray[np.signedinteger]) -> TensorArray:
        view = self.__new__(type(self))
        vars(view).update(vars(self), _ids=ids)  # with the guard
        return view
