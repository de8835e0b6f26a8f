"""PaletteArray: an array of few distinct numbers, with a byte for each item.

Rewards, actions and flags of an environment are mostly such arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from math import prod
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
from numpy.lib.mixins import NDArrayOperatorsMixin

from obscodec.errors import CorruptStream
from obscodec.kernels import (
    address,
    compiled,
    compiled_with_gil,
    copy,
    inlined,
    int64s_at,
    load_u8,
    load_u16,
    load_u32,
    load_u64,
    signed,
    store_u8,
    unsigned,
)
from obscodec.segments import Bytes, Ints
from obscodec.state import State, array_of, check_range, part_of

_MOST = 256  # values that a byte can name
_CHUNK = 1 << 13  # items

# The words by which kernels find a PaletteArray.
_ITEMS: Final = 0  # address of the items: codes, or numbers
_IN_ROW: Final = 1  # how many of them
_NBYTES: Final = 2  # of a number
_ITEM_NBYTES: Final = 3  # of an item
_VALUES: Final = 4  # address of the numbers that codes stand for; 0 if the items are numbers
_N_VALUES: Final = 5
N_WORDS: Final = 6

_UNKNOWN: Final = -1  # no address
_ALIGNMENT: Final = 8
_PLACE = np.dtype(np.int64)

Numbers = npt.NDArray[Any]


class PaletteArray(NDArrayOperatorsMixin):
    """An array that keeps a code of one byte for each item, as long as it has at most 256 distinct numbers.

    Numbers that differ in a bit are distinct, such as 0.0 and -0.0. With more of them, the array keeps the numbers:
    integers in as few bytes as all of them need. It behaves like a plain array, except that a part of it is a copy:
    ``array[2:4]`` can only be read, and ``array[2:4] = 1`` assigns.

    Args:
        items: the array that it has inside, without codes.
        dtype: the dtype of its numbers; None for that of ``items``, which has as many bytes or fewer.

    Attributes:
        dtype: the dtype of the numbers.
        words: ``i64[N_WORDS]``, by which kernels find the items.

    Example:
        >>> rewards = PaletteArray.zeros((1000, 2), np.float32)
        >>> rewards[3] = [1, -0.5]
        >>> rewards[2:4].tolist(), rewards.memory_bytes
        ([[0.0, 0.0], [1.0, -0.5]], 2000)
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
    def ndim(self) -> int:
        """The number of its axes."""
        return self._kept[0].ndim

    @property
    def size(self) -> int:
        """The number of its items."""
        return self._kept[0].size

    @property
    def nbytes(self) -> int:
        """Bytes of the plain array."""
        return self.size * self.dtype.itemsize

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
        is_view = isinstance(found, np.ndarray) and found.base is not None and np.may_share_memory(found, items)
        found = self._decoded(found, values)
        if is_view:
            found.flags.writeable = False
        return found

    def __setitem__(self, index: Any, value: npt.ArrayLike) -> None:
        new = np.empty(np.shape(self._kept[0][index]), self.dtype)
        new[...] = value
        encoded = self._encoded(new)
        self._kept[0][index] = encoded

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> Numbers:
        if copy is False:
            raise ValueError("a PaletteArray can't be read without a copy")
        numbers: Numbers = self[...]
        return np.array(numbers, dtype) if copy else np.asarray(numbers, dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out", ())
        inputs = tuple(x[...] if isinstance(x, PaletteArray) else x for x in inputs)
        if out:
            kwargs["out"] = tuple(np.array(x) if isinstance(x, PaletteArray) else x for x in out)
        result = getattr(ufunc, method)(*inputs, **kwargs)
        for array, changed in zip(out, kwargs.get("out", ()), strict=True):
            if isinstance(array, PaletteArray):
                array[...] = changed
        return out[0] if len(out) == 1 else result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self[...], name)  # of an array that can only be read

    def __repr__(self) -> str:
        return f"PaletteArray(shape={self.shape}, dtype={self.dtype})"

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

    def __copy__(self) -> PaletteArray:
        return deepcopy(self)  # two palettes for one array of codes would disagree

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
        self.words[_VALUES:] = _UNKNOWN, 0  # kernels know no number until the words are new
        self._kept = new, None
        self._bind()

    def _bind(self) -> None:
        items, values = self._kept
        of_items = items.ctypes.data, prod(items.shape[1:]), self.dtype.itemsize, items.itemsize
        self.words[:] = *of_items, 0 if values is None else values.ctypes.data, len(self._codes)


