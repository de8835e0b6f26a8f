"""Residuals in groups of 32, each coded with one of sixteen classes of code words: the dense form of ``pred``.

Class 0 has zeros only. A code word of classes 1 to 5 stands for four residuals, of classes 6 to 10 for two, of classes
11 to 14 for one; class 15 has the bytes as they are. Groups are sorted by class, so that a loop reads one table, and
dealt to several bit streams, so that a processor reads these at the same time.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from obscodec.codecs.formats.pred.geometry import GROUP_NBYTES, GROUP_STRIDE, SIDE
from obscodec.codecs.statuses import NO_SUCH_BITS, OK
from obscodec.codecs.varint_kernels import read_varint, write_varint
from obscodec.kernels import (
    add_bytes,
    address,
    bits_of_bytes,
    compiled,
    copy,
    fill_zeros,
    inlined,
    load_u8,
    load_u32,
    load_u64,
    max_bytes,
    signed,
    store_u8,
    store_u32,
    store_u64,
    unsigned,
    zigzag_bytes,
)
from obscodec.segments import Bytes, Ints

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
MAX_STREAMS: Final = 32
N_MARKS: Final = 2 * (N_CLASSES + 1) + 2 * MAX_STREAMS
SLACK: Final = 64  # bytes behind the streams that are read
_AT: Final = N_CLASSES + 1  # among the marks: how far each class is sorted
_POSITIONS: Final = 2 * _AT  # where each stream is read, in bits
_ENDS: Final = _POSITIONS + MAX_STREAMS  # where it ends, in bytes
_LIMIT_OF: Final = np.array(LIMITS)
_LARGEST_OF: Final = np.array(LARGEST)
_BYTES: Final = 0x00FF00FF00FF00FF
_HALVES: Final = 0x0000FFFF0000FFFF
_EVERY: Final = 0x0101010101010101
_ENTRY: Final = 8  # bytes of an entry of a table: a length above 32 bits of residuals
_TABLE_NBYTES: Final = _ENTRY << MAX_BITS


@inlined
def residuals_of_code(k: int) -> int:
    """For how many residuals a code word of class ``k`` stands."""
    return 4 if k < FIRST_OF_PAIRS else (2 if k < FIRST_OF_SINGLES else 1)


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
def sort_groups(labels: int, n_groups: int, order: int, marks: Ints) -> int:
    """Sort groups by class.

    Args:
        labels: the address of ``u8[n_groups]``, the class of each.
        n_groups: how many there are.
        order: of ``u32[n_groups]``, filled with the groups, sorted.
        marks: ``i64[N_MARKS]``; the first are filled with where each class begins in ``order``, and the last ends.
    """
    for k in range(N_CLASSES + 1):
        marks[k] = 0
    for g in range(n_groups):
        marks[signed(load_u8(labels + g)) + 1] += 1
    for k in range(N_CLASSES):
        marks[_AT + k] = marks[k]
        marks[k + 1] += marks[k]
    for g in range(n_groups):
        k = _AT + signed(load_u8(labels + g))
        store_u32(order + 4 * marks[k], unsigned(g))
        marks[k] += 1
    return OK


@compiled
def decode_head(
    at: int, end: int, n_bytes: int, n_groups: int, n_modes: int, tables: int, labels: int, modes: int
) -> int:
    """Read the classes of the groups and the modes of the tiles from the bits at ``at``, ``n_bytes`` of them."""
    position, mask = 0, unsigned((1 << MAX_BITS) - 1)
    table, target, step = tables + PAIRS * _TABLE_NBYTES, labels, 2
    for part in range(2):
        n_codes = n_groups >> 1
        if part:
            table, target, n_codes, step = tables + MODES * _TABLE_NBYTES, modes, n_modes, 1
        done = 0
        while done < n_codes:
            if position > 8 * (end - at):
                return NO_SUCH_BITS
            word = load_u64(at + (position >> 3)) >> unsigned(position & 7)
            for _ in range(4):
                if done < n_codes:
                    entry = load_u64(table + signed((word & mask) << unsigned(3)))
                    length = entry >> unsigned(32)
                    word >>= length
                    position += signed(length)
                    store_u8(target, entry)
                    if step == 2:
                        store_u8(target + 1, entry >> unsigned(8))
                    target += step
                    done += 1
    return OK if position + 7 >> 3 == n_bytes else NO_SUCH_BITS


@inlined
def _put_next(table: int, word: int, bit: int, out: int, width: int) -> tuple[int, int, int]:
    """Write what the next code word in ``word`` stands for; returns the word, the bit and the address behind it."""
    entry = load_u64(table + signed((word & unsigned((1 << MAX_BITS) - 1)) << unsigned(3)))
    store_u32(out, entry)
    length = entry >> unsigned(32)
    return word >> length, bit + signed(length), out + width


@compiled
def decode_groups(
    at: int,
    end: int,
    n_streams: int,
    n_groups: int,
    n_modes: int,
    tables: int,
    labels: int,
    order: int,
    modes: int,
    residuals: int,
    marks: Ints,
) -> int:
    """Read the modes and residuals of a frame; :data:`SLACK` bytes behind its ``end`` are read.

    Args:
        at: the address of the lengths of its streams.
        end: where its last stream ends.
        n_streams: how many streams there are, a multiple of 4.
        n_groups: groups of the frame.
        n_modes: tiles of the frame.
        tables: of ``u64[16, 2048]``.
        labels: of ``u8[n_groups]``, changed.
        order: of ``u32[n_groups]``, changed.
        modes: of ``u8[n_modes]``, filled.
        residuals: of the groups, filled.
        marks: ``i64[N_MARKS]``, changed.

    Returns:
        A status.
    """
    head_nbytes, at = read_varint(at, end)
    if at < 0:
        return -at
    for s in range(n_streams - 1):
        marks[_ENDS + s], at = read_varint(at, end)
        if at < 0:
            return -at
    if head_nbytes > end - at:
        return NO_SUCH_BITS
    begin = head_nbytes
    for s in range(n_streams):
        marks[_POSITIONS + s] = 8 * begin
        if s < n_streams - 1:
            if marks[_ENDS + s] > end - at - begin:
                return NO_SUCH_BITS
            begin += marks[_ENDS + s]
            marks[_ENDS + s] = begin
    marks[_ENDS + n_streams - 1] = end - at
    status = decode_head(at, end, head_nbytes, n_groups, n_modes, tables, labels, modes)
    if status != OK:
        return status
    sort_groups(labels, n_groups, order, marks)
    for j in range(marks[1]):
        fill_zeros(residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j)), GROUP_NBYTES)
    last = 8 * (end - at)
    for k in range(1, RAW):
        table, width = tables + k * _TABLE_NBYTES, residuals_of_code(k)
        j, stream, behind = marks[k], _POSITIONS, marks[k + 1]
        while j + 4 <= behind:
            out0 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j))
            out1 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j + 4))
            out2 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j + 8))
            out3 = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j + 12))
            bit0, bit1, bit2, bit3 = marks[stream], marks[stream + 1], marks[stream + 2], marks[stream + 3]
            if max(max(bit0, bit1), max(bit2, bit3)) > last:
                return NO_SUCH_BITS
            for _ in range(SIDE // width):
                word0 = load_u64(at + (bit0 >> 3)) >> unsigned(bit0 & 7)
                word1 = load_u64(at + (bit1 >> 3)) >> unsigned(bit1 & 7)
                word2 = load_u64(at + (bit2 >> 3)) >> unsigned(bit2 & 7)
                word3 = load_u64(at + (bit3 >> 3)) >> unsigned(bit3 & 7)
                for _ in range(4):
                    word0, bit0, out0 = _put_next(table, word0, bit0, out0, width)
                    word1, bit1, out1 = _put_next(table, word1, bit1, out1, width)
                    word2, bit2, out2 = _put_next(table, word2, bit2, out2, width)
                    word3, bit3, out3 = _put_next(table, word3, bit3, out3, width)
            marks[stream], marks[stream + 1], marks[stream + 2], marks[stream + 3] = bit0, bit1, bit2, bit3
            j += 4
            stream = _POSITIONS + (j - marks[k] & n_streams - 1)
        while j < behind:
            out, bit = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j)), marks[stream]
            if bit > last:
                return NO_SUCH_BITS
            for _ in range(SIDE // width):
                word = load_u64(at + (bit >> 3)) >> unsigned(bit & 7)
                for _ in range(4):
                    word, bit, out = _put_next(table, word, bit, out, width)
            marks[stream] = bit
            j += 1
            stream += 1
    for j in range(marks[RAW], marks[RAW + 1]):
        stream = _POSITIONS + (j - marks[RAW] & n_streams - 1)
        out, bit = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j)), marks[stream]
        if bit > last:
            return NO_SUCH_BITS
        for target in range(out, out + GROUP_NBYTES, 4):
            store_u32(target, load_u64(at + (bit >> 3)) >> unsigned(bit & 7))
            bit += 32
        marks[stream] = bit
    for s in range(n_streams):
        if marks[_POSITIONS + s] + 7 >> 3 != marks[_ENDS + s]:
            return NO_SUCH_BITS
    return OK


@inlined
def _put_code(code: int, word: int, filled: int, bits: int) -> tuple[int, int, int]:
    """Put a code word behind the ``filled`` bits of ``word``, and its first 32 bits at ``bits`` once it has so many."""
    word |= unsigned(code & 0xFFFF) << unsigned(filled)
    filled += code >> 16
    if filled >= 32:
        store_u32(bits, word)
        word, filled, bits = word >> unsigned(32), filled - 32, bits + 4
    return word, filled, bits


@compiled
def encode_groups(
    residuals: int,
    n_groups: int,
    modes: int,
    n_modes: int,
    n_streams: int,
    classes: Bytes,
    codes: Codes,
    starts: Ints,
    labels: int,
    order: int,
    bits: int,
    most: int,
    out: int,
    marks: Ints,
) -> int:
    """Write the inverse of :func:`decode_groups`, unless it has ``most`` bytes or more.

    Args:
        residuals: the address of the groups.
        n_groups: how many there are.
        modes: of ``u8[n_modes]``.
        n_modes: tiles of the frame.
        n_streams: how many streams to write.
        classes: ``u8[N_KEYS]``, the class for each key of a group.
        codes: ``u32[:]``: each code word, and its length from bit 16 on.
        starts: ``i64[17]``: where the codes of each class begin, those of pairs as the first, of modes as the last.
        labels: of ``u8[n_groups]``, changed.
        order: of ``u32[n_groups]``, changed.
        bits: where to put the streams at first, see :func:`bits_nbytes`.
        most: how many bytes are too many.
        out: where to write.
        marks: ``i64[N_MARKS]``, changed.

    Returns:
        How many bytes there are; ``most`` if they are too many.
    """
    for g in range(n_groups):
        store_u8(labels + g, unsigned(classes[group_key(residuals + GROUP_STRIDE * g)]))
    sort_groups(labels, n_groups, order, marks)
    word, filled, begin = unsigned(0), 0, bits
    for g in range(0, n_groups, 2):
        code = signed(codes[starts[PAIRS] + 16 * signed(load_u8(labels + g)) + signed(load_u8(labels + g + 1))])
        word, filled, bits = _put_code(code, word, filled, bits)
    for t in range(n_modes):
        code = signed(codes[starts[MODES] + signed(load_u8(modes + t))])
        word, filled, bits = _put_code(code, word, filled, bits)
    store_u64(bits, word)
    bits += filled + 7 >> 3
    head_nbytes = bits - begin
    for s in range(n_streams):
        stream, word, filled = bits, unsigned(0), 0
        for k in range(1, N_CLASSES):
            width, limit, first = residuals_of_code(k), _LIMIT_OF[k], starts[k]
            for j in range(marks[k] + s, marks[k + 1], n_streams):
                group = residuals + GROUP_STRIDE * signed(load_u32(order + 4 * j))
                for at in range(group, group + GROUP_NBYTES, SIDE):
                    if k == RAW:
                        for part in range(0, SIDE, 4):
                            word |= load_u32(at + part) << unsigned(filled)
                            store_u32(bits, word)
                            word, bits = word >> unsigned(32), bits + 4
                    else:
                        symbols = symbols_of(load_u64(at), width, limit)
                        symbol_mask = (unsigned(1) << unsigned(8 * width)) - unsigned(1)
                        for _ in range(SIDE // width):
                            code = signed(codes[first + signed(symbols & symbol_mask)])
                            symbols >>= unsigned(8 * width)
                            word, filled, bits = _put_code(code, word, filled, bits)
        store_u64(bits, word)
        bits += filled + 7 >> 3
        marks[_ENDS + s] = bits - stream
    nbytes = bits - begin + _varint_nbytes(head_nbytes)
    for s in range(n_streams - 1):
        nbytes += _varint_nbytes(marks[_ENDS + s])
    if nbytes >= most:
        return most
    here = write_varint(out, head_nbytes)
    for s in range(n_streams - 1):
        here = write_varint(here, marks[_ENDS + s])
    copy(here, begin, bits - begin)
    return nbytes


@inlined
def _varint_nbytes(value: int) -> int:
    """The bytes of a varint."""
    nbytes = 1
    while value > 0x7F:
        value >>= 7
        nbytes += 1
    return nbytes


def bits_nbytes(n_groups: int, n_modes: int) -> int:
    """The bytes that :func:`encode_groups` may write at ``bits``."""
    most_of_head = MAX_BITS * (n_groups // 2 + n_modes)
    return (most_of_head + MAX_BITS * GROUP_NBYTES * n_groups) // 8 + 8 * (MAX_STREAMS + 2)


@compiled
def measure_groups(
    residuals: Bytes, costs: Ints, starts: Ints, of_classes: Ints, labels: Bytes, keys: Ints, sums: Ints
) -> int:
    """Find the cheapest class of each group.

    Args:
        residuals: of the groups, ``GROUP_STRIDE`` bytes each.
        costs: ``i64[:]`` of each symbol.
        starts: ``i64[17]``, where those of each class begin.
        of_classes: ``i64[16]``, what it costs to name a class.
        labels: ``u8[n_groups]``, filled with the classes.
        keys: ``i64[n_groups]``, filled with the keys.
        sums: ``i64[N_KEYS, 16]``, filled with the costs of all groups of a key in each class.
    """
    sums[:] = 0
    for g in range(len(labels)):
        group = address(residuals) + GROUP_STRIDE * g
        keys[g] = group_key(group)
        largest = keys[g] // N_MEANS
        best, fewest = RAW, 8 * 16 * GROUP_NBYTES + of_classes[RAW]
        sums[keys[g], RAW] += fewest
        for k in range(RAW):
            if largest and 2 * _LIMIT_OF[k] >= _LARGEST_OF[largest]:
                total, width = of_classes[k], residuals_of_code(k)
                for at in range(group, group + GROUP_NBYTES, SIDE):
                    symbols = symbols_of(load_u64(at), width, _LIMIT_OF[k])
                    for j in range(0, 64, 8 * width):
                        symbol = symbols >> unsigned(j) & (unsigned(1) << unsigned(8 * width)) - unsigned(1)
                        total += costs[starts[k] + signed(symbol)]
                sums[keys[g], k] += total
                if total < fewest:
                    best, fewest = k, total
        labels[g] = best if largest else 0
    return OK


@compiled
def count_symbols(residuals: Bytes, labels: Bytes, starts: Ints, counts: Ints) -> int:
    """Count the symbols of groups in their classes, into ``i64[:]``; see :func:`measure_groups`."""
    counts[:] = 0
    for g in range(len(labels)):
        group, k = address(residuals) + GROUP_STRIDE * g, signed(labels[g])
        if 0 < k < RAW:
            width = residuals_of_code(k)
            for at in range(group, group + GROUP_NBYTES, SIDE):
                symbols = symbols_of(load_u64(at), width, _LIMIT_OF[k])
                for j in range(0, 64, 8 * width):
                    symbol = symbols >> unsigned(j) & (unsigned(1) << unsigned(8 * width)) - unsigned(1)
                    counts[starts[k] + signed(symbol)] += 1
    return OK
