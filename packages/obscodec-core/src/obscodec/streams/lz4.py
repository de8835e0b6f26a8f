"""LZ4 blocks in kernels. Decoding gives the verdicts of liblz4, but refuses an offset of 0, which liblz4 lets pass.

A block is a row of sequences: some literals, then a match, which repeats bytes that lie up to 64 KiB before it, in the
output or in the dictionary before that. The last sequence is literals alone. (LZ4 Block Format Description, LZ4 1.9.4.)
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.kernels import (
    address,
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
    trailing_zeros,
    unsigned,
)
from obscodec.segments import Bytes
from obscodec.statuses import BAD_LZ4, OK

_MOST: Final = 15  # in half a token: the length goes on in the bytes behind it
_LEAST_MATCH: Final = 4
# How many bytes must be left, but not after a short sequence (14 literals or less, a match of 18 bytes or less): there,
# liblz4 only asks whether there is room to copy 16 and 18 bytes.
_LEFT_OF_STREAM: Final = 8  # behind literals that a match follows
_LEFT_OF_OUTPUT: Final = 12  # the same
_LAST_LITERALS: Final = 5  # of the output, behind a match

_HASH_BITS: Final = 14
N_HEADS: Final = 1 << _HASH_BITS
_FACTOR: Final = 2654435761  # of the hash of four bytes (Knuth)
_FARTHEST: Final = (1 << 16) - 1  # no match reaches further back

Heads = npt.NDArray[np.int32]  # by hash, the last position of such four bytes, plus 1; 0 for none
Chain = npt.NDArray[np.uint16]  # by position, how far back the last position with this hash is; 0 for none in reach


@inlined
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


@compiled
def index_dictionary(dictionary: Bytes, heads: Heads, chain: Chain) -> None:
    """Note where each four bytes of a dictionary stand, for :func:`encode_lz4`.

    Args:
        dictionary: ``u8[n]``.
        heads: ``i32[N_HEADS]`` of zeros, filled.
        chain: ``u16[n + m]``, where ``m`` is the most bytes of a block, filled.
    """
    for position in range(len(dictionary) - 7):
        _note(address(dictionary), position, heads, chain)


@inlined
def encode_lz4(
    begin: int, first: int, nbytes: int, heads: Heads, recent: Heads, chain: Chain, n_attempts: int, out: int
) -> int:
    """Write the LZ4 block of some bytes, which lie behind their dictionary; returns the bytes of the block.

    It takes the longest match it finds, unless a longer one begins at the next byte; each position is compared with
    ``n_attempts`` earlier ones. The dictionary has ``first`` bytes at ``begin``, the ``nbytes`` bytes behind it become
    the block, and eight more can be read. ``heads`` and ``chain`` are of the dictionary; ``recent``, ``i32[N_HEADS]``,
    and the chain behind it are changed. At ``out`` is room for ``nbytes + nbytes // 255 + 16`` bytes.
    """
    copy(address(recent), address(heads), recent.nbytes)  # ``recent[:] = heads`` takes numba long to compile
    end, out_begin = first + nbytes, out
    last, at, noted, literals = end - _LEFT_OF_OUTPUT, first, first, first
    while at <= last:
        noted = _note_up_to(begin, at, noted, recent, chain)
        length, offset = _longest_match(begin, at, end, chain, n_attempts, _LEAST_MATCH - 1)
        if offset == 0:
            at += 1
            continue
        while at < last:
            noted = _note_up_to(begin, at + 1, noted, recent, chain)
            longer, other = _longest_match(begin, at + 1, end, chain, n_attempts, length)
            if other == 0:
                break
            at, length, offset = at + 1, longer, other
        out = _put_literals(out, begin + literals, at - literals, min(length - _LEAST_MATCH, _MOST))
        store_u16(out, unsigned(offset))
        out = _put_rest(out + 2, length - _LEAST_MATCH)
        literals = at = at + length
        noted = _note_up_to(begin, min(at - 1, last), noted, recent, chain)
    return int(_put_literals(out, begin + literals, end - literals, 0) - out_begin)


@inlined
def _hash(at: int) -> int:
    """Which head the four bytes at an address have; eight bytes are read."""
    four = load_u64(at) & unsigned(0xFFFFFFFF)
    return signed(four * unsigned(_FACTOR) >> unsigned(32 - _HASH_BITS) & unsigned(N_HEADS - 1))


@inlined
def _note(begin: int, position: int, heads: Heads, chain: Chain) -> None:
    """Note the four bytes at a position; eight bytes are read."""
    head = _hash(begin + position)
    back = position + 1 - heads[head]
    chain[position] = back if heads[head] and back <= _FARTHEST else 0
    heads[head] = position + 1


@compiled
def _note_up_to(begin: int, last: int, noted: int, heads: Heads, chain: Chain) -> int:
    """Note the positions from ``noted`` up to ``last``; the position behind them."""
    for position in range(noted, last + 1):
        _note(begin, position, heads, chain)
    return max(noted, last + 1)


@compiled
def _longest_match(begin: int, at: int, end: int, chain: Chain, n_attempts: int, least: int) -> tuple[int, int]:
    """The longest match at a position, if it has more than ``least`` bytes, and its offset; else an offset of 0."""
    most, length, offset = end - _LAST_LITERALS - at, least, 0
    here, other = begin + at, at
    while n_attempts and chain[other] and length < most:
        n_attempts -= 1
        other -= chain[other]
        if at - other > _FARTHEST:
            break
        there = begin + other
        if load_u8(there + length) == load_u8(here + length):
            n = 0
            while n < most and load_u64(there + n) == load_u64(here + n):
                n += 8
            if n < most:
                n += trailing_zeros(load_u64(there + n) ^ load_u64(here + n)) >> 3
            if min(n, most) > length:
                length, offset = min(n, most), at - other
    return length, offset


@inlined
def _put_literals(out: int, literals: int, n: int, half: int) -> int:
    """Write a token, whose lower half is given, and literals; the address behind them."""
    store_u8(out, unsigned(min(n, _MOST) << 4 | half))
    out = _put_rest(out + 1, n)
    copy(out, literals, n)
    return out + n


@inlined
def _put_rest(out: int, length: int) -> int:
    """Write the bytes of a length that does not fit into half a token, if it does not; the address behind them."""
    rest = length - _MOST
    while rest >= 255:
        store_u8(out, unsigned(255))
        out += 1
        rest -= 255
    if rest >= 0:
        store_u8(out, unsigned(rest))
        out += 1
    return out
