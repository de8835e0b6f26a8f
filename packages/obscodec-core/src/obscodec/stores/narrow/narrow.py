"""Narrow: numbers with few values, such as ``k / 255`` in float32, as codes of 8 or 16 bits and back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from obscodec.arguments import as_count
from obscodec.errors import DTypeError, ShapeError, SpecError
from obscodec.layout import Layout, are_within, as_writable, dtype_name, same_values, storable, written_dtype
from obscodec.runtime import as_threads, over_ranges
from obscodec.segments import Ints
from obscodec.stores.narrow.lookup import Codes, Patterns, find_codes, find_codes_by_pattern, look_up

Array = npt.NDArray[np.generic]
Steps = tuple[tuple[str, float], ...]

CODE_DTYPES: Final[dict[int, np.dtype[np.unsignedinteger]]] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16)}
_OPERATIONS: Final[dict[str, Callable[[Array, Array], Array]]] = {"-": np.subtract, "*": np.multiply, "/": np.divide}
_DOUBLE: Final[np.dtype[np.generic]] = np.dtype(np.float64)
_MIN_BYTES_PER_THREAD = 1 << 19  # below, waking a thread costs more than it saves


class Tables(NamedTuple):
    """The number of each code, and what finds the code of a number.

    Attributes:
        numbers: the number of each code; read-only.
        patterns: their bits, as unsigned integers.
        grid: how the numbers are spaced, see ``lookup.find_codes``; empty for numbers of 16 bits.
        code_of: a code for each pattern of 16 bits; empty for wider numbers.
    """

    numbers: Array
    patterns: Patterns
    grid: npt.NDArray[np.floating]
    code_of: Codes


@dataclass(frozen=True)
class Narrow:
    """A number of a wide dtype for each code of 8 or 16 bits, and the way back.

    A tensor fits if each of its elements is the number of a code, bit for bit: ``-0.0`` is not ``0.0``, and one NaN is
    not another.

    Attributes:
        dtype: of the wide tensors: a float or an integer of 2, 4 or 8 bytes.
        bits: of a code, 8 or 16, fewer than ``dtype`` has.
        steps: turn a code into its number: pairs of ``-``, ``*`` or ``/`` and a number.
        arithmetic: the float dtype that each step is rounded to; the last number is rounded to ``dtype``.
        tables: what follows from the others.

    Raises:
        DTypeError: ``dtype`` can't be narrowed to so many bits, or ``arithmetic`` is no float.
        SpecError: a step is malformed, ``dtype`` can't hold the numbers, or they do not rise evenly from code to code.

    Example:
        >>> narrow = Narrow(np.dtype(np.float32), 8, (("/", 255),), np.dtype(np.float32))
        >>> print(narrow)
        k / 255 in float32
        >>> codes, fits = narrow.apply(np.array([[0, 1], [0.2, 0.3]], np.float32))
        >>> codes[0], fits
        (array([  0, 255], dtype=uint8), array([ True, False]))
    """

    dtype: np.dtype[np.generic]
    bits: int
    steps: Steps = ()
    arithmetic: np.dtype[np.generic] = _DOUBLE
    tables: Tables = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        dtype, bits = storable(np.dtype(self.dtype)), as_count("bits", self.bits)
        arithmetic = storable(np.dtype(self.arithmetic))
        if bits not in CODE_DTYPES:
            raise SpecError(f"codes have 8 or 16 bits, got {bits}")
        if not is_wide(dtype) or bits >= 8 * dtype.itemsize:
            raise DTypeError(f"{dtype.name} can't be narrowed to {bits} bits, use a wider float or integer")
        if arithmetic.kind != "f" and arithmetic.name != "bfloat16":
            raise DTypeError(f"numbers are computed in a float dtype, got {arithmetic.name}")
        for operation, number in self.steps:
            if operation not in _OPERATIONS or not np.isfinite(number) or (number == 0 and operation in "*/"):
                raise SpecError(f"a step is one of - * / and a finite number, got {operation!r} and {number!r}")
        steps = tuple((operation, float(number)) for operation, number in self.steps)
        vars(self).update(dtype=dtype, bits=bits, steps=steps, arithmetic=arithmetic)
        vars(self)["tables"] = self._new_tables()

    def _new_tables(self) -> Tables:
        dtype, codes = self.dtype, np.arange(1 << self.bits, dtype=self.code_dtype)
        with np.errstate(all="ignore"):
            exactly: Array = codes.astype(self.arithmetic)
            for operation, number in self.steps:
                exactly = _OPERATIONS[operation](exactly, np.asarray(number).astype(self.arithmetic))
            numbers = exactly.astype(dtype)
            exact = dtype.kind not in "iu" or bool((are_within(exactly, dtype) & (numbers == exactly)).all())
        numbers.flags.writeable = False
        patterns = numbers.view(pattern_dtype(dtype))
        grid, code_of = np.empty(0, np.float32), codes[:0]
        if dtype.itemsize == 2:
            code_of = np.zeros(1 << 16, codes.dtype)
            code_of[patterns[::-1]] = codes[::-1]  # the first one, if several codes have the same number
        elif exact:
            grid = np.empty(4, np.float32 if dtype == np.float32 else np.float64)
            low, high, top = float(numbers[0]), float(numbers[-1]), len(numbers) - 1
            with np.errstate(all="ignore"):
                grid[:] = low - 0.5 * (high - low) / top, np.divide(top, high - low), 0, top
                exact = same_values(np.floor((numbers.astype(grid.dtype) - grid[0]) * grid[1]), codes)
        if not exact:
            raise SpecError(f"{self} does not give {len(numbers)} evenly rising numbers of {dtype.name}")
        return Tables(numbers, patterns, grid, code_of)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.dtype, self.bits, self.steps, self.arithmetic)

    def __str__(self) -> str:
        text, is_sum = "k", False
        for operation, number in self.steps:
            text = f"({text})" if is_sum and operation in "*/" else text
            text, is_sum = f"{text} {operation} {number:.9g}", operation == "-"
        return f"{text} in {self.arithmetic.name}"

    def config(self) -> dict[str, object]:
        """Plain JSON values that :meth:`from_config` takes."""
        formula = {"steps": [*map(list, self.steps)], "arithmetic": dtype_name(self.arithmetic)}
        return {"dtype": dtype_name(self.dtype), "bits": self.bits, **formula}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """What :meth:`config` described."""
        steps = tuple((operation, number) for operation, number in config["steps"])
        return cls(written_dtype(config["dtype"]), config["bits"], steps, written_dtype(config["arithmetic"]))

    @property
    def code_dtype(self) -> np.dtype[np.unsignedinteger]:
        """The dtype of the codes, uint8 or uint16."""
        return CODE_DTYPES[self.bits]

    @property
    def nbytes(self) -> int:
        """Bytes of the tables, whose patterns are the same memory as the numbers."""
        return self.tables.numbers.nbytes + self.tables.grid.nbytes + self.tables.code_of.nbytes

    def apply(self, tensors: Array, *, threads: int | None = None) -> tuple[Codes, npt.NDArray[np.bool_]]:
        """Find the codes of tensors ``[n, *shape]`` of this dtype, in any byte order and with any strides.

        ``threads`` share the work on a large batch, None for half of the usable processors.

        Returns:
            The codes, ``[n, *shape]``, and ``bool[n]``: whether :meth:`undo` makes the same bits of them. The codes of
            other tensors mean nothing.
        """
        rows = Layout(tensors.shape[1:], self.dtype).rows(tensors)
        codes, fits = np.empty(tensors.shape, self.code_dtype), np.ones(len(tensors), np.bool_)
        if codes.size:
            _, table, grid, code_of = self.tables
            code_rows, patterns = codes.reshape(len(codes), -1), rows.view(table.dtype)

            def work(first: int, last: int) -> None:
                at = slice(first, last)
                if len(code_of):
                    find_codes_by_pattern(patterns[at], table, code_of, code_rows[at], fits[at])
                else:
                    find_codes(rows.view(self.dtype)[at], patterns[at], table, grid, code_rows[at], fits[at])

            over_ranges(work, len(rows), _n_threads(threads, rows.nbytes))
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
            table = self.tables.patterns
            patterns = rows.view(table.dtype)

            def work(first: int, last: int) -> None:
                look_up(code_rows[first:last], table, to_rows[first:last], patterns)

            over_ranges(work, len(codes), _n_threads(threads, codes.size * table.itemsize))
        elif codes.size:
            out[to_rows] = self.tables.numbers[codes]


def is_wide(dtype: np.dtype[np.generic]) -> bool:
    """Whether numbers of a dtype may have codes."""
    return dtype.itemsize in (2, 4, 8) and (dtype.kind in "iuf" or dtype.name == "bfloat16")


def pattern_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.unsignedinteger]:
    """The unsigned integer dtype with as many bits."""
    return np.dtype(f"u{dtype.itemsize}")


def _n_threads(threads: int | None, nbytes: int) -> int:
    return min(as_threads(threads), nbytes // _MIN_BYTES_PER_THREAD)
