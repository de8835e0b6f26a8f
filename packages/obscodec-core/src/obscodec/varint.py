"""LEB128 varints: 7 bits a byte, low bits first, the high bit set on all bytes but the last.

Every number has one form only: a reader refuses one that is longer than it needs to be.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from obscodec.errors import CorruptStream
from obscodec.segments import Bytes, Ints

MAX_VARINT_NBYTES = 9  # numbers below 2**63


def varint_nbytes(values: Ints) -> Ints:
    """How many bytes each of the non-negative ``i64[n]`` takes as a varint."""
    nbytes = np.ones(len(values), np.int64)
    for k in range(1, MAX_VARINT_NBYTES):
        longer = values >> (7 * k) > 0
        if not longer.any():
            break
        nbytes += longer
    return nbytes


def write_varints(values: Ints, at: Ints, nbytes: Ints, out: Bytes) -> None:
    """Write each of ``values`` as a varint of ``nbytes`` bytes to ``out`` at the positions ``at``."""
    for k in range(int(nbytes.max(initial=0))):
        has = nbytes > k
        byte = (values[has] >> (7 * k)) & 0x7F
        more = (nbytes[has] > k + 1).astype(np.int64) << 7
        out[at[has] + k] = (byte | more).astype(np.uint8)


def encode_varint(value: int) -> bytes:
    """One number from 0 to below 2**63 as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_varint(buffer: npt.NDArray[np.uint8], at: int = 0) -> tuple[int, int]:
    """The varint that begins at ``at``, and the position behind it.

    Raises:
        CorruptStream: the buffer ends first, or the varint is longer than it needs to be.
    """
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
