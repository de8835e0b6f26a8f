"""Narrow: numbers with few values, such as ``k / 255`` in float32, as codes of 8 or 16 bits and back."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count, check_kind
from obscodec.errors import DTypeError, ShapeError, SpecError
from obscodec.layout import Layout, as_writable, dtype_name, storable, written_dtype
from obscodec.segments import Ints
from obscodec.stores.narrow.code_table import (
    CODE_DTYPES,
    Codes,
    CodeTable,
    Patterns,
    code_table,
    formula_numbers,
    pattern_dtype,
)
from obscodec.stores.narrow.formulas import Formula, candidates

Array = npt.NDArray[np.generic]

_PIECE = 1 << 18  # elements to look through at once


@dataclass(frozen=True)
class Narrow:
    """A number of a wide dtype for each code of 8 or 16 bits, and the way back.

    A tensor fits if each of its elements is the number of a code, bit for bit: ``-0.0`` is not ``0.0``, and one NaN is
    not another.

    Attributes:
        dtype: of the wide tensors: a float or an integer of 2, 4 or 8 bytes.
        bits: of a code, 8 or 16, fewer than ``dtype`` has.
        formula: computes the number of each code, which is then rounded to ``dtype``.

    Raises:
        DTypeError: ``dtype`` can't be narrowed to so many bits.
        SpecError: ``dtype`` can't hold the numbers, or they do not rise evenly from code to code.

    Example:
        >>> narrow = Narrow(np.dtype(np.float32), 8, Formula((("/", 255),), np.dtype(np.float32)))
        >>> codes, fits = narrow.apply(np.array([[0, 1], [0.2, 0.3]], np.float32))
        >>> codes[0], fits
        (array([  0, 255], dtype=uint8), array([ True, False]))
    """

    dtype: np.dtype[np.generic]
    bits: int
    formula: Formula

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", storable(np.dtype(self.dtype)))
        object.__setattr__(self, "bits", as_count("bits", self.bits))
        if self.bits not in CODE_DTYPES:
            raise SpecError(f"codes have 8 or 16 bits, got {self.bits}")
        if not _narrowable(self.dtype) or self.bits >= 8 * self.dtype.itemsize:
            raise DTypeError(f"{self.dtype.name} can't be narrowed to {self.bits} bits, use a wider float or integer")
        self._table()  # refuses a bad formula

    def config(self) -> dict[str, object]:
        """Plain JSON values that :meth:`from_config` takes."""
        formula = {"steps": [*map(list, self.formula.steps)], "arithmetic": dtype_name(self.formula.arithmetic)}
        return {"dtype": dtype_name(self.dtype), "bits": self.bits, **formula}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """What :meth:`config` described.

        Raises:
            SpecError: the formula is malformed.
            DTypeError: a dtype is not as :meth:`config` writes it.
        """
        steps = tuple((operation, number) for operation, number in config["steps"])
        formula = Formula(steps, written_dtype(config["arithmetic"]))
        return cls(written_dtype(config["dtype"]), config["bits"], formula)

    @property
    def code_dtype(self) -> np.dtype[np.unsignedinteger]:
        """The dtype of the codes, uint8 or uint16."""
        return CODE_DTYPES[self.bits]

    @property
    def numbers(self) -> Array:
        """The wide number that each code stands for; read-only."""
        return self._table().numbers

    @property
    def nbytes(self) -> int:
        """Bytes of the lookup tables."""
        return self._table().nbytes

    def apply(self, tensors: Array, *, threads: int | None = None) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Find the codes of tensors.

        Args:
            tensors: ``[n, *shape]`` of this dtype, in any byte order and with any strides.
            threads: how many threads share the work on a large batch, None for half of the usable processors.

        Returns:
            The codes, ``[n, *shape]``, and ``bool[n]``: whether :meth:`undo` makes the same bits of them. The codes of
            other tensors mean nothing.

        Raises:
            DTypeError: the tensors have another dtype.
        """
        rows = Layout(tensors.shape[1:], self.dtype).rows(tensors)
        codes = np.empty(tensors.shape, self.code_dtype)
        fits = np.ones(len(tensors), np.bool_)
        if codes.size:
            self._table().find(rows, codes.reshape(len(codes), -1), fits, threads)
        return codes, fits

    def undo(self, codes: Array, out: Array, places: Ints | None = None, *, threads: int | None = None) -> None:
        """The inverse of :meth:`apply`.

        Args:
            codes: ``[n, *shape]``.
            out: ``[m, *shape]`` of the wide dtype to fill, in any byte order and with any strides.
            places: ``i64[n]``, the item of ``out`` for each item of ``codes``; None for all in order.
            threads: see :meth:`apply`.

        Raises:
            ShapeError: the shapes do not agree.
            DTypeError: ``codes`` or ``out`` has another dtype, or ``out`` is read-only.
            IndexError: a place is outside of ``out``.
        """
        out = as_writable(out)
        rows = Layout(out.shape[1:], self.dtype).rows(out if out.flags.c_contiguous else out[:0])
        to_rows = np.arange(len(out)) if places is None else np.asarray(places, np.int64)
        if codes.shape != (*to_rows.shape, *out.shape[1:]):
            raise ShapeError(f"codes have shape {(*to_rows.shape, *out.shape[1:])}, got {codes.shape}")
        code_rows = Layout(codes.shape[1:], self.code_dtype).rows(codes).view(self.code_dtype)
        if len(to_rows) and not 0 <= to_rows.min() <= to_rows.max() < len(out):
            raise IndexError(f"places are in 0..{len(out) - 1}, got {to_rows.min()}..{to_rows.max()}")
        if codes.size and np.shares_memory(rows, out):
            self._table().look_up(code_rows, to_rows, rows, threads)
        elif codes.size:
            out[to_rows] = self.numbers[codes]

    def _table(self) -> CodeTable:
        return code_table(self.formula, self.bits, self.dtype)


