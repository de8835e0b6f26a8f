"""Residuals in groups of 32, each coded with one of sixteen classes of code words: the bits of ``pred``.

Class 0 has zeros only. A code word of classes 1 to 5 stands for four residuals, of classes 6 to 10 for two, of classes
11 to 14 for one; class 15 has the bytes as they are. Groups are sorted by class, so that a loop reads one table, and
dealt to four bit streams, as many as a processor reads at the same time.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.images.geometry import GROUP_NBYTES, SIDE, Scratch
from obscodec.codecs.formats.images.tiles import N_MODES
from obscodec.codecs.formats.images.words import add_bytes, bits_of_bytes, max_bytes, zigzag_bytes
from obscodec.kernels import compiled, inlined, int64s_at, load_u8, load_u64, signed, store_u32, unsigned

Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.uint32]

N_CLASSES: Final = 16
RAW: Final = 15
LIMITS: Final = (0, 1, 1, 1, 2, 2, 7, 7, 12, 12, 20, 128, 128, 128, 128, 128)  # the largest residual of each class
FIRST_OF_PAIRS: Final = 6  # the first class whose code words stand for two residuals
FIRST_OF_SINGLES: Final = 11
MAX_BITS: Final = 11  # of a code word
PAIRS: Final = 0  # the table of pairs of classes, in the place of the class that needs none
MODES: Final = 15  # the table of modes, likewise
LARGEST: Final = (0, 2, 4, 14, 24, 40, 256)  # the largest zigzags that the limits allow
N_MEANS: Final = GROUP_NBYTES + 1
N_KEYS: Final = len(LARGEST) * N_MEANS
N_STREAMS: Final = 4  # of bits
N_MARKS: Final = 2 * (N_CLASSES + 1) + 2 * N_STREAMS
SLACK: Final = 64  # bytes behind the streams that are read
SORTED: Final = N_CLASSES + 1  # among the marks: how far each class is sorted
POSITIONS: Final = 2 * SORTED  # where each stream is read, in bits
ENDS: Final = POSITIONS + N_STREAMS  # where it ends, in bytes
LIMIT_OF: Final = np.array(LIMITS)
LARGEST_OF: Final = np.array(LARGEST)
_BYTES: Final = 0x00FF00FF00FF00FF
_HALVES: Final = 0x0000FFFF0000FFFF
_EVERY: Final = 0x0101010101010101
_ENTRY: Final = 8  # bytes of an entry of a table: a length above 32 bits of residuals
TABLE_NBYTES: Final = _ENTRY << MAX_BITS


@inlined
def residuals_of_code(k: int) -> int:
    """For how many residuals a code word of class ``k`` stands."""
    return 4 if k < FIRST_OF_PAIRS else (2 if k < FIRST_OF_SINGLES else 1)


def _n_symbols(k: int) -> int:
    """How many code words there are in the book of a class, of pairs, or of modes."""
    if k in (PAIRS, MODES):
        return N_CLASSES**2 if k == PAIRS else N_MODES
    return 256 if k >= FIRST_OF_SINGLES else int((2 * LIMITS[k] + 1) ** residuals_of_code.py_func(k))


STARTS: Final = np.cumsum([0, *(_n_symbols(k) for k in range(N_CLASSES))])  # where the codes of each book begin
N_SYMBOLS: Final = int(STARTS[-1])


@inlined
def symbols_of(word: int, n_residuals: int, limit: int) -> int:
    """The symbols of eight residuals: as many of ``8 * n_residuals`` bits each, the first in the lowest."""
    symbols = word
    if n_residuals > 1:
        base = unsigned(2 * limit + 1)
        shifted = add_bytes(word, unsigned(limit) * unsigned(_EVERY))
        symbols = (shifted & unsigned(_BYTES)) + base * (shifted >> unsigned(8) & unsigned(_BYTES))
        if n_residuals > 2:
            symbols = (symbols & unsigned(_HALVES)) + base * base * (symbols >> unsigned(16) & unsigned(_HALVES))
    return symbols


@compiled
def group_key(residuals: int) -> int:
    """What a class is chosen by: how large the largest of 32 residuals is, and how many bits all need as zigzag."""
    largest, bits = unsigned(0), 0
    for at in range(residuals, residuals + GROUP_NBYTES, SIDE):
        zigzag = zigzag_bytes(load_u64(at))
        largest = max_bytes(largest, zigzag)
        bits += bits_of_bytes(zigzag)
    largest = max_bytes(largest, largest >> unsigned(32))
    largest = max_bytes(largest, largest >> unsigned(16))
    most = signed(max_bytes(largest, largest >> unsigned(8)) & unsigned(0xFF))
    above = (most > 0) + (most > 2) + (most > 4) + (most > 14) + (most > 24) + (most > 40)
    return above * N_MEANS + (bits >> 3)


@compiled
def sort_groups(n_groups: int, scratch: Scratch) -> None:
    """Fill ``scratch.order`` with the groups, sorted by their classes.

    The first marks say where each class begins there, and the last one ends.
    """
    marks, labels = int64s_at(scratch.marks, (N_MARKS,)), scratch.labels
    for k in range(N_CLASSES + 1):
        marks[k] = 0
    for g in range(n_groups):
        marks[signed(load_u8(labels + g)) + 1] += 1
    for k in range(N_CLASSES):
        marks[SORTED + k] = marks[k]
        marks[k + 1] += marks[k]
    for g in range(n_groups):
        k = SORTED + signed(load_u8(labels + g))
        store_u32(scratch.order + 4 * marks[k], unsigned(g))
        marks[k] += 1
