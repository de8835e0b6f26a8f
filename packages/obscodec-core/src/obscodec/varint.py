"""LEB128 varints: 7 bits a byte, low bits first, the high bit set on all bytes but the last.

Numbers are from 0 to below 2**63. Each has one form only: readers refuse a varint that is longer than necessary.
"""

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream

MAX_VARINT_NBYTES = 9


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
