"""Decoding LZ4 blocks in kernels. It gives the verdicts of liblz4, but refuses an offset of 0, which liblz4 lets pass.

A block is a row of sequences: some literals, then a match, which repeats bytes that lie up to 64 KiB before it, in the
output or in the dictionary before that. The last sequence is literals alone. (LZ4 Block Format Description, LZ4 1.9.4.)
"""

from typing import Final

from obscodec.codecs.statuses import BAD_LZ4, OK
from obscodec.kernels import (
    compiled,
    copy,
    inlined,
    load_u8,
    load_u16,
    load_u64,
    signed,
    store_u8,
    store_u16,
    store_u64,
)

_MOST: Final = 15  # in half a token: the length goes on in the bytes behind it
_LEAST_MATCH: Final = 4
# A short sequence has at most 14 literals, the offset, and a match of at most 18 bytes: liblz4 copies both at once, and
# wants no more than room for the copies. Behind it, this many bytes must be left of the stream and of the output:
_LEFT_OF_STREAM: Final = 8  # after literals that a match follows
_LEFT_OF_OUTPUT: Final = 12
_LAST_LITERALS: Final = 5  # after a match


@compiled
def decode_lz4(at: int, end: int, out: int, nbytes: int, dictionary_nbytes: int) -> int:
    """Decode the block from ``at`` to ``end`` into the ``nbytes`` bytes at ``out``, behind those of the dictionary.

    Nothing else is written, and nothing is read but the block, these bytes and the dictionary. Returns a status.
    """
    out_begin, out_end, begin = out, out + nbytes, out - dictionary_nbytes
    while at < end:
        token = signed(load_u8(at))
        at += 1
        n_literals, n_match = token >> 4, token & _MOST
        is_short = n_literals < _MOST and end - at >= 17 and out_end - out >= 32
        if is_short:
            store_u64(out, load_u64(at))
            store_u64(out + 8, load_u64(at + 8))
            at += n_literals
            out += n_literals
        else:
            if n_literals == _MOST:
                n_literals, at = _length(at, end)
            if at < 0 or n_literals > end - at or n_literals > out_end - out:
                return BAD_LZ4
            copy(out, at, n_literals)
            at += n_literals
            out += n_literals
            if at == end:
                return OK if out == out_end else BAD_LZ4
            if end - at < _LEFT_OF_STREAM or out_end - out < _LEFT_OF_OUTPUT:
                return BAD_LZ4
        offset = signed(load_u16(at))
        at += 2
        if is_short and n_match < _MOST and 8 <= offset <= out - begin:
            if offset > out - out_begin and n_match + _LEAST_MATCH > out_end - out - _LAST_LITERALS:
                return BAD_LZ4
            store_u64(out, load_u64(out - offset))
            store_u64(out + 8, load_u64(out + 8 - offset))
            store_u16(out + 16, load_u16(out + 16 - offset))
        else:
            if n_match == _MOST:
                n_match, at = _length(at, end - _LAST_LITERALS + 1)
            n_left = out_end - out
            if at < 0 or offset == 0 or offset > out - begin or n_match + _LEAST_MATCH > n_left - _LAST_LITERALS:
                return BAD_LZ4
            _repeat(out, offset, n_match + _LEAST_MATCH, n_left)
        out += n_match + _LEAST_MATCH
    return BAD_LZ4


@inlined
def _length(at: int, end: int) -> tuple[int, int]:
    """The length whose half of a token is full, and the address behind its bytes; -1 if these reach beyond ``end``."""
    length, more = _MOST, 255
    while more == 255 and at >= 0:
        if at >= end:
            at = -1
        else:
            more = signed(load_u8(at))
            length += more
            at += 1
    return length, at


@inlined
def _repeat(out: int, offset: int, n: int, n_left: int) -> None:
    """Write the ``n`` bytes that lie ``offset`` bytes before ``out``, some of them perhaps written by this call.

    There are ``n_left`` bytes of output.
    """
    k = 0
    if offset >= 8 and n_left >= n + 8:
        while k < n:
            store_u64(out + k, load_u64(out + k - offset))
            k += 8
    while k < n:
        store_u8(out + k, load_u8(out + k - offset))
        k += 1
