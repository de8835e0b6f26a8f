"""NewArray: tensors that were just stored, on their way to the array that they are for."""

from __future__ import annotations

from functools import partial

import numpy as np

from obscodec.arrays.indexing import Index
from obscodec.arrays.tensor_array import TensorArray
from obscodec.errors import DTypeError
from obscodec.segments import Ints
from obscodec.stores import Pin, PinnedStore, Store


class NewArray(TensorArray):
    """Tensors of a store to which nobody else refers. They are dropped with this array, unless they are moved before.

    What they replace in a :class:`PinnedStore` is dropped with this array, not when they are moved: to other threads,
    several arrays seem to be moved at once, nearly, if all of them are kept until the last is moved.

    Args:
        ids: of the tensors, contiguous ``i64``; this array owns one reference for each, also to those that are filled
            in later, where zeros are.
        store: where they are.

    Raises:
        DTypeError: ids have another dtype, or are not contiguous: a copy of them would be released a second time.

    Example:
        >>> from obscodec import FrameStore, Layout
        >>> store = FrameStore(Layout((84, 84), np.uint8))
        >>> frames = TensorArray.zeros((100,), store)
        >>> NewArray(store.append(np.ones((2, 84, 84), np.uint8)), store).move(frames, slice(3, 5))
        True
        >>> frames[2:6].mean(axis=(1, 2))
        array([0., 1., 1., 0.])
    """

    def __init__(self, ids: Ints, store: Store) -> None:
        super().__init__(ids, store)
        if ids.dtype != np.int64 or not ids.flags.c_contiguous:
            raise DTypeError("ids of new tensors are contiguous int64: pass np.ascontiguousarray(ids, np.int64)")
        self._is_moved = False
        if isinstance(store, PinnedStore):
            self._owner, self._pin = Pin(partial(store.drop, ids.reshape(-1))), store.pin()
        else:
            self._owner = Pin(partial(store.give_back, ids.reshape(-1)))

    def move(self, array: TensorArray, index: Index) -> bool:
        """Put these tensors where an index of ``array`` selects, without decoding them.

        Args:
            array: of any store.
            index: of the axes before the items, selecting as many as there are here. Of several places in it for one
                item, the last stays.

        Returns:
            Whether that was possible: not if the array is of another store, or if they were moved before.
        """
        if array.store is not self.store or self._is_moved:
            return False
        array.assign_ids(index, self._ids.reshape(-1))  # which sets them to 0: nothing is left to drop
        self._is_moved = True
        return True
