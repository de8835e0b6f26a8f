"""Column: what an environment says at each step, such as a reward or a flag: an array with a byte for each item.

Such an array has few distinct numbers, mostly.
"""

from __future__ import annotations

from copy import deepcopy
from math import prod
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from obscodec.columns.coded_array import CodedArray, Numbers
from obscodec.columns.items import N_WORDS, UNKNOWN, VALUES
from obscodec.errors import CorruptStream
from obscodec.state import State, array_of, check_range, part_of

_MOST = 256  # values that a byte can name
_CHUNK = 1 << 13  # items


class Column(CodedArray):
    """An array that keeps a code of one byte for each item, as long as it has at most 256 distinct numbers.

    Numbers that differ in a bit are distinct, such as 0.0 and -0.0. With more of them, the array keeps the numbers:
    integers in as few bytes as all of them need. It behaves like a plain array, except that a part of it is a copy:
    ``array[2:4]`` can only be read, and ``array[2:4] = 1`` assigns.

    Args:
        items: the array that it has inside, without codes.
        dtype: the dtype of its numbers; None for that of ``items``, which has as many bytes or fewer.

    Attributes:
        words: ``i64[N_WORDS]``, by which kernels find the items.
    """

    def __init__(self, items: Numbers, dtype: np.dtype[Any] | None = None) -> None:
        self.dtype = dtype or items.dtype
        self._kept: tuple[Numbers, Numbers | None] = items, None  # one step sets both: items, and numbers by their code
        self._codes: dict[int, int] = {}  # by the bits of a value
        self.words = np.zeros(N_WORDS, np.int64)
        self._bind()

    @classmethod
    def zeros(cls, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Self:
        """An array of zeros, which takes no memory until it is written."""
        dtype = np.dtype(dtype)
        if dtype.kind not in "iuf" or dtype.itemsize not in (2, 4, 8):
            return cls(np.zeros(shape, dtype))
        array = cls(np.zeros(shape, np.uint8))
        array.dtype, array._kept, array._codes = dtype, (array._kept[0], np.zeros(_MOST, dtype)), {0: 0}
        array._bind()
        return array

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self._kept[0].shape

    @property
    def memory_bytes(self) -> int:
        """Bytes of its memory, once all of it is written."""
        return self._kept[0].nbytes

    def learn(self, row: Numbers) -> None:
        """Prepare to hold the numbers of a row."""
        self._encoded(row)
        self._bind()

    def __len__(self) -> int:
        return len(self._kept[0])

    def __getitem__(self, index: Any) -> Any:
        items, values = self._kept
        found = items[index]
        base = found.base if isinstance(found, np.ndarray) else None
        found = self._decoded(found, values)
        if base is not None and (base is items or base is items.base):  # a part, not a copy
            found.flags.writeable = False
        return found

    def __setitem__(self, index: Any, value: npt.ArrayLike) -> None:
        new = np.empty(np.shape(self._kept[0][index]), self.dtype)
        new[...] = value
        encoded = self._encoded(new)
        self._kept[0][index] = encoded

    def __repr__(self) -> str:
        return f"Column(shape={self.shape}, dtype={self.dtype})"

    def state(self, n_rows: int) -> State:
        """The first rows: see ``obscodec.state``."""
        items, values = self._kept
        return {"items": items[:n_rows].copy(), "values": None if values is None else values[: len(self._codes)].copy()}

    def restore(self, state: State) -> None:
        """Fill this array, which is made of zeros, from its first row on.

        Raises:
            CorruptStream: no array of this shape and dtype has such a state.
        """
        items, values = part_of(state, "items", np.ndarray), state.get("values")
        if items.shape[1:] != self.shape[1:] or len(items) > len(self) or items.dtype.kind not in "iuf":
            raise CorruptStream(f"rows of {self.shape}, {self.dtype} are not {items.shape}, {items.dtype}")
        if values is not None:
            values = array_of(state, "values", self.dtype, (None,))
            check_range("items", items, 0, len(values) - 1)
            if self._take_codes(items, values):
                return
            items = values[items]
        for begin in range(0, len(items), _CHUNK):
            chunk = items[begin : begin + _CHUNK]
            self[begin : begin + len(chunk)] = chunk

    def _take_codes(self, items: Numbers, values: Numbers) -> bool:
        """Take codes and their numbers over, if they are as those of an array of zeros that learned them."""
        own_items, own_values = self._kept
        bits = values.view(f"u{self.dtype.itemsize}").tolist()
        are_codes = bits[:1] == [0] and len({*bits}) == len(bits) <= _MOST
        if own_values is None or items.dtype != own_items.dtype or not are_codes:
            return False
        own_values[: len(values)], own_items[: len(items)] = values, items
        self._codes = {number: code for code, number in enumerate(bits)}
        self._bind()
        return True

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "words"}  # which are addresses

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, words=np.zeros(N_WORDS, np.int64))
        self._bind()

    def __copy__(self) -> Column:
        return deepcopy(self)  # two tables for one array of codes would disagree

    def _decoded(self, items: Any, values: Numbers | None) -> Any:
        return items.astype(self.dtype, copy=False) if values is None else values.take(items)

    def _encoded(self, numbers: Numbers) -> Numbers:
        """Numbers as items, which can hold them from now on."""
        values = self._kept[1]
        if values is not None:
            bits = np.dtype(f"u{self.dtype.itemsize}")
            distinct, which = np.unique(numbers.reshape(-1).view(bits), return_inverse=True)
            for number in distinct.tolist():
                if number not in self._codes:
                    if len(self._codes) == _MOST:
                        self._keep_as(np.dtype("i2") if self.dtype.kind == "i" else self.dtype)
                        break
                    values.view(bits)[len(self._codes)] = number
                    self._codes[number] = len(self._codes)
            else:
                codes = np.array([self._codes[number] for number in distinct.tolist()], np.uint8)
                return codes[which].reshape(numbers.shape)
        while True:
            kept = self._kept[0].dtype
            items = numbers.astype(kept)
            if kept == self.dtype or (items == numbers).all():
                return items
            self._keep_as(np.dtype(f"i{2 * kept.itemsize}"))

    def _keep_as(self, dtype: np.dtype[Any]) -> None:
        """Keep numbers of a dtype, or of a wider one if they need it, no codes any more."""
        items, values = self._kept
        if values is not None and dtype != self.dtype:
            known = values[: len(self._codes)]
            while (known.astype(dtype) != known).any():
                dtype = np.dtype(f"i{2 * dtype.itemsize}")
        new = np.zeros(items.shape, dtype)
        for begin in range(0, items.size, _CHUNK):
            chunk = items.reshape(-1)[begin : begin + _CHUNK]
            if chunk.any():  # else it is zeros, maybe without memory
                new.reshape(-1)[begin : begin + _CHUNK] = self._decoded(chunk, values).astype(dtype)
        self.words[VALUES:] = UNKNOWN, 0  # kernels know no number until the words are new
        self._kept = new, None
        self._bind()

    def _bind(self) -> None:
        items, values = self._kept
        of_items = items.ctypes.data, prod(items.shape[1:]), self.dtype.itemsize, items.itemsize
        self.words[:] = *of_items, 0 if values is None else values.ctypes.data, len(self._codes)
