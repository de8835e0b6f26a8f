"""``rle``: runs of equal elements, one section of run lengths and one of values; or the item, where that is less."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.codec import Codec
from obscodec.kernels import address, compiled, copy, load_u8, signed, store_u8, unsigned
from obscodec.layout import Rows
from obscodec.segments import Bytes, Ints, Segments
from obscodec.statuses import OK, OUTSIDE_BUFFER, WRONG_COUNT, WRONG_LENGTH, WRONG_SECTION, WRONG_SIZE, WRONG_SUM, check
from obscodec.streams import first_difference, read_varint, write_varint

Items = npt.NDArray[np.unsignedinteger]

_WIDE: Final = 16  # elements
_SLACK: Final = 24  # bytes behind each part of a scratch: more than a run takes


@dataclass(frozen=True)
class Rle(Codec):
    """Run-length coding of whole elements, of 1, 2, 4 or 8 bytes. See ``docs/formats/rle.md``."""

    name: ClassVar[str] = "rle"
    format: ClassVar[str] = "rle@1"

    @property
    def width(self) -> int:
        """Bytes of an element: the largest power of two that divides the dtype's, at most 8."""
        itemsize = self.layout.dtype.itemsize
        return min(itemsize & -itemsize, 8)

    def bound(self) -> int:
        """A count of no runs, and the item."""
        return 1 + self.layout.nbytes

    def encode_rows(self, rows: Rows, out: Bytes) -> Ints:
        """Encode all rows in one compiled call, without the GIL."""
        lengths, scratch = np.empty(len(rows), np.int64), np.empty(2 * (self.layout.nbytes + _SLACK), np.uint8)
        encode_items(rows, self.width.bit_length() - 1, out, lengths, scratch)
        return lengths

    def decode_rows(self, src: Segments, rows: Rows) -> None:
        """Decode all rows in one compiled call, without the GIL."""
        inside, src = src.inside(), src.contiguous()
        lengths = np.where(inside, src.lengths, -1)
        kind = f"u{self.width}"
        elements = rows.view(kind) if rows.size else np.empty((len(rows), 0), kind)
        check(decode_items(src.addresses(), lengths, elements, rows))


@compiled
def encode_items(rows: Rows, width_bits: int, out: Bytes, lengths: Ints, scratch: Bytes) -> None:
    """Write the streams of ``rows``, of elements of ``1 << width_bits`` bytes, and their ``lengths``, ``i64[n]``.

    ``scratch`` is for the lengths and for the values of the runs of an item, with :data:`_SLACK` bytes behind each.
    """
    nbytes, width, here = rows.shape[1], 1 << width_bits, address(out)
    for i in range(len(rows)):
        item, at, count = address(rows) + i * nbytes, signed(0), 0
        lengths_at, values_at = address(scratch), address(scratch) + nbytes + _SLACK
        n_bytes = 0  # of lengths and values
        while at < nbytes and n_bytes <= nbytes:
            last = first_difference(item, item + width, at, nbytes - width) >> width_bits
            end = last + 1 << width_bits
            behind = write_varint(lengths_at, end - at >> width_bits)
            copy(values_at, item + at, width)
            n_bytes += behind - lengths_at + width
            lengths_at, values_at, at, count = behind, values_at + width, end, count + 1
        body = write_varint(here, count)
        if at == nbytes and body - here + n_bytes <= 1 + nbytes:
            n_values = count << width_bits
            copy(body, address(scratch), n_bytes - n_values)
            copy(body + n_bytes - n_values, values_at - n_values, n_values)
            lengths[i] = body - here + n_bytes
        else:  # no runs, the item as it is
            store_u8(here, unsigned(0))
            copy(here + 1, item, nbytes)
            lengths[i] = 1 + nbytes
        here += lengths[i]


@compiled
def decode_runs(at: int, end: int, item: Items) -> int:
    """Fill ``item`` from the runs between two addresses; returns a status. Each position is checked before use."""
    size, width = item.size, item.itemsize
    count, at = read_varint(at, end)
    if at < 0:
        return -at
    if count > size or count * width > end - at:
        return WRONG_COUNT
    values_at = end - count * width
    value_at = values_at
    filled = 0
    for _ in range(count):
        if at < values_at and load_u8(at) < 0x80:  # nearly always
            length = signed(load_u8(at))
            at += 1
        else:
            length, at = read_varint(at, values_at)
            if at < 0:
                return -at
        if length < 1 or length > size - filled:
            return WRONG_LENGTH
        value = load_u8(value_at)
        for k in range(1, width):
            value |= load_u8(value_at + k) << unsigned(8 * k)
        value_at += width
        begin = unsigned(filled)  # numba checks signed indices for being negative
        if filled + _WIDE <= size:
            for k in range(unsigned(_WIDE)):  # one vector store; later runs overwrite what is too much
                item[begin + k] = value
            for k in range(unsigned(_WIDE), unsigned(length)):
                item[begin + k] = value
        else:
            for k in range(unsigned(length)):
                item[begin + k] = value
        filled += length
    if filled != size:
        return WRONG_SUM
    return OK if at == values_at else WRONG_SECTION


@compiled
def decode_items(addresses: Ints, lengths: Ints, items: Items, rows: Rows) -> int:
    """Fill ``items``, whose bytes are ``rows``, from the streams at some addresses; a length of -1 is refused.

    Returns:
        The first status that is not OK.
    """
    nbytes = rows.shape[1]
    for i in range(len(addresses)):
        at, length = addresses[i], lengths[i]
        if length < 0:
            return OUTSIDE_BUFFER
        if length == 0 or load_u8(at) != 0:
            status = decode_runs(at, at + length, items[i])
            if status != OK:
                return status
        elif length != 1 + nbytes:
            return WRONG_SIZE
        else:  # no runs, the item as it is
            copy(address(rows) + i * nbytes, at + 1, nbytes)
    return OK
