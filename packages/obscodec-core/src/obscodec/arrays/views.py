"""Views of compressed arrays: what an index has drawn, parts of items, and what torch describes by strides."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from obscodec.arrays.indexing import Index
from obscodec.arrays.tensor_array import TensorArray
from obscodec.layout import ArrayLike, Layout, as_array
from obscodec.segments import Ints
from obscodec.stores import Store


class BorrowedArray(TensorArray):
    """Items whose references belong to another object, which this array keeps. A copy or a pickle is decoded."""

    def __init__(self, ids: npt.NDArray[np.signedinteger], store: Store, owner: object) -> None:
        self._owner = owner
        super().__init__(ids, store)

    def _own(self) -> None:
        """Nothing."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self[...].__reduce_ex__(protocol)  # the copy would have no references


class DrawnArray(BorrowedArray):
    """The items that an index selects, as they are now. Nothing is decoded before it is read.

    A guard keeps these items. If they are overwritten, the store drops them when this array and all its views are gone.

    Raises:
        IndexError: the index, of the axes before the items, is out of range.
    """

    def __init__(self, array: TensorArray, index: Index) -> None:
        guard = array.store.guard()  # before the ids are copied, or another thread could release them in between
        super().__init__(np.array(array.ids[index]), array.store, guard)

    def __setitem__(self, index: Index, value: npt.ArrayLike) -> None:
        raise TypeError("what was drawn from an array can't be assigned to: read it, and change the copy")

    def assign_ids(self, index: Index, ids: Ints) -> None:
        """Raise ``TypeError``: the references belong to another array."""
        self[index] = ids


class PartArray:
    """Parts of the items of a compressed array, decoded. It is read-only: a write would change nothing but a copy.

    It has the attributes of a :class:`TensorArray`, each number being an item of its own.
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

    def row(self, index: int) -> PartArray:
        """A view of a row."""
        return PartArray(self.ids[index, ...])

    def __repr__(self) -> str:
        return f"PartArray({self.ids!r})"

    def _view(self, ids: npt.NDArray[np.generic]) -> PartArray:
        return PartArray(ids)


def strides_of(array: TensorArray | PartArray) -> tuple[int, ...]:
    """The strides, in elements, of an ndarray that has an item for each id. Rows that wait go on waiting."""
    ids: npt.NDArray[np.generic] = array._ids if isinstance(array, TensorArray) else array.ids
    n, item = math.prod(array.layout.shape), array.layout.shape
    return *(stride // ids.itemsize * n for stride in ids.strides), *_contiguous(item)


def strided_view(
    array: TensorArray | PartArray, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> TensorArray | PartArray | None:
    """A view of ``array`` that writes through; None if its items would not be whole.

    ``array`` has the strides of :func:`strides_of`. Those of the view, 0 or more, and the offset at which it begins are
    in elements.
    """
    item, ids = array.layout.shape, array.ids
    n, k = math.prod(item), len(shape) - len(item)
    if k < 0 or shape[k:] != item or offset % n:
        return None
    steps = zip(shape, strides, [None] * k + [*_contiguous(item)], strict=True)  # None for any multiple of an item
    if any(size > 1 and (stride % n if step is None else stride != step) for size, stride, step in steps):
        return None
    flat = as_strided(ids, (offset // n + 1,), (ids.itemsize,))[-1:]  # which begins where the view does
    return array._view(as_strided(flat, shape[:k], [stride // n * ids.itemsize for stride in strides[:k]]))


@cache
def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
