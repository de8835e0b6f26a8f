"""The items of a column, for kernels: codes of its numbers, or numbers in few bytes.

``words`` are those of a ``Column``.
"""

from typing import Final

from obscodec.kernels import compiled, copy, inlined, load_u8, load_u16, load_u32, load_u64, signed, store_u8, unsigned
from obscodec.segments import Ints

# The words by which kernels find a Column.
ITEMS: Final = 0  # address of the items: codes, or numbers
IN_ROW: Final = 1  # how many of them
NBYTES: Final = 2  # of a number
ITEM_NBYTES: Final = 3  # of an item
VALUES: Final = 4  # address of the numbers that codes stand for; 0 if the items are numbers
N_VALUES: Final = 5
N_WORDS: Final = 6

UNKNOWN: Final = -1  # no address


@inlined
def find_items(words: Ints, row: int, items: int) -> bool:
    """Write the items for the numbers at the address ``row`` to the address ``items``, with room for as many numbers.

    Returns whether the column can hold the row; if not, see ``Column.learn``.
    """
    nbytes, item_nbytes, values = words[NBYTES], words[ITEM_NBYTES], words[VALUES]
    if not values and item_nbytes == nbytes:
        copy(items, row, words[IN_ROW] * nbytes)
        return True
    for i in range(words[IN_ROW]):
        bits = load_number(row + i * nbytes, nbytes)
        if values:
            item = 0
            while item < words[N_VALUES] and load_number(values + item * nbytes, nbytes) != bits:
                item += 1
            is_known = item < words[N_VALUES]
        else:
            item = extended(bits, item_nbytes)
            is_known = item == extended(bits, nbytes)
        if not is_known:
            return False
        store_number(items + i * item_nbytes, item, item_nbytes)
    return True


@inlined
def swap_row(words: Ints, step: int, items: int) -> None:
    """Exchange a row of an array with the items of another row."""
    nbytes = words[IN_ROW] * words[ITEM_NBYTES]
    at = words[ITEMS] + step * nbytes
    for i in range(nbytes):
        before = load_u8(at + i)
        store_u8(at + i, load_u8(items + i))
        store_u8(items + i, before)


@compiled
def load_number(at: int, nbytes: int) -> int:
    """The bits of a number of 2, 4 or 8 bytes."""
    bits: int = load_u32(at) if nbytes == 4 else load_u64(at) if nbytes == 8 else load_u16(at)
    return bits


@compiled
def store_number(at: int, number: int, nbytes: int) -> None:
    """Write the lowest bytes of a number."""
    for b in range(nbytes):
        store_u8(at + b, unsigned(number >> (8 * b)))


@compiled
def extended(bits: int, nbytes: int) -> int:
    """The signed integer of the lowest bytes."""
    unused = 64 - 8 * nbytes
    return (signed(bits) << unused) >> unused
