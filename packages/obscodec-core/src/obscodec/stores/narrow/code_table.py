"""CodeTable: the number of each code, and the code of each number."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from obscodec.errors import SpecError
from obscodec.layout import Rows, are_within
from obscodec.runtime import as_threads, over_ranges
from obscodec.segments import Ints
from obscodec.stores.narrow import lookup as kernel
from obscodec.stores.narrow.formulas import Formula

Codes = npt.NDArray[np.unsignedinteger]
Patterns = npt.NDArray[np.unsignedinteger]

CODE_DTYPES: Final[dict[int, np.dtype[np.unsignedinteger]]] = {8: np.dtype(np.uint8), 16: np.dtype(np.uint16)}
_MIN_BYTES_PER_THREAD = 1 << 19  # below, waking a thread costs more than it saves


@dataclass(frozen=True, slots=True)
class CodeTable:
    """The number of each code, and what finds the code of a number.

    Attributes:
        numbers: the number of each code; read-only.
        patterns: their bits, as unsigned integers.
        grid: how the numbers are spaced, see ``lookup.find_codes``; empty for numbers of 16 bits.
        code_of: a code for each pattern of 16 bits; empty for wider numbers.
    """

    numbers: npt.NDArray[np.generic]
    patterns: Patterns
    grid: npt.NDArray[np.floating]
    code_of: Codes

    @property
    def nbytes(self) -> int:
        """Bytes of all tables."""
        return self.numbers.nbytes + self.grid.nbytes + self.code_of.nbytes

    def find(self, rows: Rows, codes: Codes, fits: npt.NDArray[np.bool_], threads: int | None) -> None:
        """Fill ``codes``, ``[n, size]``, and ``fits``, ``bool[n]``, from ``rows``, ``u8[n, nbytes]``, contiguous."""
        numbers = cast("npt.NDArray[np.number]", rows.view(self.numbers.dtype))
        patterns = rows.view(self.patterns.dtype)

        def work(first: int, last: int) -> None:
            at = slice(first, last)
            if len(self.code_of):
                kernel.find_codes_by_pattern(patterns[at], self.patterns, self.code_of, codes[at], fits[at])
            else:
                kernel.find_codes(numbers[at], patterns[at], self.patterns, self.grid, codes[at], fits[at])

        over_ranges(work, len(rows), _n_threads(threads, rows.nbytes))

    def look_up(self, codes: Codes, places: Ints, rows: Rows, threads: int | None) -> None:
        """Fill ``rows[places]``, of ``u8[m, nbytes]``, with the numbers of ``codes``, ``[n, size]``; contiguous."""
        patterns = rows.view(self.patterns.dtype)

        def work(first: int, last: int) -> None:
            kernel.look_up(codes[first:last], self.patterns, places[first:last], patterns)

        over_ranges(work, len(codes), _n_threads(threads, codes.size * patterns.itemsize))


@lru_cache(maxsize=32)
def code_table(formula: Formula, bits: int, dtype: np.dtype[np.generic]) -> CodeTable:
    """The table of a formula.

    Raises:
        SpecError: the dtype can't hold the numbers, or they do not rise evenly enough to find their codes.
    """
    numbers, exact = formula_numbers(formula, bits, dtype)
    patterns = numbers.view(pattern_dtype(dtype))
    codes = np.arange(len(numbers), dtype=CODE_DTYPES[bits])
    grid, code_of = np.empty(0, np.float32), codes[:0]
    if dtype.itemsize == 2:
        code_of = np.zeros(1 << 16, codes.dtype)
        code_of[patterns[::-1]] = codes[::-1]  # the first one, if several codes have the same number
    elif exact:
        grid = np.empty(4, np.float32 if dtype == np.float32 else np.float64)
        low, high, top = float(numbers[0]), float(numbers[-1]), len(numbers) - 1
        with np.errstate(all="ignore"):
            grid[:] = low - 0.5 * (high - low) / top, np.divide(top, high - low), 0, top
            found = (numbers.astype(grid.dtype) - grid[0]) * grid[1]
            exact = np.array_equal(np.floor(found), codes)
    if not exact:
        raise SpecError(f"{formula} does not give {len(numbers)} evenly rising numbers of {dtype.name}")
    return CodeTable(numbers, patterns, grid, code_of)


def formula_numbers(formula: Formula, bits: int, dtype: np.dtype[np.generic]) -> tuple[npt.NDArray[np.generic], bool]:
    """The number of each code, rounded to ``dtype``; False if rounding to an integer changed one."""
    exactly = formula.numbers(1 << bits)
    with np.errstate(all="ignore"):
        numbers = exactly.astype(dtype)
        exact = dtype.kind not in "iu" or bool((are_within(exactly, dtype) & (numbers == exactly)).all())
    numbers.flags.writeable = False
    return numbers, exact


def pattern_dtype(dtype: np.dtype[np.generic]) -> np.dtype[np.unsignedinteger]:
    """The unsigned integer with as many bits."""
    return np.dtype(f"u{dtype.itemsize}")


def _n_threads(threads: int | None, nbytes: int) -> int:
    return min(as_threads(threads), nbytes // _MIN_BYTES_PER_THREAD)
