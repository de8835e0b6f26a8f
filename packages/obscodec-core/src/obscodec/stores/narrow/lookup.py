"""Compiled loops from codes to numbers and back: see ``Narrow``.

A pattern is the bits of a number, as an unsigned integer of its size. ``codes`` are ``u8`` or ``u16[n, size]``;
``values`` and ``patterns`` are the same memory, ``[n, size]``, and contiguous; ``table`` has the pattern of each code.
"""

import numpy as np
import numpy.typing as npt

from obscodec.kernels import compiled
from obscodec.segments import Ints

Codes = npt.NDArray[np.unsignedinteger]
Patterns = npt.NDArray[np.unsignedinteger]
Numbers = npt.NDArray[np.number]
Flags = npt.NDArray[np.bool_]


@compiled
def look_up(codes: Codes, table: Patterns, places: Ints, out: Patterns) -> None:
    """Fill the rows ``out[places[i]]`` with ``table[codes[i]]``; ``places`` is ``i64[n]``, ``out`` ``[m, size]``."""
    for i in range(len(codes)):
        row_codes, row = codes[i], out[places[i]]
        for j in range(codes.shape[1]):
            row[j] = table[row_codes[j]]


@compiled
def find_codes(values: Numbers, patterns: Patterns, table: Patterns, grid: Numbers, codes: Codes, fits: Flags) -> None:
    """The inverse of :func:`look_up` for a table of evenly rising values.

    Two loops over each row, because LLVM vectorizes the first one only: 4 GB/s instead of 2. ``grid`` is ``low,
    per_unit, zero, top``: the code of a value, if it has one, is ``(value - low) * per_unit``, rounded down and clipped
    to ``zero..top``. ``fits``, ``bool[n]``, tells whether each value of a row has the bits that its code stands for.
    """
    low, per_unit, zero, top = grid[0], grid[1], grid[2], grid[3]
    for i in range(len(values)):
        row_values, row_patterns, row_codes = values[i], patterns[i], codes[i]
        for j in range(values.shape[1]):
            code = (row_values[j] - low) * per_unit
            code = code if code >= zero else zero  # NaN as well
            code = code if code <= top else top
            row_codes[j] = np.int32(code)
        fits[i] = _differences(row_patterns, table, row_codes) == 0


@compiled
def find_codes_by_pattern(patterns: Patterns, table: Patterns, code_of: Codes, codes: Codes, fits: Flags) -> None:
    """:func:`find_codes` for values of 16 bits, with ``code_of``, ``[65536]``: a code for each pattern."""
    for i in range(len(patterns)):
        row_patterns, row_codes = patterns[i], codes[i]
        for j in range(patterns.shape[1]):
            row_codes[j] = code_of[row_patterns[j]]
        fits[i] = _differences(row_patterns, table, row_codes) == 0


@compiled
def _differences(patterns: Patterns, table: Patterns, codes: Codes) -> np.uint64:
    """All bits in which a pattern of a row differs from the pattern of its code."""
    different = np.uint64(0)
    for j in range(len(patterns)):
        different |= np.uint64(patterns[j] ^ table[codes[j]])
    return different
