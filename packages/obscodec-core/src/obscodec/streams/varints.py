"""Varints at an address, for kernels; see :mod:`obscodec.varint`."""

from obscodec.kernels import compiled, inlined, load_u8, signed, store_u8, unsigned
from obscodec.statuses import LONG_VARINT, SHORT
from obscodec.varint import MAX_VARINT_NBYTES


@inlined
def write_varint(at: int, value: int) -> int:
    """Write a varint to the address ``at``; returns the address behind it."""
    while value > 0x7F:
        store_u8(at, unsigned(value & 0x7F | 0x80))
        value >>= 7
        at += 1
    store_u8(at, unsigned(value))
    return at + 1


@compiled
def read_varint(at: int, end: int) -> tuple[int, int]:
    """The varint at the address ``at``, and the address behind it, or minus a status if it is bad."""
    value = 0
    for k in range(MAX_VARINT_NBYTES):
        if at + k >= end:
            return 0, -SHORT
        byte = signed(load_u8(at + k))
        value |= (byte & 0x7F) << (7 * k)
        if byte < 0x80:
            if byte == 0 and k > 0:
                return 0, -LONG_VARINT
            return value, at + k + 1
    return 0, -LONG_VARINT
