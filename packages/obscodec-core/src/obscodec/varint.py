"""LEB128 varints: 7 bits a byte, low bits first, the high bit set on all bytes but the last.

Numbers are from 0 to below 2**63. Each has one form only: readers refuse a varint that is longer than necessary.
"""

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream
from obscodec.segments import Bytes, Ints

MAX_VARINT_NBYTES = 9


def encode_varints(values: Ints) -> tuple[Bytes, Ints]:
    """Many numbers, ``i64[n]``, as varints one behind the other, ``u8[:]``; and the bytes of each, ``i64[n]``.

    Example:
        >>> encode_varints(np.array([1, 300]))
        (array([  1, 172,   2], dtype=uint8), array([1, 2]))
    """
    nbytes = np.ones(len(values), np.int64)
    longer = [np.flatnonzero(values > 0x7F)]  # the numbers with a second byte, a third, ...
    if not longer[0].size:
        return values.astype(np.uint8), nbytes
    while longer[-1].size:
        nbytes[longer[-1]] += 1
        longer.append(longer[-1][values[longer[-1]] >> (7 * len(longer) + 7) > 0])
    starts = np.cumsum(nbytes) - nbytes
    varints = np.empty(starts[-1] + nbytes[-1], np.uint8)
    varints[starts] = values & 0x7F
    for k, which in enumerate(longer[:-1], 1):
        varints[starts[which] + k - 1] |= 0x80
        varints[starts[which] + k] = (values[which] >> (7 * k)) & 0x7F
    return varints, nbytes


def encode_varint(value: int) -> bytes:
    """One number as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(buffer: npt.NDArray[np.uint8], at: int = 0) -> tuple[int, int]:
    """The varint that begins at ``at``, and the position behind it; CorruptStream if it ends first, or is too long."""
    value = 0
    for k in range(MAX_VARINT_NBYTES):
        if at + k >= len(buffer):
            raise CorruptStream("it ends inside a varint")
        byte = int(buffer[at + k])
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            if byte == 0 and k > 0:
                raise CorruptStream("a varint is longer than it needs to be")
            return value, at + k + 1
    raise CorruptStream(f"a varint has more than {MAX_VARINT_NBYTES} bytes")