class PaletteColumns:
    """Arrays ``[n_steps, n_envs, ...]`` of which the same items are read together, with one compiled call.

    Args:
        groups: contiguous arrays; those of a group have one dtype and one shape.

    Example:
        >>> rewards, dones = (PaletteArray.zeros((9, 2), np.float32) for _ in range(2))
        >>> rewards[3] = [1, -0.5]
        >>> PaletteColumns([rewards, dones]).take(np.array([3, 3]), np.array([1, 0]))
        [array([[-0.5,  1. ],
               [ 0. ,  0. ]], dtype=float32)]
    """

    def __init__(self, *groups: Sequence[PaletteArray]) -> None:
        self._groups = groups
        self._words = np.array([array.words.ctypes.data for group in groups for array in group], np.int64)
        self._sizes = np.array([len(group) for group in groups], np.int64)
        self._n_steps, self._n_envs = groups[0][0].shape[:2]
        of = [(group[0].dtype, len(group), group[0].shape[2:]) for group in groups]
        self._parts = [
            (dtype, n_arrays, shape, n_arrays * prod(shape) * dtype.itemsize) for dtype, n_arrays, shape in of
        ]

    def take(self, steps: Ints, envs: Ints) -> list[Numbers]:
        """``[n_arrays, n, ...]`` for each group: ``array[steps, envs]`` of its arrays; ``i64[n]`` both."""
        n, end, parts = len(steps), 0, []
        for dtype, n_arrays, shape, nbytes in self._parts:
            parts.append(((n_arrays, n, *shape), dtype, end))
            end += -(-n * nbytes // _ALIGNMENT) * _ALIGNMENT
        out = np.empty(end, np.uint8)
        of_all = self._words, self._sizes, self._n_steps, self._n_envs
        if steps.dtype == envs.dtype == _PLACE and take_items(*of_all, steps, envs, out):
            return [np.ndarray(shape, dtype, out, at) for shape, dtype, at in parts]
        return [np.stack([array[steps, envs] for array in group]) for group in self._groups]


@compiled_with_gil
def take_items(arrays: Ints, sizes: Ints, n_steps: int, n_envs: int, steps: Ints, envs: Ints, out: Bytes) -> bool:
    """Copy numbers out of arrays, those of each array behind those of the one before it.

    Args:
        arrays: ``i64[n_arrays]``, the addresses of their words.
        sizes: ``i64[n_groups]``, how many arrays belong together.
        n_steps: how many steps each has.
        n_envs: how many environments.
        steps: ``i64[n]``.
        envs: ``i64[n]``.
        out: filled; the numbers of each group begin at a multiple of 8.

    Returns:
        Whether it could; not if a step is out of range, or an array is just about to keep its numbers in another form.
    """
    for i in range(len(steps)):
        if not (0 <= steps[i] < n_steps and 0 <= envs[i] < n_envs):
            return False
    at, group, left = address(out), 0, sizes[0]
    for a in range(len(arrays)):
        if left == 0:
            group += 1
            left = sizes[group]
            at += -(at - address(out)) % _ALIGNMENT
        left -= 1
        words = int64s_at(arrays[a], N_WORDS)
        nbytes, item_nbytes, values = words[_NBYTES], words[_ITEM_NBYTES], words[_VALUES]
        if values == _UNKNOWN:
            return False
        each = words[_IN_ROW] // n_envs
        for i in range(len(steps)):
            item = words[_ITEMS] + (steps[i] * n_envs + envs[i]) * each * item_nbytes
            if values == 0 and item_nbytes == nbytes:
                copy(at, item, each * nbytes)
                at += each * nbytes
                continue
            for _ in range(each):
                if values:
                    copy(at, values + signed(load_u8(item)) * nbytes, nbytes)
                else:
                    _store(at, _extended(_load(item, item_nbytes), item_nbytes), nbytes)
                at, item = at + nbytes, item + item_nbytes
    return True


@inlined
def find_items(words: Ints, row: int, items: int) -> bool:
    """Find the items for the numbers of a row.

    Args:
        words: of the array.
        row: the address of the numbers.
        items: the address of room for as many numbers; the items are written there.

    Returns:
        Whether the array can hold the row; if not, see ``PaletteArray.learn``.
    """
    nbytes, item_nbytes, values = words[_NBYTES], words[_ITEM_NBYTES], words[_VALUES]
    if not values and item_nbytes == nbytes:
        copy(items, row, words[_IN_ROW] * nbytes)
        return True
    for i in range(words[_IN_ROW]):
        bits = _load(row + i * nbytes, nbytes)
        if values:
            item = 0
            while item < words[_N_VALUES] and _load(values + item * nbytes, nbytes) != bits:
                item += 1
            is_known = item < words[_N_VALUES]
        else:
            item = _extended(bits, item_nbytes)
            is_known = item == _extended(bits, nbytes)
        if not is_known:
            return False
        _store(items + i * item_nbytes, item, item_nbytes)
    return True


@inlined
def swap_row(words: Ints, step: int, items: int) -> None:
    """Exchange a row of an array with the items of another row."""
    nbytes = words[_IN_ROW] * words[_ITEM_NBYTES]
    at = words[_ITEMS] + step * nbytes
    for i in range(nbytes):
        before = load_u8(at + i)
        store_u8(at + i, load_u8(items + i))
        store_u8(items + i, before)


@compiled
def _load(at: int, nbytes: int) -> int:
    bits: int = load_u32(at) if nbytes == 4 else load_u64(at) if nbytes == 8 else load_u16(at)
    return bits


@compiled
def _store(at: int, number: int, nbytes: int) -> None:
    for b in range(nbytes):
        store_u8(at + b, unsigned(number >> (8 * b)))


@compiled
def _extended(bits: int, nbytes: int) -> int:
    """The signed integer of the lowest bytes."""
    unused = 64 - 8 * nbytes
    return (signed(bits) << unused) >> unused
