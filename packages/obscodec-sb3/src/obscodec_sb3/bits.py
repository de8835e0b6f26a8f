"""Bits: an array of numbers of which there are two, such as action masks, with a bit for each."""

from __future__ import annotations

from copy import deepcopy
from math import prod
from types import EllipsisType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from obscodec import CorruptStream
from obscodec.arrays import index_parts, n_axes
from obscodec.columns import CodedArray
from obscodec.state import State, array_of, part_of
from obscodec.stats import StoreStats

_CHUNK = 1 << 20  # bytes of a plain array
_FLAG = np.dtype(bool)
_BYTES = np.arange(256, dtype=np.uint8)[:, None]

Numbers = npt.NDArray[Any]


class Bits(CodedArray):
    """An array that keeps a bit for each number, as long as it has at most two distinct ones.

    Numbers that differ in a bit are distinct, such as 0.0 and -0.0. With more of them, the array keeps the numbers, as
    a plain array does. Until then, a part of it is a copy: ``array[2:4]`` can only be read, and ``array[2:4] = 1``
    assigns. Axes before the last one can be exchanged and reshaped without a copy.

    Args:
        shape: its shape, with two axes at least.
        values: one or two distinct numbers; all numbers of the array are the first one.

    Attributes:
        dtype: the dtype of the numbers.
    """

    def __init__(self, shape: tuple[int, ...], values: Numbers) -> None:
        self.dtype = values.dtype
        self._bits_dtype = np.dtype(f"u{values.itemsize}")
        self._n = shape[-1]  # numbers in a row of bits
        # One step sets both: bits, and the numbers that a byte of them stands for; or numbers, and nothing.
        bits = np.zeros((*shape[:-1], -(-self._n // 8)), np.uint8)
        self._kept: tuple[Numbers, _Values | None] = bits, _Values(values.reshape(-1))

    @classmethod
    def of(cls, array: Numbers) -> Self | None:
        """An equal array; None if ``array`` has more than two distinct numbers."""
        made = cls(array.shape, array[(-1,) * array.ndim].reshape(1))
        rows, (first,) = max(1, _CHUNK * len(array) // max(1, array.nbytes)), made._bits_of(made.values)
        for begin in range(0, len(array), rows):
            chunk = array[begin : begin + rows]
            bits = chunk.view(made._bits_dtype)
            if (bits != first).any() if first else bits.any():
                made[begin : begin + rows] = chunk
                if not made.is_packed:
                    return None
        return made

    @property
    def is_packed(self) -> bool:
        """Whether it keeps bits."""
        return self._kept[1] is not None

    @property
    def values(self) -> Numbers:
        """The numbers that it has had, one or two; none if it does not keep bits."""
        values = self._kept[1]
        return np.empty(0, self.dtype) if values is None else values.numbers

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return (*self._kept[0].shape[:-1], self._n)

    @property
    def memory_bytes(self) -> int:
        """Bytes of its memory, once all of it is written."""
        return self._kept[0].nbytes

    def stats(self, used: float) -> StoreStats:
        """What a part of its rows takes."""
        raw_bytes, nbytes = round(used * self.nbytes), round(used * self.memory_bytes)
        n = round(used * prod(self.shape[:-1]))
        return StoreStats(n, raw_bytes, nbytes, nbytes, 0, 0, growing_bytes=nbytes, codec="bits", block_frames=1)

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        """A view with two axes exchanged, which can only be read; a copy as a plain array, if one is the last axis."""
        items, values = self._kept
        if values is None or self.ndim - 1 in (axis1 % self.ndim, axis2 % self.ndim):
            return self[...].swapaxes(axis1, axis2)
        return self._with(items.swapaxes(axis1, axis2))

    def reshape(self, *shape: int | tuple[int, ...]) -> Any:
        """The same numbers with other axes; as a plain array, if the last axis changes. A view can only be read."""
        items, values = self._kept
        wanted = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        if values is None or len(wanted) < 2 or wanted[-1] != self._n:
            return self[...].reshape(*shape)
        return self._with(items.reshape(*wanted[:-1], items.shape[-1]))  # type: ignore[arg-type]

    def _with(self, items: Numbers) -> Self:
        """An array with other bits, which may be in the memory of this one."""
        if np.may_share_memory(items, self._kept[0]):
            items.flags.writeable = False
        made = object.__new__(type(self))
        vars(made).update(vars(self), _kept=(items, self._kept[1]))
        return made

    def __len__(self) -> int:
        return len(self._kept[0])

    def __getitem__(self, index: Any) -> Any:
        items, values = self._kept
        if values is None:
            return items[index]
        rows, inside = self._split(index)
        found = values.table.take(items[rows], axis=0)
        found = found.reshape(*found.shape[:-2], 8 * items.shape[-1])[..., : self._n]
        found = found if inside is ... else found[inside]
        if isinstance(found, np.ndarray) and not _copies(index):
            found.flags.writeable = False
        return found

    def __setitem__(self, index: Any, value: npt.ArrayLike) -> None:
        items, values = self._kept
        if values is None:
            items[index] = value
            return
        is_mask = type(index) is int and type(value) is np.ndarray and value.dtype is _FLAG
        if is_mask and values.are_flags and value.shape[-1:] == (self._n,):  # type: ignore[union-attr]
            items[index] = np.packbits(value, axis=-1)  # type: ignore[arg-type]
            return
        if not items.flags.writeable:
            raise ValueError("this array can only be read: it is a view, assign to the original")
        rows, inside = self._split(index)
        numbers = np.empty((*items[rows].shape[:-1], self._n), self.dtype) if inside is ... else np.array(self[rows])
        numbers[inside] = value
        known, is_second = values.with_numbers(numbers)
        if known is None:
            plain = self._unpacked(items, values)
            plain[rows] = numbers
            self._kept = plain, None
            return
        if known is not values:
            if not known.are_flags and (flags := _Values(known.numbers[::-1])).are_flags:
                known, items, is_second = flags, ~items, ~is_second
            self._kept = items, known
        items[rows] = np.packbits(is_second, axis=-1)

    def _unpacked(self, items: Numbers, values: _Values) -> Numbers:
        """All numbers; zeros take no memory until they are written."""
        plain = np.zeros(self.shape, self.dtype)
        n_rows = max(1, _CHUNK * len(items) // max(1, self.nbytes))
        for begin in range(0, len(items), n_rows):
            rows = slice(begin, begin + n_rows)
            if values.numbers[:1].tobytes().strip(b"\0") or items[rows].any():
                plain[rows] = self[rows]
        return plain

    def _bits_of(self, numbers: Numbers) -> list[int]:
        bits: list[int] = numbers.view(self._bits_dtype).tolist()
        return bits

    def _split(self, index: Any) -> tuple[Any, Any]:
        """An index of whole rows of bits, and one of their numbers, ``...`` for all."""
        if type(index) is int or index is ... or (type(index) is np.ndarray and index.dtype.kind in "iu"):
            return index, ...
        parts = index_parts(index, self.ndim)
        while parts and isinstance(parts[-1], slice) and parts[-1] == slice(None):
            parts.pop()
        if sum(map(n_axes, parts)) < self.ndim:
            return tuple(parts), ...
        if _copies(tuple(parts)) or None in parts:
            return ..., index
        n = sum(isinstance(part, slice) for part in parts[:-1])
        return tuple(parts[:-1]), (*[slice(None)] * n, parts[-1])

    def state(self, n_rows: int) -> State:
        """The first rows: see ``obscodec.state``."""
        items, values = self._kept
        if values is None:
            return {"items": items[:n_rows].copy()}
        return {"bits": items[:n_rows].copy(), "values": values.numbers.copy()}

    @classmethod
    def restored(cls, state: State, array: Any) -> Self:
        """The array with a :meth:`state`, in the place of one of its shape that nothing was written to.

        It is flat, ``[n_envs * n_steps, ...]``, if it was.

        Raises:
            CorruptStream: no array of this shape and dtype has such a state.
        """
        bits, values = part_of(state, "bits", np.ndarray), array_of(state, "values", array.dtype, (None,))
        made = cls(array.shape, array[(-1,) * array.ndim])
        items, known, (behind,) = made._kept[0], made._bits_of(values), made._bits_of(made.values)
        fits = bits.dtype == np.uint8 and bits.shape[-1:] == items.shape[-1:]
        is_flat = bits.shape[1:] != items.shape[1:] and bits.size == items.size
        fits &= is_flat or (bits.shape[1:] == items.shape[1:] and len(bits) <= len(items))
        fits &= behind in known or bits.size == items.size
        if not fits or len({*known}) != len(known) or len(known) not in (1, 2) or (len(known) == 1 and bits.any()):
            raise CorruptStream(f"bits of {array.dtype} {array.shape} are not {bits.shape} of the numbers {values}")
        if is_flat:
            items = bits.copy()
        else:
            items[: len(bits)] = bits
            items[len(bits) :] = 255 * (behind == known[-1]) if len(known) == 2 else 0
        made._kept = items, _Values(values)
        return made

    def __copy__(self) -> Bits:
        return deepcopy(self)  # two tables for one array of bits would disagree

    def __repr__(self) -> str:
        return f"Bits(shape={self.shape}, dtype={self.dtype})"


class _Values:
    """One or two numbers, of which a bit names one."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.table = numbers[[0, -1]][np.unpackbits(_BYTES, axis=1)]  # [256, 8]: the numbers of a byte
        self._bits = numbers.view(f"u{numbers.itemsize}")
        self.are_flags = numbers.tobytes() == np.array([0, 1], numbers.dtype).tobytes()

    def with_numbers(self, array: Numbers) -> tuple[_Values | None, npt.NDArray[np.bool_]]:
        """Values that have all numbers of an array, None if they are too many; and which are the second one."""
        bits = array.view(self._bits.dtype)
        is_second: npt.NDArray[np.bool_] = bits != self._bits[0]
        values = self
        if len(self.numbers) == 1 and is_second.any():
            values = _Values(np.append(self.numbers, array.reshape(-1)[is_second.argmax()]))
        n = np.count_nonzero(is_second)
        return (values if n == np.count_nonzero(is_second & (bits == values._bits[-1])) else None), is_second


def _copies(index: Any) -> bool:
    """Whether numpy copies what an index selects."""
    parts = index if isinstance(index, tuple) else (index,)
    return not all(isinstance(part, (int, np.integer, slice, EllipsisType, type(None))) for part in parts)