def find_narrow(samples: Array) -> Narrow | None:
    """A :class:`Narrow` that fits each element of ``samples``, typical tensors ``[n, *shape]``.

    It prefers codes of 8 bits, and well-known formulas. The same samples always give the same answer: None if no
    formula fits all elements, if the dtype has 8 bits or is neither float nor integer, or if all elements are equal,
    such as the zeros of a fresh buffer.

    Raises:
        DTypeError: ``samples`` is no array, or its dtype can't be stored.

    Example:
        >>> pixels = np.arange(200, dtype=np.uint8)
        >>> print(find_narrow((pixels / 255).astype(np.float32)).formula)
        k / 255 in float32
        >>> find_narrow(np.random.default_rng(0).random(200)) is None
        True
    """
    check_kind("samples", samples, np.ndarray, "a numpy array [n, *shape]")
    dtype = storable(samples.dtype)
    patterns = _distinct(samples, dtype) if _narrowable(dtype) else None
    if patterns is None or len(patterns) < 2:
        return None
    numbers = patterns.view(dtype).astype(np.float64)
    if not np.isfinite(numbers).all():
        return None
    order = np.argsort(numbers)
    patterns, numbers = patterns[order], numbers[order]
    for bits in CODE_DTYPES:
        if bits < 8 * dtype.itemsize and len(patterns) <= 1 << bits:
            for formula in candidates(dtype, numbers, bits):
                if _makes(formula, bits, dtype, numbers, patterns):
                    with suppress(SpecError):
                        return Narrow(dtype, bits, formula)
    return None


def _makes(
    formula: Formula, bits: int, dtype: np.dtype[np.generic], numbers: npt.NDArray[np.float64], patterns: Patterns
) -> bool:
    """Whether a formula makes all of some numbers, bit for bit."""
    made, exact = formula_numbers(formula, bits, dtype)
    nearest = np.searchsorted(made.astype(np.float64), numbers).clip(max=len(made) - 1)
    return exact and np.array_equal(made.view(patterns.dtype)[nearest], patterns)


def _distinct(samples: Array, dtype: np.dtype[np.generic]) -> Patterns | None:
    """The bits of the different elements; None if there are more than codes."""
    patterns = Layout(samples.shape[1:], dtype).rows(samples).reshape(-1).view(pattern_dtype(dtype))
    most = 1 << (8 if dtype.itemsize == 2 else 16)
    known = patterns[:0]
    for start in range(0, len(patterns), _PIECE):
        known = np.union1d(known, patterns[start : start + _PIECE])
        if len(known) > most:
            return None
    return known


def _narrowable(dtype: np.dtype[np.generic]) -> bool:
    return dtype.itemsize in (2, 4, 8) and (dtype.kind in "iuf" or dtype.name == "bfloat16")
