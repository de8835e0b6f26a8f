"""The compiled decoder of ``rle``."""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.kernels import compiled
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints

Items = npt.NDArray[np.unsignedinteger]

OK: Final = 0
OUTSIDE: Final = 1
SHORT: Final = 2
LONG_VARINT: Final = 3
WRONG_COUNT: Final = 4
WRONG_LENGTH: Final = 5
WRONG_SUM: Final = 6
WRONG_SECTION: Final = 7
WRONG_SIZE: Final = 8

EXPLANATIONS: Final = {
    OUTSIDE: "it lies outside of its buffer",
    SHORT: "it ends inside a varint",
    LONG_VARINT: "a varint is longer than it needs to be, or than 9 bytes",
    WRONG_COUNT: "it says that it has more runs than elements or bytes",
    WRONG_LENGTH: "a run is empty, or reaches beyond the end of the item",
    WRONG_SUM: "its runs end before the item does",
    WRONG_SECTION: "bytes are missing or left over between its run lengths and its values",
    WRONG_SIZE: "it has no runs, and more or fewer bytes behind their number than the item",
}

_WIDE: Final = np.uintp(16)  # elements


@compiled
def read_varint(buffer: Bytes, at: np.uintp, end: np.uintp) -> tuple[int, np.uintp, np.uintp]:
    """A varint in ``buffer[at:end]``: status, value, position behind it."""
    value = np.uintp(0)
    for k in range(9):
        if at + np.uintp(k) >= end:
            return SHORT, value, at
        byte = np.uintp(buffer[at + np.uintp(k)])
        value |= (byte & np.uintp(0x7F)) << np.uintp(7 * k)
        if byte < 0x80:
            status = LONG_VARINT if byte == 0 and k > 0 else OK
            return status, value, at + np.uintp(k + 1)
    return LONG_VARINT, value, at


@compiled
def decode_runs(buffer: Bytes, at: np.uintp, end: np.uintp, item: Items) -> int:
    """Fill ``item`` from the runs in ``buffer[at:end]``; returns a status. Each position is checked before use.

    All numbers are unsigned: numba checks signed indices for being negative.
    """
    size, width = np.uintp(item.size), np.uintp(item.itemsize)
    status, count, at = read_varint(buffer, at, end)
    if status != OK:
        return status
    if count > size or count * width > end - at:
        return WRONG_COUNT
    values_at = end - count * width
    value_at = values_at
    filled = np.uintp(0)
    for _ in range(count):
        if at < values_at and buffer[at] < 0x80:  # nearly always
            length = np.uintp(buffer[at])
            at += np.uintp(1)
        else:
            status, length, at = read_varint(buffer, at, values_at)
            if status != OK:
                return status
        if length < 1 or length > size - filled:
            return WRONG_LENGTH
        value = np.uintp(buffer[value_at])
        for k in range(np.uintp(1), width):
            value |= np.uintp(buffer[value_at + k]) << np.uintp(8 * k)
        value_at += width
        if filled + _WIDE <= size:
            for k in range(_WIDE):  # one vector store; what it writes behind the run is overwritten later
                item[filled + k] = value
            for k in range(_WIDE, length):
                item[filled + k] = value
        else:
            for k in range(length):
                item[filled + k] = value
        filled += length
    if filled != size:
        return WRONG_SUM
    return OK if at == values_at else WRONG_SECTION


@compiled
def decode_items(buffer: Bytes, offsets: Ints, lengths: Ints, items: Items, item_bytes: Rows, rows: Ints) -> int:
    """Fill ``items[rows[i]]``, whose bytes are ``item_bytes[rows[i]]``, from stream ``i``.

    Returns:
        The first status that is not OK.
    """
    for i in range(len(rows)):
        offset, length = offsets[i], lengths[i]
        if offset < 0 or length < 0 or offset > buffer.size - length:
            return OUTSIDE
        if length > 0 and buffer[offset] == 0:  # no runs, the item as it is
            if length - 1 != item_bytes.shape[1]:
                return WRONG_SIZE
            item_bytes[rows[i]] = buffer[offset + 1 : offset + length]
            continue
        status = decode_runs(buffer, np.uintp(offset), np.uintp(offset + length), items[rows[i]])
        if status != OK:
            return status
    return OK
